// SPDX-License-Identifier: Apache-2.0
// The loops of the reductions on the CPU. Elements are folded into adjacent lanes, whichever dimension they come from, so the inner loop always
// vectorizes: many rows have one lane per column, a single long row is read as many short ones, and the lanes of one output are folded at the end.
//
// The loops are compiled for uint8, int16, uint16, int32, int64, float and double. Other elements are converted to one of these, row by row in the L1
// cache: loops for all 13 types would make the library take a minute longer to compile. Squares of wider integers are computed in double.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "ndd/reduce/cpu.h"
#include "ndd/reduce/reduce.h"
#include "ndd/simd.h"

namespace ndd::reduce {

constexpr int64_t kLanes = 1024;
constexpr int64_t kShortRun = 32, kWhole = 64;

using StageElements = void (*)(const void* from, int64_t n, void* to);

// How elements of type T are folded. Total: the type of a lane. Partial: a narrower type that can hold the fold of `rows` elements without overflow,
// so that more lanes fit in a register; 0 rows if there is none. Merged: how totals are combined.

// Shared by all sums, so merging is compiled once per type of totals.
template <class T>
struct Plus {
  using Total = T;
  static NDD_HD Total merge(Total a, Total b) { return a + b; }
};

// Sums. `exact` sums of integers are modulo 2^64; for a mean, 64-bit integers are added as doubles instead, which do not overflow.
template <class T, bool exact>
struct Add {
  static constexpr bool centered = false;
  using Total = std::conditional_t<is_floating<T> || (sizeof(T) == 8 && !exact), double, std::conditional_t<exact, uint64_t, int64_t>>;
  using Partial = std::conditional_t<sizeof(T) == 1, uint16_t, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>>;
  static constexpr int64_t rows = sizeof(T) == 1 ? 255 : sizeof(T) == 2 ? 65535 : 0;
  static constexpr Total identity{};
  template <class Lane>
  static NDD_HD Lane take(Lane lane, T value, double) {
    return static_cast<Lane>(lane + widened<Lane>(value));
  }
  using Merged = Plus<Total>;
};

// Sums of squares: integers for elements of up to 16 bits, otherwise doubles.
template <class T>
struct AddSquare {
  static constexpr bool centered = false;
  using Total = std::conditional_t<sizeof(T) <= 2, int64_t, double>;
  using Partial = uint32_t;
  static constexpr int64_t rows = sizeof(T) == 1 ? 65535 : 0;
  static constexpr Total identity{};
  template <class Lane>
  static NDD_HD Lane take(Lane lane, T value, double) {
    const Lane v = widened<Lane>(value);
    return static_cast<Lane>(lane + v * v);
  }
  using Merged = Plus<Total>;
};

// Sums of squared distances from a center per output.
template <class T>
struct AddSquaredDistance {
  static constexpr bool centered = true;
  using Total = double;
  using Partial = double;
  static constexpr int64_t rows = 0;
  static constexpr Total identity{};
  static NDD_HD double take(double lane, T value, double center) {
    const double distance = widened<double>(value) - center;
    return lane + distance * distance;
  }
  using Merged = Plus<Total>;
};

// The minimum or maximum. Comparisons with NaN are false, so NaN is ignored.
template <class T, bool maximum>
struct Extreme {
  static constexpr bool centered = false;
  using Total = T;
  using Partial = Total;
  using Merged = Extreme;
  using Limits = std::numeric_limits<Total>;
  static constexpr int64_t rows = 0;
  static constexpr Total identity =
      Limits::has_infinity ? (maximum ? -Limits::infinity() : Limits::infinity()) : (maximum ? Limits::lowest() : Limits::max());
  static NDD_HD Total take(Total lane, T value, double) { return merge(lane, value); }
  static NDD_HD Total merge(Total a, Total b) { return (maximum ? b > a : b < a) ? b : a; }
};

// Folds `count` rows of `width` elements, `stride` apart, into the lanes of their columns. `centers` has an entry per lane if the fold uses one.
template <class F, class T>
void fold_rows(const T* rows, int64_t count, int64_t stride, int64_t width, const double* centers, typename F::Total* lanes) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    typename F::Total* __restrict totals = lanes;
    const double* __restrict center = centers;
    const int64_t n = width;
    if constexpr (F::rows > 0) {
      using Partial = typename F::Partial;
      alignas(64) Partial partial[kLanes];
      for (int64_t begin = 0; begin < count; begin += F::rows) {
        for (int64_t j = 0; j < n; ++j) partial[j] = 0;
        const int64_t end = std::min(begin + F::rows, count);
        int64_t r = begin;
        for (; r + 4 <= end; r += 4) {
          const T* __restrict a = rows + r * stride, * __restrict b = a + stride, * __restrict c = b + stride, * __restrict d = c + stride;
          for (int64_t j = 0; j < n; ++j) partial[j] = F::take(F::take(F::take(F::take(partial[j], a[j], 0.0), b[j], 0.0), c[j], 0.0), d[j], 0.0);
        }
        for (; r < end; ++r) {
          const T* __restrict row = rows + r * stride;
          for (int64_t j = 0; j < n; ++j) partial[j] = F::take(partial[j], row[j], 0.0);
        }
        for (int64_t j = 0; j < n; ++j) totals[j] = static_cast<typename F::Total>(totals[j] + static_cast<typename F::Total>(partial[j]));
      }
    } else {
      int64_t r = 0;
      for (; r + 4 <= count; r += 4) {  // loads and stores each lane once per four elements
        const T* __restrict a = rows + r * stride, * __restrict b = a + stride, * __restrict c = b + stride, * __restrict d = c + stride;
        for (int64_t j = 0; j < n; ++j) {
          const double from = F::centered ? center[j] : 0.0;
          totals[j] = F::take(F::take(F::take(F::take(totals[j], a[j], from), b[j], from), c[j], from), d[j], from);
        }
      }
      for (; r < count; ++r) {
        const T* __restrict row = rows + r * stride;
        for (int64_t j = 0; j < n; ++j) totals[j] = F::take(totals[j], row[j], F::centered ? center[j] : 0.0);
      }
    }
  });
}

// The elements of a sample: of type T, or converted to T row by row.
template <class T>
struct Elements {
  const char* data;
  int64_t item;  // bytes per element
  StageElements stage;  // null if the elements are of type T

  Elements operator+(int64_t elements) const { return {data + elements * item, item, stage}; }
};

constexpr int64_t kStaged = 4 * kLanes;

template <class F, class T>
void fold_rows(const Elements<T>& rows, int64_t count, int64_t stride, int64_t width, const double* centers, typename F::Total* lanes) {
  if (!rows.stage) return fold_rows<F>(reinterpret_cast<const T*>(rows.data), count, stride, width, centers, lanes);
  alignas(64) T staged[kStaged];
  const int64_t together = kStaged / width;
  for (int64_t r = 0; r < count; r += together) {
    const int64_t n = std::min(together, count - r);
    if (stride == width) rows.stage((rows + r * stride).data, n * width, staged);
    else
      for (int64_t k = 0; k < n; ++k) rows.stage((rows + (r + k) * stride).data, width, staged + k * width);
    fold_rows<F>(staged, n, width, width, centers, lanes);
  }
}

// Combines each `group` of neighboring lanes into one total.
template <class Merged>
void fold_groups(typename Merged::Total* lanes, int64_t totals, int64_t group) {
  for (int64_t k = 0; k < totals; ++k) {
    typename Merged::Total total = lanes[k * group];
    for (int64_t r = 1; r < group; ++r) total = Merged::merge(total, lanes[k * group + r]);
    lanes[k] = total;
  }
}

// Folds `rows` rows of `columns` lanes into the first row, by halving. The order depends on the shape only, so results are reproducible.
template <class Merged>
void fold_lanes(typename Merged::Total* lanes, int64_t rows, int64_t columns) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    for (int64_t left = rows; left > 1;) {
      const int64_t keep = (left + 1) / 2, n = (left - keep) * columns;
      typename Merged::Total* __restrict to = lanes;
      const typename Merged::Total* __restrict from = lanes + keep * columns;
      for (int64_t j = 0; j < n; ++j) to[j] = Merged::merge(to[j], from[j]);
      left = keep;
    }
  });
}

// Outputs of a few neighboring elements each, such as the mean of every pixel's channels. `known` is their number if fixed at compile time, otherwise
// 0.
template <class F, int known, class T>
void fold_short_runs(const Elements<T>& runs, int64_t length, int64_t outputs, Centers center, const TakeTotals& take) {
  typename F::Total totals[kLanes];
  double centers[kLanes];
  alignas(64) T staged[kStaged];
  const int64_t step = runs.stage ? std::min(kLanes, kStaged / length) : kLanes;
  for (int64_t first = 0; first < outputs; first += step) {
    const int64_t part = std::min(step, outputs - first);
    for (int64_t o = 0; F::centered && o < part; ++o) centers[o] = center(first + o);
    const Elements<T> from = runs + first * length;
    if (runs.stage) runs.stage(from.data, part * length, staged);
    const T* elements = runs.stage ? staged : reinterpret_cast<const T*>(from.data);
    with_simd([&]() NDD_ALWAYS_INLINE {
      const int64_t n = known ? known : length, count = part;
      const T* __restrict run = elements;
      typename F::Total* __restrict results = totals;
      for (int64_t o = 0; o < count; ++o) {
        // If the narrow type can hold kShortRun elements, it is faster: the channel means of 16 VGA images take 0.94 ms in 64 bits and 0.73 in 16.
        std::conditional_t<(F::rows >= kShortRun), typename F::Partial, typename F::Total> total = F::identity;
        for (int64_t r = 0; r < n; ++r) total = F::take(total, run[o * n + r], F::centered ? centers[o] : 0.0);
        results[o] = static_cast<typename F::Total>(total);
      }
    });
    take(first, part, totals);
  }
}

// Folds a sample and hands over its totals.
// Three orders of dimensions: runs of a few adjacent reduced elements (fold_short_runs); such runs with further reduced axes around
// them, a lane for each element of a row; and everything else, in slabs of `rows` by `columns` elements whose columns are lanes.
template <class F, class T>
void fold_elements(const Reduction& shape, const Elements<T>& in, Centers center, const TakeTotals& take) {
  alignas(64) typename F::Total lanes[kLanes];
  double centers[kLanes];
  if (shape.outputs == 0) return;
  if (shape.count == 0) {
    std::fill_n(lanes, kLanes, F::identity);
    for (int64_t first = 0; first < shape.outputs; first += kLanes) take(first, std::min(kLanes, shape.outputs - first), lanes);
    return;
  }
  const bool inner_kept = shape.kept > 0 && shape.kept_stride[0] == 1;
  const int64_t rows = shape.reduced > 0 ? shape.reduced_extent[0] : 1;
  if (!inner_kept && shape.kept > 0 && rows <= kShortRun) {
    if (shape.reduced <= 1 && shape.kept == 1) {
      if (rows == 3) return fold_short_runs<F, 3>(in, rows, shape.outputs, center, take);
      return fold_short_runs<F, 0>(in, rows, shape.outputs, center, take);
    }
    if (shape.reduced > 1) {  // e.g. rows and channels: one lane per element of a row, then its channels
      const int64_t columns = shape.kept_extent[0], together = kLanes / rows, outer = shape.outputs / columns;
      const int64_t count = shape.reduced_extent[1], repeats = shape.count / rows / count;
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t first = 0; first < columns; first += together) {
          const int64_t part = std::min(together, columns - first);
          std::fill_n(lanes, part * rows, F::identity);
          for (int64_t k = 0; F::centered && k < part * rows; ++k) centers[k] = center(o * columns + first + k / rows);
          const Elements<T> start = in + shape.of_output(o, 1) + first * rows;
          for (int64_t e = 0; e < repeats; ++e)
            fold_rows<F>(start + shape.of_element(e, 2), count, shape.reduced_stride[1], part * rows, centers, lanes);
          fold_groups<typename F::Merged>(lanes, part, rows);
          take(o * columns + first, part, lanes);
        }
      return;
    }
  }
  const int64_t columns = inner_kept ? shape.kept_extent[0] : 1, outer = shape.outputs / columns, repeats = shape.count / rows;
  // Narrow slabs of `rows` by `columns` elements are read as wider ones. A short run gets few lanes, because lanes have to be folded in the end; the
  // upper limit keeps the reads close together in memory.
  const int64_t budget = std::clamp<int64_t>(rows * columns / 8, 64, 256);
  // A multiple of 64 lanes fills registers of bytes: the channel sums of a VGA image take 26 us with 255 lanes and 12 with 192. For wider elements in
  // short runs it only leaves more rows over: the channel sums of every row in float32 take 270 us with 240 lanes and 400 with 192.
  const auto whole = [=](int64_t repeated) {
    return repeated > kWhole && (sizeof(T) == 1 || rows >= kWhole * repeated) ? repeated / kWhole * kWhole : repeated;
  };
  // Outputs with few columns are handed over together: one call per three channels of a row would take 5 % of the time of a mean over the width.
  typename F::Total held[kLanes];
  int64_t held_from = 0, held_count = 0;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t first = 0; first < columns; first += kLanes) {
      const int64_t part = std::min(kLanes, columns - first), together = part < columns ? 1 : whole(std::clamp<int64_t>(budget / columns, 1, rows));
      const int64_t width = part * together, rest = rows % together;
      std::fill_n(lanes, width, F::identity);
      for (int64_t j = 0; F::centered && j < width; ++j) centers[j] = j < part ? center(o * columns + first + j) : centers[j - part];
      for (int64_t e = 0; e < repeats; ++e) {
        const Elements<T> slab = in + shape.of_output(o, inner_kept) + shape.of_element(e, 1);
        fold_rows<F>(slab + first, rows / together, columns * together, width, centers, lanes);
        if (rest) fold_rows<F>(slab + (rows - rest) * columns, 1, 0, rest * columns, centers, lanes);
      }
      fold_lanes<typename F::Merged>(lanes, together, part);
      if (held_count + part > kLanes) {
        take(held_from, held_count, held);
        held_from += held_count;
        held_count = 0;
      }
      std::copy_n(lanes, part, held + held_count);
      held_count += part;
    }
  take(held_from, held_count, held);
}

// Calls f(TypeTag<T>{}) for the loop type `lane`.
template <class F>
void for_lane_dtype(DType lane, F f) {
  switch (lane) {
    case DType::uint8: return f(TypeTag<uint8_t>{});
    case DType::int16: return f(TypeTag<int16_t>{});
    case DType::uint16: return f(TypeTag<uint16_t>{});
    case DType::int32: return f(TypeTag<int32_t>{});
    case DType::int64: return f(TypeTag<int64_t>{});
    case DType::float32: return f(TypeTag<float>{});
    default: return f(TypeTag<double>{});
  }
}

// The input of a loop of type `lane`: `stage` converts the elements, or is null if they have that type already.
struct Input {
  const void* data;
  DType lane;
  int64_t item;
  StageElements stage;
};

// `wide`: also compiled for 32- and 64-bit integers.
template <template <class> class Folds, bool wide = true>
void fold_input(const Reduction& shape, const Input& in, Centers centers, const TakeTotals& take) {
  for_lane_dtype(in.lane, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (wide || is_floating<T> || sizeof(T) <= 2)
      fold_elements<Folds<T>>(shape, Elements<T>{static_cast<const char*>(in.data), in.item, in.stage}, centers, take);
  });
}

// Each is compiled in a file of its own, to compile in parallel.
void fold_sums(bool exact, const Reduction& shape, const Input& in, const TakeTotals& take);
void fold_squares(const Reduction& shape, const Input& in, const TakeTotals& take);
void fold_distances(const Reduction& shape, const Input& in, Centers centers, const TakeTotals& take);
void fold_extremes(bool maximum, const Reduction& shape, const Input& in, const TakeTotals& take);

}  // namespace ndd::reduce
