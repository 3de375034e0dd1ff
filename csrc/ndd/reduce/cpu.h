// SPDX-License-Identifier: Apache-2.0
// CPU side of the reductions, for every element type. Runs on the calling thread, one sample at a time.
#pragma once

#include <cstdint>
#include <functional>

#include "ndd/dtypes.h"
#include "ndd/reduce/reduce.h"

namespace ndd::reduce {

// mean: a sum that does not overflow. distances: sums of squared distances from a given center per output. The extremes ignore NaN.
enum class Fold { sum, mean, squares, distances, smallest, largest };

// The centers that distances are measured from; step 0 means one center for all outputs.
struct Centers {
  const double* values = nullptr;
  int64_t step = 0;

  double operator()(int64_t output) const { return values[output * step]; }
};

// Receives the totals of consecutive outputs: the first output, their number, and their totals of type total_dtype().
using TakeTotals = std::function<void(int64_t first, int64_t n, const void* totals)>;

// int64 or uint64 (modulo 2^64) for integer totals, otherwise float64; for extremes, a type that holds the elements.
DType total_dtype(Fold fold, DType in);

void fold_sample(Fold fold, const Reduction& shape, const void* in, DType dtype, Centers centers, const TakeTotals& take);

// Folds one sample into an output of any type.
void reduce_sample(Fold fold, const Reduction& shape, const Finisher& finisher, const void* in, DType in_dtype, Centers centers, void* out,
                   DType out_dtype);

}  // namespace ndd::reduce
