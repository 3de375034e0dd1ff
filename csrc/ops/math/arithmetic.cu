// SPDX-License-Identifier: Apache-2.0
// A call on an operand that is still being computed takes over its expression, so a chain of operations is one pass over memory; see
// compute_pending().
#include "ops/math/arithmetic.h"

#include <algorithm>
#include <string>
#include <vector>

#include "ndd/elementwise/broadcast.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/elementwise/streaming.h"
#include "ndd/kernel.h"
#include "ops/math/expression.h"
#ifdef __CUDACC__
#include "ops/math/arithmetic.cuh"
#endif

namespace ndd::arithmetic_kernels {
namespace {

using namespace arithmetic_detail;

// A VGA image of float32 takes 0.3 ms.
constexpr double kNanoseconds = 0.3;

// Chains are computed in one pass where a pass takes longer than the call: 0.1 ms.
constexpr double kFusedNanoseconds = 100'000;

// Whether the operand has the shape of the result, so elements correspond by position.
bool in_order(const Samples& operand, const Samples& out, const Broadcasts& shapes) {
  return operand.size() == out.size() &&
         std::all_of(shapes->begin(), shapes->end(), [](const Broadcast& batch) { return batch.period() == batch.count; });
}

// Replaces operands that are still pending by their expressions, so the chain is computed in one pass and intermediate results stay in the cache. Only
// expressions that are cheap and cannot fail, because the pending call still computes its own result if anything else reads it.
void compute_pending(const std::vector<Samples>& operands, const Samples& out, std::vector<Term>& terms, std::vector<const void*>& computed) {
  size_t steps = 1, leaves = terms.size();
  for (size_t k = 0; k < terms.size(); ++k) {
    const Samples& operand = operands[k];
    if (!in_order(operand, out, terms[k].shapes)) continue;
    const auto formula = std::dynamic_pointer_cast<const Expression>(pending_formula(operand.address()));
    if (!formula || !formula->repeatable() || !formula->makes(operand)) continue;
    if (steps + formula->steps() > Expression::kMaxSteps || leaves + formula->leaves() > Expression::kMaxLeaves) continue;
    steps += formula->steps();
    leaves += formula->leaves();
    terms[k].expression = formula;
    computed.push_back(operand.address());
  }
}

// How each sample of the result reads the operand; a single entry if all samples are alike.
Broadcasts broadcasts(const Samples& operand, const Samples& out, const std::vector<Samples>& all) {
  const int64_t count = operand.dense() && out.dense() ? std::min<int64_t>(1, out.size()) : out.size();
  auto shapes = std::make_shared<std::vector<Broadcast>>(count);
  for (int64_t i = 0; i < count; ++i) {
    if (broadcast(operand.shape(operand.size() == 1 ? 0 : i), operand.ndim(), out.shape(i), out.ndim(), (*shapes)[i])) continue;
    std::string text = "arithmetic: Can't broadcast shapes";
    for (const Samples& batch : all) text += (&batch == &all[0] ? " " : " and ") + shape_text(batch.shape(batch.size() == 1 ? 0 : i), batch.ndim());
    fail(text, out.size() > 1 ? " (sample_idx=" + std::to_string(i) + ")" : "");
  }
  return shapes;
}

void arithmetic(const Tensor& first, const MaybeTensor& first_shapes, const MaybeTensor& second, const MaybeTensor& second_shapes,
                const MaybeTensor& third, const MaybeTensor& third_shapes, int64_t operation, int64_t type_number, const Tensor& output,
                const MaybeTensor& output_shapes) {
  const auto op = static_cast<Op>(operation);
  const auto type = static_cast<DType>(type_number);
  const Samples out(output, output_shapes);
  std::vector<Samples> operands{{first, first_shapes}};
  if (second) operands.emplace_back(*second, second_shapes);
  if (third) operands.emplace_back(*third, third_shapes);
  if (static_cast<int>(operands.size()) != arity(op))
    fail(Error::Value, "arithmetic: operation ", operation, " has ", arity(op), " operands, got ", operands.size());
  const DType left = operands[0].dtype(), right = operands.back().dtype();
  std::vector<Term> terms;
  for (const Samples& batch : operands) terms.push_back({batch, broadcasts(batch, out, operands), nullptr});
#ifdef __CUDACC__
  if (output.is_cuda()) {
    arithmetic_gpu::Types types{{}, out.dtype()};
    std::vector<arithmetic_gpu::Run> runs(out.size());
    // Those that kernels have to look up for single elements, of all operands together.
    std::vector<Broadcast> others;
    for (size_t k = 0; k < operands.size(); ++k) {
      types.in[k] = operands[k].dtype();
      const Broadcasts& shapes = terms[k].shapes;
      for (int64_t i = 0; i < out.size(); ++i) {
        const Broadcast& shape = (*shapes)[shapes->size() == 1 ? 0 : i];
        runs[i].in[k] = arithmetic_gpu::operand_of(operands[k].data(operands[k].size() == 1 ? 0 : i), shape, others);
        runs[i].out = out.data(i);
        runs[i].count = shape.count;
        runs[i].one_by_one = runs[i].one_by_one || runs[i].in[k].order == arithmetic_gpu::Order::other;
      }
    }
    // The operation and the type of computation are chosen as on the CPU.
    const Op special = specific(op, type, left, right);
    return arithmetic_gpu::launch(special, computed_in(special, type, left, right), types, runs, others);
  }
#endif
  std::vector<const void*> computed;
  const bool large = kNanoseconds * out.mean_volume() * static_cast<double>(out.size()) >= kFusedNanoseconds;
  if (large) compute_pending(operands, out, terms, computed);
  const auto expression = std::make_shared<const Expression>(recipe(op, type, left, right, out.dtype()), terms);
  const bool streamed = exceeds_caches(output.numel() * out.item_bytes());
  const double nanoseconds = (kNanoseconds + expression->nanoseconds()) * out.mean_volume();
  auto work = [=](int64_t i) { expression->run(i, out.data(i), streamed); };
  // Its expression can become part of a later one, as above.
  if (large) launch_fused("arithmetic", out.size(), nanoseconds, {}, work, {expression, out.address(), computed, expression->repeatable()});
  else launch_cpu("arithmetic", out.size(), nanoseconds, {}, work);
}

}  // namespace
}  // namespace ndd::arithmetic_kernels
NDD_KERNELS(arithmetic, ndd::arithmetic_kernels::arithmetic)
