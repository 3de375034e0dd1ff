// SPDX-License-Identifier: Apache-2.0
// Sums over any dimensions of a sample. Integers are added exactly, floats in double, always in the same order: no result depends on threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ndd/dtypes.h"
#include "ndd/error.h"
#include "ndd/hd.h"
#include "ndd/saturate.h"
#include "ndd/simd.h"

namespace ndd {

// The dimensions of a contiguous sample, neighbours of one kind merged, innermost first.
struct Reduction {
  static constexpr int kMaxDims = 8;  // of a kind, after merging

  int64_t outputs = 1, count = 1;  // results, and elements in each of them
  int kept = 0, reduced = 0;
  int64_t kept_extent[kMaxDims] = {}, kept_stride[kMaxDims] = {}, reduced_extent[kMaxDims] = {}, reduced_stride[kMaxDims] = {};

  // Bit d of `axes` says that dimension d is summed over.
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
        if (n == kMaxDims) throw Error(Error::Runtime, "the axes to reduce alternate with others in too many dimensions");
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

namespace reduce_detail {

constexpr int64_t kLanes = 1024;

template <class T>
using Sum = std::conditional_t<is_floating<T> || sizeof(T) == 8, double, int64_t>;

template <class T>
NDD_HD Sum<T> widened(T value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) return static_cast<float>(value);
  else return static_cast<Sum<T>>(value);
}

// lanes[j] += the sum of column j, in rows of `width` elements that lie `stride` apart.
template <class T>
void add_rows(const T* rows, int64_t count, int64_t stride, int64_t width, Sum<T>* lanes) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    Sum<T>* __restrict sums = lanes;
    const int64_t n = width;
    if constexpr (sizeof(T) == 1) {  // 16 bits hold the sum of 255 rows, and twice as many fit in a register as 32-bit ones
      using Short = std::conditional_t<std::is_signed_v<T>, int16_t, uint16_t>;
      alignas(64) Short partial[kLanes];
      for (int64_t begin = 0; begin < count; begin += 255) {
        for (int64_t j = 0; j < n; ++j) partial[j] = 0;
        for (int64_t r = begin; r < std::min(begin + 255, count); ++r) {
          const T* __restrict row = rows + r * stride;
          for (int64_t j = 0; j < n; ++j) partial[j] = static_cast<Short>(partial[j] + static_cast<Short>(row[j]));
        }
        for (int64_t j = 0; j < n; ++j) sums[j] += partial[j];
      }
    } else {
      for (int64_t r = 0; r < count; ++r) {
        const T* __restrict row = rows + r * stride;
        for (int64_t j = 0; j < n; ++j) sums[j] += widened(row[j]);
      }
    }
  });
}

// sums[k] += the sum of column k of a contiguous slab of `rows` x `columns`. Narrow slabs are read as wider ones, whose lanes are folded at the end.
template <class T>
void add_slab(const T* slab, int64_t rows, int64_t columns, double* sums) {
  if (columns == 1 && rows <= 32) {
    Sum<T> sum{};
    for (int64_t r = 0; r < rows; ++r) sum += widened(slab[r]);
    *sums += static_cast<double>(sum);
    return;
  }
  alignas(64) Sum<T> lanes[kLanes];
  for (int64_t first = 0; first < columns; first += kLanes) {
    const int64_t part = std::min(kLanes, columns - first), together = part < columns ? 1 : std::max<int64_t>(1, std::min(rows, kLanes / columns));
    const int64_t width = part * together, rest = rows % together;
    std::fill(lanes, lanes + width, Sum<T>{});
    add_rows(slab + first, rows / together, columns * together, width, lanes);
    if (rest) add_rows(slab + (rows - rest) * columns, 1, 0, rest * columns, lanes);
    for (int64_t j = part; j < width; ++j) lanes[j % part] += lanes[j];
    for (int64_t j = 0; j < part; ++j) sums[first + j] += static_cast<double>(lanes[j]);
  }
}

// sums[o] += the sum of run o, of `known` elements where that is not 0.
template <int known, class T>
void add_short_runs(const T* runs, int64_t length, int64_t count, double* sums) {
  const int64_t n = known ? known : length;
  for (int64_t o = 0; o < count; ++o) {
    Sum<T> sum{};
    for (int64_t r = 0; r < n; ++r) sum += widened(runs[o * n + r]);
    sums[o] += static_cast<double>(sum);
  }
}

template <class T>
void add_sample(const Reduction& shape, const T* in, double* sums) {
  const bool inner_kept = shape.kept > 0 && shape.kept_stride[0] == 1;
  const int64_t columns = inner_kept ? shape.kept_extent[0] : 1, rows = shape.reduced > 0 ? shape.reduced_extent[0] : 1;
  const int64_t outer = shape.outputs / columns, repeats = shape.count / rows;
  if (columns == 1 && rows <= 32 && shape.kept == 1 && repeats == 1) {  // such as the mean of every pixel's channels
    if (rows == 3) return add_short_runs<3>(in, rows, outer, sums);
    return add_short_runs<0>(in, rows, outer, sums);
  }
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t e = 0; e < repeats; ++e) add_slab(in + shape.of_output(o, inner_kept) + shape.of_element(e, 1), rows, columns, sums + o * columns);
}

}  // namespace reduce_detail

// The sums of a sample, one for each output.
inline std::vector<double> sums_of_sample(const Reduction& shape, DType dtype, const void* in) {
  std::vector<double> sums(shape.outputs);
  if (shape.outputs == 0 || shape.count == 0) return sums;
  for_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    reduce_detail::add_sample(shape, static_cast<const T*>(in), sums.data());
  });
  return sums;
}

}  // namespace ndd
