// SPDX-License-Identifier: Apache-2.0
// The arguments of median_blur as both backends read them, and networks that sort.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "ndd/hd.h"
#include "ndd/stencil/stencil.h"

namespace ndd::median_blur {

struct Arguments {
  AxisArgs<int64_t> window_size;  // width, then height
  SpatialAxes axes;

  Reach reach(int64_t i, int64_t frame, int64_t axis) const {
    const int64_t size = window_size(i, frame, axis);
    if (size < 1 || size > 1024) fail("experimental.median_blur: window_size must be from 1 to 1024, got ", size, " for sample ", i);
    // A window of even size has one element more before the pixel than behind it.
    return {static_cast<int32_t>(size), static_cast<int32_t>(size / 2)};
  }
};

// Batcher's merge exchange (Knuth, The Art of Computer Programming 3, algorithm 5.2.2M): the pairs of n numbers that are put in order, one after the other.
// The compiler removes comparisons whose results are unused, such as all but those that lead to the median.
template <int n>
struct SortingNetwork {
  struct Pair {
    int lo, hi;
  };

  template <class Visit>
  static constexpr void visit(Visit visit) {
    int top = 1;
    while (2 * top < n) top *= 2;
    for (int p = top; p > 0; p /= 2) {
      // Steps M2 to M5 of the algorithm, with its names.
      for (int q = top, r = 0, d = p;; d = q - p, q /= 2, r = p) {
        for (int i = 0; i + d < n; ++i)
          if ((i & p) == r) visit(i, i + d);
        if (q == p) break;
      }
    }
  }

  static constexpr int count() {
    int pairs = 0;
    visit([&](int, int) { ++pairs; });
    return pairs;
  }

  static constexpr auto make() {
    std::array<Pair, count()> pairs{};
    size_t k = 0;
    visit([&](int lo, int hi) { pairs[k++] = {lo, hi}; });
    return pairs;
  }
};

template <class K>
NDD_HD void put_in_order(K& a, K& b) {
  const K lo = a < b ? a : b, hi = a < b ? b : a;
  a = lo;
  b = hi;
}

template <int n, class K, size_t... I>
NDD_HD void sort_with(K* v, std::index_sequence<I...>) {
  constexpr auto pairs = SortingNetwork<n>::make();
  (put_in_order(v[pairs[I].lo], v[pairs[I].hi]), ...);
}

template <int n, class K>
NDD_HD void sort(K* v) {
  sort_with<n>(v, std::make_index_sequence<SortingNetwork<n>::count()>{});
}

template <class K>
NDD_HD K smaller(K a, K b) {
  return a < b ? a : b;
}
template <class K>
NDD_HD K larger(K a, K b) {
  return a < b ? b : a;
}
template <class K>
NDD_HD K middle(K a, K b, K c) {
  return larger(smaller(a, b), smaller(larger(a, b), c));
}

}  // namespace ndd::median_blur
