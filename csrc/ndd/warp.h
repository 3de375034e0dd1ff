// SPDX-License-Identifier: Apache-2.0
// Warp driver: every output pixel asks a map where it comes from, and the input is sampled there, nearest or linear.
//
// A map is a functor `Point<D> operator()(const Point<D>& to) const` on pixel-corner coordinates, x first (the centre of pixel i is i + 0.5).
// This header holds what both backends share; warp_cpu.h and warp.cuh hold their loops.
#pragma once

#include <cmath>
#include <cstdint>

#include "ndd/hd.h"

namespace ndd {

enum class Interp { nearest, linear };

template <int D>
struct Point {
  float at[D];
};

template <int D>
struct AffineMap {
  float m[D][D + 1];

  NDD_HD Point<D> operator()(const Point<D>& to) const {
    Point<D> from;
    for (int r = 0; r < D; ++r) {
      from.at[r] = m[r][D];
      for (int k = D; k-- > 0;) from.at[r] += m[r][k] * to.at[k];
    }
    return from;
  }
};

// What to sample: a contiguous image (D = 2) or volume (D = 3) with interleaved channels. Sizes and strides (in elements) are x first.
template <int D>
struct WarpSource {
  const void* data;
  int64_t size[D], stride[D];
  int64_t channels;
  bool clamp;  // repeat the border pixel instead of showing `fill`
  float fill;
};

// One image or volume to warp: output pixel `to` takes its value from map(to). `out` is contiguous, `size` pixels, x first.
template <int D, class Map>
struct WarpItem {
  WarpSource<D> src;
  Map map;
  void* out;
  int64_t size[D];
};

namespace warp {

// Element offset of the pixel that holds p; -1 where the fill value shows.
template <int D>
NDD_HD int64_t nearest_tap(const WarpSource<D>& src, const Point<D>& p) {
  int64_t offset = 0;
  for (int d = 0; d < D; ++d) {
    const float last = static_cast<float>(src.size[d] - 1);
    const float i = floorf(p.at[d]);
    if (!src.clamp && !(i >= 0.0f && i <= last)) return -1;
    offset += static_cast<int64_t>(fminf(fmaxf(i, 0.0f), last)) * src.stride[d];
  }
  return offset;
}

template <int D>
struct LinearTaps {
  int64_t offset[1 << D];  // -1: the fill value
  float weight[1 << D];
};

template <int D>
NDD_HD LinearTaps<D> linear_taps(const WarpSource<D>& src, const Point<D>& p) {
  LinearTaps<D> taps;
  taps.offset[0] = 0;
  taps.weight[0] = 1.0f;
  for (int d = 0; d < D; ++d) {
    const int64_t size = src.size[d];
    const float c = fminf(fmaxf(p.at[d] - 0.5f, -2.0f), static_cast<float>(size));  // a NaN becomes "outside"
    const float low = floorf(c), right = c - low;
    int64_t at[2] = {static_cast<int64_t>(low), static_cast<int64_t>(low) + 1};
    for (int64_t& i : at) {
      if (src.clamp) i = i < 0 ? 0 : i < size ? i : size - 1;
      i = i >= 0 && i < size ? i * src.stride[d] : -1;
    }
    for (int t = 0; t < 1 << d; ++t) {
      const int64_t offset = taps.offset[t];
      const float weight = taps.weight[t];
      taps.offset[t] = offset < 0 || at[0] < 0 ? -1 : offset + at[0];
      taps.offset[t + (1 << d)] = offset < 0 || at[1] < 0 ? -1 : offset + at[1];
      taps.weight[t] = weight * (1.0f - right);
      taps.weight[t + (1 << d)] = weight * right;
    }
  }
  return taps;
}

template <int D, class Load>  // Load: element offset -> float
NDD_HD float blend(const LinearTaps<D>& taps, int64_t channel, float fill, Load load) {
  float sum = 0.0f;
  for (int t = 0; t < 1 << D; ++t) sum += taps.weight[t] * (taps.offset[t] < 0 ? fill : load(taps.offset[t] + channel));
  return sum;
}

}  // namespace warp
}  // namespace ndd
