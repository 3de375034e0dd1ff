// SPDX-License-Identifier: Apache-2.0
// Reductions over any dimensions of a sample: which elements contribute to an output, how they are folded, and what becomes of the total. Integer
// sums are exact; everything else is computed in double, always in the same order, so no result depends on the number of threads. cpu.h has the CPU
// side, reduce.cuh the CUDA side.
//
// Use it for sums, means, their squares and extremes over any set of axes. Histograms, ranks and what needs the position of an element are
// operators of their own (lut.h, order_keys.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "ndd/dtypes.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/error.h"
#include "ndd/hd.h"

namespace ndd {

// Throws unless the degrees of freedom can be subtracted from a number of elements.
inline void check_degrees(const char* op, int64_t ddof) {
  constexpr int64_t kMaxDegrees = int64_t{1} << 31;
  if (ddof <= -kMaxDegrees || ddof >= kMaxDegrees) fail(Error::Value, op, ": ddof is out of range: ", ddof);
}

// The dimensions of a contiguous sample, innermost first, split into kept and reduced ones; neighboring dimensions of one kind are merged.
struct Reduction {
  static constexpr int kMaxDims = 8;  // per kind, after merging

  int64_t outputs = 1, count = 1;  // the number of results, and of elements per result
  int kept = 0, reduced = 0;
  int64_t kept_extent[kMaxDims] = {}, kept_stride[kMaxDims] = {}, reduced_extent[kMaxDims] = {}, reduced_stride[kMaxDims] = {};

  // Bit d of `axes` says that dimension d is reduced.
  Reduction(const int64_t* shape, int64_t ndim, int64_t axes) {
    int64_t stride = 1;
    int last = -1;
    for (int64_t d = ndim - 1; d >= 0; --d) {
      const bool sum = axes >> d & 1;
      (sum ? count : outputs) *= shape[d];
      if (shape[d] == 1) continue;
      int& n = sum ? reduced : kept;
      int64_t* extents = sum ? reduced_extent : kept_extent;
      if (last == sum) {
        extents[n - 1] *= shape[d];
      } else {
        if (n == kMaxDims) fail("the axes to reduce alternate with others in too many dimensions");
        extents[n] = shape[d];
        (sum ? reduced_stride : kept_stride)[n++] = stride;
      }
      last = sum;
      stride *= shape[d];
    }
  }

  NDD_HD static int64_t offset(int64_t i, int first, int ndim, const int64_t* extent, const int64_t* stride) {
    int64_t at = 0;
    for (int d = first; d < ndim; ++d) {
      at += i % extent[d] * stride[d];
      i /= extent[d];
    }
    return at;
  }
  NDD_HD int64_t of_output(int64_t o, int first = 0) const { return offset(o, first, kept, kept_extent, kept_stride); }
  NDD_HD int64_t of_element(int64_t e, int first = 0) const { return offset(e, first, reduced, reduced_extent, reduced_stride); }
};

template <class Acc, class T>
NDD_HD Acc widened(T value) {
  if constexpr (is_half<T>) return static_cast<Acc>(static_cast<float>(value));
  else return static_cast<Acc>(value);
}

// What is computed from the total of an output's elements.
enum class Finish : int32_t { sum, mean, root_mean };

struct Finisher {
  Finish finish;
  int64_t divisor;  // number of elements, less the degrees of freedom

  NDD_HD double value(double total) const {
    const double divided = finish == Finish::sum ? total : total / static_cast<double>(divisor);
    return finish == Finish::root_mean ? sqrt(divided) : divided;
  }

  // Integer results are truncated, as in DALI; a sum, which has no fraction, is saturated.
  template <class Out>
  NDD_HD Out operator()(double total) const {
    const double value = this->value(total);
    if constexpr (is_half<Out>) return static_cast<Out>(static_cast<float>(value));
    else if constexpr (is_floating<Out>) return static_cast<Out>(value);
    else if constexpr (std::is_same_v<Out, bool>) return saturate<Out>(value);
    else return value == value ? saturate<Out>(trunc(value)) : Out{};
  }

  // For integer sums modulo 2^64, read as signed or unsigned.
  template <class Out>
  NDD_HD Out whole(uint64_t total, bool is_signed) const {
    const double value = is_signed ? static_cast<double>(static_cast<int64_t>(total)) : static_cast<double>(total);
    if (finish != Finish::sum) return (*this).template operator()<Out>(value);
    return is_signed ? saturate<Out>(static_cast<int64_t>(total)) : saturate<Out>(total);
  }
};

inline bool is_signed_dtype(DType dtype) {
  return dtype == DType::int8 || dtype == DType::int16 || dtype == DType::int32 || dtype == DType::int64 || is_floating_dtype(dtype);
}

}  // namespace ndd
