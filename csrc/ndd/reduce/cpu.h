// SPDX-License-Identifier: Apache-2.0
// CPU side of the reductions, for every type of elements.
#pragma once

#include <cstdint>
#include <functional>

#include "ndd/dtypes.h"
#include "ndd/reduce/reduce.h"

namespace ndd::reduce {

// mean: a sum that does not overflow. distances: sums of squared distances from a number for each output. Extremes are past NaN.
enum class Fold { sum, mean, squares, distances, smallest, largest };

// The numbers that distances are measured from; step 0: one for all outputs.
struct Centers {
  const double* values = nullptr;
  int64_t step = 0;

  double operator()(int64_t output) const { return values[output * step]; }
};

// Takes the totals of some outputs: the first one, how many, and their totals, of type total_dtype().
using TakeTotals = std::function<void(int64_t first, int64_t n, const void* totals)>;

// int64 or uint64 (modulo 2^64) where totals are whole, else float64; of extremes one that holds the elements.
DType total_dtype(Fold fold, DType in);

void fold_sample(Fold fold, const Reduction& shape, const void* in, DType dtype, Centers centers, const TakeTotals& take);

// Folds one sample into an output of any type.
void reduce_sample(Fold fold, const Reduction& shape, const Finisher& finisher, const void* in, DType in_dtype, Centers centers, void* out,
                   DType out_dtype);

}  // namespace ndd::reduce
