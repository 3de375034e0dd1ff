// SPDX-License-Identifier: Apache-2.0
// CPU side of the reductions. Elements are folded into lanes side by side, whatever dimension they come from: of many rows each column has a lane, a
// single long row is read as many short ones, and lanes of one output are folded at the end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "ndd/reduce.h"
#include "ndd/simd.h"

namespace ndd {
namespace reduce {

constexpr int64_t kLanes = 1024;
constexpr int64_t kShortRun = 32, kWhole = 64;

// How elements of type T are folded. Total: what a lane holds. Partial: a narrower type that holds `rows` elements, of which more fit in a register;
// 0 rows where there is none.

// Sums. `exact` ones are of integers modulo 2^64; for a mean, 64-bit integers become doubles instead, which do not overflow.
template <class T, bool exact>
struct Add {
  static constexpr bool centred = false;
  using Total = std::conditional_t<is_floating<T> || (sizeof(T) == 8 && !exact), double, std::conditional_t<exact, uint64_t, int64_t>>;
  using Partial = std::conditional_t<sizeof(T) == 1, std::conditional_t<std::is_signed_v<T>, int16_t, uint16_t>,
                                     std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>>;
  static constexpr int64_t rows = is_floating<T> ? 0 : sizeof(T) == 1 ? 255 : sizeof(T) == 2 ? 65535 : 0;
  static constexpr Total identity{};
  template <class Lane>
  static NDD_HD Lane take(Lane lane, T value, double) {
    return static_cast<Lane>(lane + widened<Lane>(value));
  }
  static NDD_HD Total merge(Total a, Total b) { return a + b; }
};

// Sums of squares: whole for up to 16 bits, else in double.
template <class T>
struct AddSquare {
  static constexpr bool centred = false;
  static constexpr bool whole = !is_floating<T> && sizeof(T) <= 2;
  using Total = std::conditional_t<whole, int64_t, double>;
  using Partial = uint32_t;
  static constexpr int64_t rows = whole && sizeof(T) == 1 ? 65535 : 0;
  static constexpr Total identity{};
  template <class Lane>
  static NDD_HD Lane take(Lane lane, T value, double) {
    const Lane v = widened<Lane>(value);
    return static_cast<Lane>(lane + v * v);
  }
  static NDD_HD Total merge(Total a, Total b) { return a + b; }
};

// Sums of squared distances from a number for each output.
template <class T>
struct AddSquaredDistance {
  static constexpr bool centred = true;
  using Total = double;
  using Partial = double;
  static constexpr int64_t rows = 0;
  static constexpr Total identity{};
  static NDD_HD double take(double lane, T value, double centre) {
    const double distance = widened<double>(value) - centre;
    return lane + distance * distance;
  }
  static NDD_HD double merge(double a, double b) { return a + b; }
};

// The smallest or largest, past NaN.
template <class T, bool maximum>
struct Extreme {
  static constexpr bool centred = false;
  using Total = std::conditional_t<is_half<T>, float, T>;
  using Partial = Total;
  using Limits = std::numeric_limits<Total>;
  static constexpr int64_t rows = 0;
  static constexpr Total identity =
      Limits::has_infinity ? (maximum ? -Limits::infinity() : Limits::infinity()) : (maximum ? Limits::lowest() : Limits::max());
  static NDD_HD Total take(Total lane, T value, double) { return merge(lane, static_cast<Total>(value)); }
  static NDD_HD Total merge(Total a, Total b) { return (maximum ? b > a : b < a) ? b : a; }
};

// Folds `count` rows of `width` elements that lie `stride` apart into the lanes of their columns. `centres` has a number for each lane where the fold
// takes one.
template <template <class> class Fold, class T>
void fold_rows(const T* rows, int64_t count, int64_t stride, int64_t width, const double* centres, typename Fold<T>::Total* lanes) {
  using F = Fold<T>;
  with_simd([&]() NDD_ALWAYS_INLINE {
    typename F::Total* __restrict totals = lanes;
    const double* __restrict centre = centres;
    const int64_t n = width;
    if constexpr (F::rows > 0) {
      using Partial = typename F::Partial;
      alignas(64) Partial partial[kLanes];
      for (int64_t begin = 0; begin < count; begin += F::rows) {
        for (int64_t j = 0; j < n; ++j) partial[j] = 0;
        const int64_t end = std::min(begin + F::rows, count);
        int64_t r = begin;
        for (; r + 4 <= end; r += 4) {
          const T *__restrict a = rows + r * stride, *__restrict b = a + stride, *__restrict c = b + stride, *__restrict d = c + stride;
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
      for (; r + 4 <= count; r += 4) {  // a lane is loaded and stored once for four elements
        const T *__restrict a = rows + r * stride, *__restrict b = a + stride, *__restrict c = b + stride, *__restrict d = c + stride;
        for (int64_t j = 0; j < n; ++j) {
          const double from = F::centred ? centre[j] : 0.0;
          totals[j] = F::take(F::take(F::take(F::take(totals[j], a[j], from), b[j], from), c[j], from), d[j], from);
        }
      }
      for (; r < count; ++r) {
        const T* __restrict row = rows + r * stride;
        for (int64_t j = 0; j < n; ++j) totals[j] = F::take(totals[j], row[j], F::centred ? centre[j] : 0.0);
      }
    }
  });
}

// Total k of the lanes is that of `group` neighbours.
template <class F>
void fold_groups(typename F::Total* lanes, int64_t totals, int64_t group) {
  for (int64_t k = 0; k < totals; ++k) {
    typename F::Total total = lanes[k * group];
    for (int64_t r = 1; r < group; ++r) total = F::merge(total, lanes[k * group + r]);
    lanes[k] = total;
  }
}

// Folds `rows` rows of `columns` lanes into the first one, halving them.
template <class F>
void fold_lanes(typename F::Total* lanes, int64_t rows, int64_t columns) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    for (int64_t left = rows; left > 1;) {
      const int64_t keep = (left + 1) / 2, n = (left - keep) * columns;
      typename F::Total* __restrict to = lanes;
      const typename F::Total* __restrict from = lanes + keep * columns;
      for (int64_t j = 0; j < n; ++j) to[j] = F::merge(to[j], from[j]);
      left = keep;
    }
  });
}

// Outputs of a few neighbouring elements each, such as the mean of every pixel's channels; `known` of them where that is not 0.
template <template <class> class Fold, int known, class T, class Centre, class Store>
void fold_short_runs(const T* runs, int64_t length, int64_t outputs, Centre centre, Store store) {
  using F = Fold<T>;
  typename F::Total totals[kLanes];
  double centres[kLanes];
  for (int64_t first = 0; first < outputs; first += kLanes) {
    const int64_t part = std::min(kLanes, outputs - first);
    for (int64_t o = 0; F::centred && o < part; ++o) centres[o] = centre(first + o);
    with_simd([&]() NDD_ALWAYS_INLINE {
      const int64_t n = known ? known : length, count = part;
      const T* __restrict run = runs + first * n;
      typename F::Total* __restrict made = totals;
      for (int64_t o = 0; o < count; ++o) {
        typename F::Total total = F::identity;
        for (int64_t r = 0; r < n; ++r) total = F::take(total, run[o * n + r], F::centred ? centres[o] : 0.0);
        made[o] = total;
      }
    });
    store(first, part, totals);
  }
}

// Folds a sample and hands over its totals: store(first output, how many, totals). centre(output) is the number that the fold takes for an output.
template <template <class> class Fold, class T, class Centre, class Store>
void fold_sample(const Reduction& shape, const T* in, Centre centre, Store store) {
  using F = Fold<T>;
  alignas(64) typename F::Total lanes[kLanes];
  double centres[kLanes];
  if (shape.outputs == 0) return;
  if (shape.count == 0) {
    std::fill_n(lanes, kLanes, F::identity);
    for (int64_t first = 0; first < shape.outputs; first += kLanes) store(first, std::min(kLanes, shape.outputs - first), lanes);
    return;
  }
  const bool inner_kept = shape.kept > 0 && shape.kept_stride[0] == 1;
  const int64_t rows = shape.reduced > 0 ? shape.reduced_extent[0] : 1;
  if (!inner_kept && shape.kept > 0 && rows <= kShortRun) {
    if (shape.reduced <= 1 && shape.kept == 1) {
      if (rows == 3) return fold_short_runs<Fold, 3>(in, rows, shape.outputs, centre, store);
      if (rows == 1) return fold_short_runs<Fold, 1>(in, rows, shape.outputs, centre, store);
      return fold_short_runs<Fold, 0>(in, rows, shape.outputs, centre, store);
    }
    if (shape.reduced > 1) {  // such as rows and channels: a lane for every element of a row, then its channels
      const int64_t columns = shape.kept_extent[0], together = kLanes / rows, outer = shape.outputs / columns;
      const int64_t count = shape.reduced_extent[1], repeats = shape.count / rows / count;
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t first = 0; first < columns; first += together) {
          const int64_t part = std::min(together, columns - first);
          std::fill_n(lanes, part * rows, F::identity);
          for (int64_t k = 0; F::centred && k < part * rows; ++k) centres[k] = centre(o * columns + first + k / rows);
          const T* start = in + shape.of_output(o, 1) + first * rows;
          for (int64_t e = 0; e < repeats; ++e)
            fold_rows<Fold>(start + shape.of_element(e, 2), count, shape.reduced_stride[1], part * rows, centres, lanes);
          fold_groups<F>(lanes, part, rows);
          store(o * columns + first, part, lanes);
        }
      return;
    }
  }
  const int64_t columns = inner_kept ? shape.kept_extent[0] : 1, outer = shape.outputs / columns, repeats = shape.count / rows;
  // Narrow slabs of `rows` by `columns` elements are read as wider ones: few lanes for a short run, since they have to be folded, and not more than
  // keep the memory's reads in one place.
  const int64_t budget = std::clamp<int64_t>(rows * columns / 8, 64, 256);
  // A multiple of 64 lanes, which fills registers of bytes: the sums of a VGA image's channels take 26 us in 255 lanes, 12 in 192. Of wider elements in
  // short runs it only leaves more rows over: the sums of every row's channels in float32 take 270 us in 240 lanes, 400 in 192.
  const auto whole = [=](int64_t repeated) {
    return repeated > kWhole && (sizeof(T) == 1 || rows >= kWhole * repeated) ? repeated / kWhole * kWhole : repeated;
  };
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t first = 0; first < columns; first += kLanes) {
      const int64_t part = std::min(kLanes, columns - first), together = part < columns ? 1 : whole(std::clamp<int64_t>(budget / columns, 1, rows));
      const int64_t width = part * together, rest = rows % together;
      std::fill_n(lanes, width, F::identity);
      for (int64_t j = 0; F::centred && j < width; ++j) centres[j] = j < part ? centre(o * columns + first + j) : centres[j - part];
      for (int64_t e = 0; e < repeats; ++e) {
        const T* slab = in + shape.of_output(o, inner_kept) + shape.of_element(e, 1);
        fold_rows<Fold>(slab + first, rows / together, columns * together, width, centres, lanes);
        if (rest) fold_rows<Fold>(slab + (rows - rest) * columns, 1, 0, rest * columns, centres, lanes);
      }
      fold_lanes<F>(lanes, together, part);
      store(o * columns + first, part, lanes);
    }
}

// Totals as elements of the output.
template <class Total>
void store_totals(const Finisher& finisher, const Total* totals, int64_t n, bool is_signed, void* out, DType dtype, int64_t first) {
  for_dtype(dtype, [&](auto tag) {
    with_simd([&]() NDD_ALWAYS_INLINE {
      using Out = typename decltype(tag)::type;
      const Total* __restrict from = totals;
      Out* __restrict to = static_cast<Out*>(out) + first;
      const Finisher finish = finisher;
      const int64_t count = n;
      for (int64_t k = 0; k < count; ++k) {
        if constexpr (std::is_same_v<Total, uint64_t>) to[k] = finish.whole<Out>(from[k], is_signed);
        else to[k] = finish.operator()<Out>(static_cast<double>(from[k]));
      }
    });
  });
}

// Folds one sample into an output of any type.
template <template <class> class Fold, class Centre>
void reduce_sample(const Reduction& shape, const Finisher& finisher, const void* in, DType in_dtype, Centre centre, void* out, DType out_dtype) {
  for_dtype(in_dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    fold_sample<Fold>(shape, static_cast<const T*>(in), centre, [&](int64_t first, int64_t n, const typename Fold<T>::Total* totals) {
      store_totals(finisher, totals, n, is_signed_dtype(in_dtype), out, out_dtype, first);
    });
  });
}

}  // namespace reduce
}  // namespace ndd
