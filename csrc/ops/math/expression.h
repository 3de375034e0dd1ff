// SPDX-License-Identifier: Apache-2.0
// What an arithmetic call computes for a sample: steps on the elements of its operands, run row by row while the rows are in the first-level cache.
// Each operand is read once and only the last step's result goes to memory, however many steps there are.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ndd/elementwise/broadcast.h"
#include "ndd/samples.h"
#include "ndd/stream/stream.h"
#include "ops/math/arithmetic_rows.h"

namespace ndd {

class Expression;
using ExpressionPtr = std::shared_ptr<const Expression>;
using Broadcasts = std::shared_ptr<const std::vector<Broadcast>>;  // of every sample, or of all that are alike

// Something to compute with: samples, or what another expression makes of its own.
struct Term {
  Samples samples;
  Broadcasts shapes;
  ExpressionPtr expression;  // null for samples that are there
};

class Expression : public Formula {
 public:
  static constexpr size_t kMaxSteps = 8, kMaxLeaves = 12;

  Expression(const arithmetic_detail::Recipe& recipe, const std::vector<Term>& terms);

  // Sample i. `streamed`: the result goes past the caches.
  void run(int64_t i, void* out, bool streamed) const;

  // Of an element, once its operands are in the cache.
  double nanoseconds() const;
  size_t steps() const { return steps_.size(); }
  size_t leaves() const { return leaves_.size(); }
  // Whether another expression may compute it a second time: it is quick, and cannot fail.
  bool repeatable() const;
  // Whether these are the elements that it makes, in their order.
  bool makes(const Samples& samples) const;

 private:
  struct Leaf {
    Samples samples;
    Broadcasts shapes;
    DType computed;
    arithmetic_detail::ConvertRow convert;

    const Broadcast& shape(int64_t i) const { return (*shapes)[shapes->size() == 1 ? 0 : i]; }
  };
  struct Operand {
    int leaf, step;                        // the one that is not -1
    arithmetic_detail::ConvertRow convert;  // of a step's result
  };
  struct Step {
    arithmetic_detail::Recipe recipe;
    std::vector<Operand> operands;
  };
  struct Workspace;

  static Workspace& workspace();
  int leaf(const Samples& samples, const Broadcasts& shapes, DType computed);
  int append(const Expression& other);
  void run_step(const Step& step, Workspace& space, int64_t i, int64_t n, void* result) const;

  std::vector<Leaf> leaves_;
  std::vector<Step> steps_;
};

}  // namespace ndd
