// SPDX-License-Identifier: Apache-2.0
// Chains of arithmetic in one pass: the steps of pending calls are joined to those of the call that reads them (arithmetic.cu decides whether). A row
// of all operands runs through all steps before the next one begins, so what lies between the steps stays in the L1 cache.
#include "ops/math/expression.h"

#include <algorithm>
#include <map>
#include <string>

#include "ndd/elementwise/streaming.h"

namespace ndd {

using namespace arithmetic_detail;

// The rows of the sample that a thread works on. On the heap, because a thread's stack may be small.
struct Expression::Workspace {
  Rows readers[kMaxLeaves];
  const void* rows[kMaxLeaves];
  alignas(64) char results[kMaxSteps][kRow * 8];
  alignas(64) char converted[kOperands][kRow * 8];
  alignas(64) char unconverted[kRow * 8];
  alignas(64) char streaming[kRow * 8];
};

Expression::Workspace& Expression::workspace() {
  thread_local const std::unique_ptr<Workspace> space(new Workspace);  // uninitialized: only what is used takes memory
  return *space;
}

Expression::Expression(const Recipe& recipe, const std::vector<Term>& terms) {
  Step last{recipe, {}};
  // An expression that is an operand twice is computed once.
  std::map<const Expression*, int> appended;
  for (const Term& term : terms) {
    if (!term.expression) {
      last.operands.push_back({leaf(term.samples, term.shapes, recipe.computed), -1, nullptr});
      continue;
    }
    const auto [found, is_new] = appended.try_emplace(term.expression.get(), 0);
    if (is_new) found->second = append(*term.expression);
    last.operands.push_back({-1, found->second, row_converter(term.samples.dtype(), recipe.computed)});
  }
  steps_.push_back(std::move(last));
}

// Equal operands share a leaf, so x * x reads and converts x once.
int Expression::leaf(const Samples& samples, const Broadcasts& shapes, DType computed) {
  for (size_t k = 0; k < leaves_.size(); ++k) {
    const Leaf& known = leaves_[k];
    if (known.samples.address() == samples.address() && known.samples.dtype() == samples.dtype() && known.samples.size() == samples.size() &&
        known.computed == computed && (known.shapes == shapes || *known.shapes == *shapes))
      return static_cast<int>(k);
  }
  leaves_.push_back({samples, shapes, computed, row_converter(samples.dtype(), computed)});
  return static_cast<int>(leaves_.size()) - 1;
}

// Appends the steps of another expression; returns the index of the step that computes its result.
int Expression::append(const Expression& other) {
  const int first = static_cast<int>(steps_.size());
  std::vector<int> leaves;
  // The leaves of both are joined, and the other expression's steps refer to their new numbers.
  for (const Leaf& input : other.leaves_) leaves.push_back(leaf(input.samples, input.shapes, input.computed));
  for (Step step : other.steps_) {
    for (Operand& operand : step.operands) {
      if (operand.leaf >= 0) operand.leaf = leaves[operand.leaf];
      else operand.step += first;
    }
    steps_.push_back(std::move(step));
  }
  return static_cast<int>(steps_.size()) - 1;
}

// Costs per element and step: a C library function, a division, a vector operation.
double Expression::nanoseconds() const {
  double sum = 0;
  for (const Step& step : steps_) sum += is_slow(step.recipe.op) ? 8.0 : is_division(step.recipe.op) || step.recipe.op == Op::ipow ? 2.0 : 0.05;
  return sum;
}

bool Expression::repeatable() const {
  return std::none_of(steps_.begin(), steps_.end(), [](const Step& step) {
    const Op op = step.recipe.op;
    return is_slow(op) || is_division(op) || op == Op::ipow;
  });
}

// Whether the result has this type and these volumes.
bool Expression::makes(const Samples& samples) const {
  if (samples.dtype() != steps_.back().recipe.out || samples.size() == 0) return false;
  const Leaf& input = leaves_[0];
  const auto shapes = static_cast<int64_t>(input.shapes->size());
  if (shapes != 1 && shapes != samples.size()) return false;
  for (int64_t i = 0; i < samples.size(); ++i)
    if (input.shape(i).count != samples.volume(i)) return false;
  return true;
}

void Expression::run_step(const Step& step, Workspace& space, int64_t i, int64_t n, void* result) const {
  const Recipe& recipe = step.recipe;
  const void* operands[kOperands] = {};
  for (size_t k = 0; k < step.operands.size(); ++k) {
    const Operand& operand = step.operands[k];
    operands[k] = operand.leaf >= 0 ? space.rows[operand.leaf] : space.results[operand.step];
    // The result of another step has that step's type.
    if (operand.convert) {
      operand.convert(operands[k], n, space.converted[k]);
      operands[k] = space.converted[k];
    }
  }
  if (is_division(recipe.op) && has_zero(operands[1], recipe.computed, n))
    fail(Error::Value, "arithmetic: Integer division by zero. (sample_idx=", i, ")");
  recipe.apply(operands, n, recipe.store ? space.unconverted : result);
  if (recipe.store) recipe.store(space.unconverted, n, result);
}

void Expression::run(int64_t i, void* out, bool streamed) const {
  const int64_t count = leaves_[0].shape(i).count, out_bytes = item_bytes(steps_.back().recipe.out);
  if (count == 0) return;
  Workspace& space = workspace();
  bool in_place = true;
  for (size_t k = 0; k < leaves_.size(); ++k) {
    const Leaf& input = leaves_[k];
    space.readers[k].reset(input.shape(i), input.samples.data(input.samples.size() == 1 ? 0 : i), input.samples.item_bytes(), input.convert,
                           item_bytes(input.computed));
    in_place = in_place && space.readers[k].in_place();
  }
  // A single operation on operands that are read in place needs no rows.
  const bool whole = steps_.size() == 1 && in_place && !streamed && !steps_[0].recipe.store;
  // Streamed rows end at cache lines.
  int64_t n = whole ? count : streamed ? kRow - kCacheLine / out_bytes + to_cache_line(out) / out_bytes : kRow;
  for (int64_t begin = 0; begin < count; begin += n, n = kRow) {
    n = std::min(n, count - begin);
    for (size_t k = 0; k < leaves_.size(); ++k) space.rows[k] = space.readers[k].at(begin, n);
    for (size_t s = 0; s + 1 < steps_.size(); ++s) run_step(steps_[s], space, i, n, space.results[s]);
    char* to = static_cast<char*>(out) + begin * out_bytes;
    run_step(steps_.back(), space, i, n, streamed ? space.streaming : to);
    if (streamed) stream_copy(to, space.streaming, n * out_bytes);
  }
  if (streamed) stream_fence();
}

}  // namespace ndd
