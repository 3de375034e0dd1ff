// SPDX-License-Identifier: Apache-2.0
#include "ops/math/arithmetic.h"

#include <algorithm>
#include <string>
#include <vector>

#include "ndd/broadcast.h"
#include "ndd/kernel.h"
#include "ndd/saturate.h"
#include "ndd/streaming.h"
#include "ops/math/expression.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#endif

namespace ndd {
namespace {

using namespace arithmetic_detail;

// A VGA image of float32 takes 0.3 ms.
constexpr double kNanoseconds = 0.3;

#ifdef __CUDACC__
struct Run {
  const void* in[kOperands];
  Broadcast shape[kOperands];
  void* out;
};

struct Types {
  DType in[kOperands], out;
};

template <class T>
__device__ T load_as(const void* data, DType dtype, int64_t i) {
  T value{};
  for_dtype(dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    if constexpr (is_half<In>) value = static_cast<T>(static_cast<float>(static_cast<const In*>(data)[i]));
    else value = static_cast<T>(static_cast<const In*>(data)[i]);
  });
  return value;
}

// Integers narrower than T keep its lowest bits.
template <class T>
__device__ void store_as(T value, void* data, DType dtype, int64_t i) {
  for_dtype(dtype, [&](auto tag) {
    using Out = typename decltype(tag)::type;
    if constexpr (is_half<Out>) static_cast<Out*>(data)[i] = static_cast<Out>(static_cast<float>(value));
    else static_cast<Out*>(data)[i] = static_cast<Out>(value);
  });
}

constexpr int kThreads = 256;
constexpr int kPerThread = 4;

// Operation and types are known at run time: the switches are the same for all threads and cost a predicted branch beside a memory access. The
// functions of the C library are in a kernel of their own, because their registers would halve the occupancy of the others.
template <class T, bool slow>
__global__ void run_gpu(const Run* runs, int64_t count, Types types, Op op, int operands) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run& run = runs[k];
    const int64_t stride = int64_t{gridDim.x} * kThreads;
    for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < run.shape[0].count; i += stride) {
      const T a = load_as<T>(run.in[0], types.in[0], run.shape[0].locate(i));
      const T b = operands > 1 ? load_as<T>(run.in[1], types.in[1], run.shape[1].locate(i)) : T{};
      const T c = operands > 2 ? load_as<T>(run.in[2], types.in[2], run.shape[2].locate(i)) : T{};
      for_op(op, [&](auto constant) {
        constexpr Op kOp = decltype(constant)::value;
        if constexpr (is_slow(kOp) == slow && has_function<T>(kOp)) store_as(function<kOp>(a, b, c), run.out, types.out, i);
      });
    }
  }
}

// Expected: 70 % of the memory bandwidth for contiguous operands (four bytes or less a thread and access), 40 % for broadcast ones (divisions of
// indices).
void launch_gpu(Op op, DType computed, const Types& types, const std::vector<Run>& runs) {
  int64_t most = 0;
  for (const Run& run : runs) most = std::max(most, run.shape[0].count);
  if (most == 0) return;
  const CudaTable<Run> table(runs);
  const int64_t count = static_cast<int64_t>(runs.size()), blocks = (most + kThreads * kPerThread - 1) / (kThreads * kPerThread);
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>(blocks, 1 << 16)), static_cast<unsigned>(std::min<int64_t>(count, 65535)));
  const auto launch = [&](auto kernel) { kernel<<<grid, kThreads, 0, current_cuda_stream()>>>(table.data(), count, types, op, arity(op)); };
  switch (computed) {
    case DType::float32:
      launch(is_slow(op) ? run_gpu<float, true> : run_gpu<float, false>);
      break;
    case DType::float64:
      launch(is_slow(op) ? run_gpu<double, true> : run_gpu<double, false>);
      break;
    case DType::uint32:
      launch(run_gpu<uint32_t, false>);
      break;
    case DType::int64:
      launch(run_gpu<int64_t, false>);
      break;
    case DType::uint64:
      launch(run_gpu<uint64_t, false>);
      break;
    default:  // int32 and everything narrower
      launch(run_gpu<int32_t, false>);
  }
  check_launch("arithmetic");
}
#endif

// Chains are computed in one pass where a pass takes longer than the call: 0.1 ms.
constexpr double kFusedNanoseconds = 100'000;

// Whether every element of the result has the one of the operand in the same place.
bool in_order(const Samples& operand, const Samples& out, const Broadcasts& shapes) {
  return operand.size() == out.size() &&
         std::all_of(shapes->begin(), shapes->end(), [](const Broadcast& one) { return one.period() == one.count; });
}

// What one operand is made of, instead of its elements, where that is still to be computed.
void inline_pending(const std::vector<Samples>& operands, const Samples& out, std::vector<Term>& terms, std::vector<const void*>& inlined) {
  size_t steps = 1, leaves = terms.size();
  for (size_t k = 0; k < terms.size(); ++k) {
    const Samples& operand = operands[k];
    if (!in_order(operand, out, terms[k].shapes)) continue;
    const ExpressionPtr formula = pending_formula(operand.data(0));
    if (!formula || !formula->repeatable() || !formula->makes(operand)) continue;
    if (steps + formula->steps() > Expression::kMaxSteps || leaves + formula->leaves() > Expression::kMaxLeaves) continue;
    steps += formula->steps();
    leaves += formula->leaves();
    terms[k].expression = formula;
    inlined.push_back(operand.data(0));
  }
}

// How sample i of the result, or every one, reads the operand.
Broadcasts broadcasts(const Samples& operand, const Samples& out, const std::vector<Samples>& all) {
  const int64_t count = operand.dense() && out.dense() ? std::min<int64_t>(1, out.size()) : out.size();
  auto made = std::make_shared<std::vector<Broadcast>>(count);
  for (int64_t i = 0; i < count; ++i) {
    if (broadcast(operand.shape(operand.size() == 1 ? 0 : i), operand.ndim(), out.shape(i), out.ndim(), (*made)[i])) continue;
    std::string text = "arithmetic: Can't broadcast shapes";
    for (const Samples& one : all) text += (&one == &all[0] ? " " : " and ") + shape_text(one.shape(one.size() == 1 ? 0 : i), one.ndim());
    throw Error(Error::Runtime, text + (out.size() > 1 ? " (sample_idx=" + std::to_string(i) + ")" : ""));
  }
  return made;
}

void arithmetic(const Tensor& first, const MaybeTensor& first_shapes, const MaybeTensor& second, const MaybeTensor& second_shapes,
                const MaybeTensor& third, const MaybeTensor& third_shapes, int64_t operation, int64_t type_number, const Tensor& out_values,
                const MaybeTensor& out_shapes) {
  const auto op = static_cast<Op>(operation);
  const auto type = static_cast<DType>(type_number);
  const Samples out(out_values, out_shapes);
  std::vector<Samples> operands{{first, first_shapes}};
  if (second) operands.emplace_back(*second, second_shapes);
  if (third) operands.emplace_back(*third, third_shapes);
  const DType left = operands[0].dtype(), right = operands.back().dtype();
  std::vector<Term> terms;
  for (const Samples& one : operands) terms.push_back({one, broadcasts(one, out, operands), nullptr});
#ifdef __CUDACC__
  if (out_values.is_cuda()) {
    Types types{{}, out.dtype()};
    std::vector<Run> runs(out.size());
    for (size_t k = 0; k < operands.size(); ++k) {
      types.in[k] = operands[k].dtype();
      const Broadcasts& shapes = terms[k].shapes;
      for (int64_t i = 0; i < out.size(); ++i) {
        runs[i].in[k] = operands[k].data(operands[k].size() == 1 ? 0 : i);
        runs[i].shape[k] = (*shapes)[shapes->size() == 1 ? 0 : i];
        runs[i].out = out.data(i);
      }
    }
    const Op special = specific(op, type, left, right);
    return launch_gpu(special, computed_in(special, type, left, right), types, runs);
  }
#endif
  std::vector<const void*> inlined;
  const bool large = kNanoseconds * out.mean_volume() * static_cast<double>(out.size()) >= kFusedNanoseconds;
  if (large) inline_pending(operands, out, terms, inlined);
  const auto expression = std::make_shared<const Expression>(recipe(op, type, left, right, out.dtype()), terms);
  const bool streamed = exceeds_caches(out_values.numel() * out.item_bytes());
  const double nanoseconds = (kNanoseconds + expression->nanoseconds()) * out.mean_volume();
  auto work = [=](int64_t i) { expression->run(i, out.data(i), streamed); };
  if (large) launch_formula(out.size(), nanoseconds, work, expression, out.data(0), inlined, expression->repeatable());
  else launch_cpu("arithmetic", out.size(), nanoseconds, {}, work);
}

}  // namespace
}  // namespace ndd
NDD_KERNELS(arithmetic, ndd::arithmetic)
