// SPDX-License-Identifier: Apache-2.0
// Warp driver: for every output pixel, a map returns the point it comes from, and the input is sampled there.
//
// A map is a functor `Point<D> operator()(const Point<D>& to) const` on pixel-corner coordinates, x first (the center of pixel i is i + 0.5). This
// header holds what both backends share; cpu.h and warp.cuh hold their loops, and driver.h is the interface for operators.
#pragma once

#include <cmath>
#include <cstdint>

#include "ndd/border.h"
#include "ndd/hd.h"
#include "ndd/resample/resample.h"

namespace ndd {

enum class Interp : int32_t { nearest, linear, cubic, lanczos3, copy };  // the first values equal ndd's InterpType; copy ignores the map

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
      // From the last axis on, with every step rounded: the same order on the CPU and the GPU.
      for (int k = D; k-- > 0;) from.at[r] = mul_then_add(m[r][k], to.at[k], from.at[r]);
    }
    return from;
  }
};

// The source: a contiguous image (D = 2) or volume (D = 3) with interleaved channels. Sizes and strides (in elements) are x first.
template <int D>
struct WarpSource {
  const void* data;
  int64_t size[D], stride[D];
  int64_t channels;
  Border border;
  float fill;          // the value of a constant border,
  const float* fills;  // or, if not null, its value in each channel
  bool fades = false;  // for a constant border: see faded()

  NDD_HD float fill_of(int64_t channel) const { return fills ? fills[channel] : fill; }
};

// An image or volume to warp: output pixel `to` takes its value from map(to). `out` is contiguous and has `size` pixels, x first.
template <int D, class Map>
struct WarpItem {
  WarpSource<D> src;
  Map map;
  void* out;
  int64_t size[D];
  Interp interp;
};

// Offsets and pixel numbers have type Index: int32_t is for CUDA, where 64-bit arithmetic takes two to five times as many instructions.
namespace warp {

// Clamps a coordinate to a range that an int64 can hold. Further beyond the border than any filter reaches, constant and replicated borders no longer
// change. NaN becomes such a point as well.
template <class Index>
NDD_HD float limited(float p, Index size, Border border) {
  const bool periodic = border != Border::constant && border != Border::clamp;
  const float far = 1073741824.0f, least = periodic ? -far : -8.0f, most = periodic ? far : static_cast<float>(size) + 8.0f;
#ifdef __CUDA_ARCH__
  return fminf(fmaxf(p, least), most);
#else  // where fmin and fmax are function calls
  const float above = p > least ? p : least;
  return above < most ? above : most;
#endif
}

// The largest integer that does not exceed a clamped coordinate.
NDD_HD float whole_below(float p) {
#ifdef __CUDA_ARCH__
  return floorf(p);
#else  // a function call without SSE4.1
  const float whole = static_cast<float>(static_cast<int64_t>(p));
  return whole - (whole > p ? 1.0f : 0.0f);
#endif
}

// The element offset of the pixel that contains p; -1 where the fill value is visible.
template <class Index = int64_t, int D>
NDD_HD Index nearest_tap(const WarpSource<D>& src, const Point<D>& p) {
  Index offset = 0;
  for (int d = 0; d < D; ++d) {
    const float low = whole_below(limited(p.at[d], static_cast<Index>(src.size[d]), src.border));
    const Index i = border_index_of(src.border, static_cast<Index>(low), static_cast<Index>(src.size[d]));
    if (i < 0) return -1;
    offset += i * static_cast<Index>(src.stride[d]);
  }
  return offset;
}

template <int D, class Index = int64_t>
struct LinearTaps {
  Index offset[1 << D];  // -1 for the fill value
  float weight[1 << D];
};

template <class Index = int64_t, int D>
NDD_HD LinearTaps<D, Index> linear_taps(const WarpSource<D>& src, const Point<D>& p) {
  LinearTaps<D, Index> taps;
  taps.offset[0] = 0;
  taps.weight[0] = 1.0f;
  for (int d = 0; d < D; ++d) {
    const float c = limited(p.at[d] - 0.5f, static_cast<Index>(src.size[d]), src.border);
    const float low = whole_below(c), right = c - low;
    Index at[2] = {static_cast<Index>(low), static_cast<Index>(low) + 1};
    for (Index& i : at) {
      i = border_index_of(src.border, i, static_cast<Index>(src.size[d]));
      i = i < 0 ? -1 : i * static_cast<Index>(src.stride[d]);
    }
    // Each axis doubles the taps: bit d of a tap's index selects its neighbor along axis d.
    for (int t = 0; t < 1 << d; ++t) {
      const Index offset = taps.offset[t];
      const float weight = taps.weight[t];
      taps.offset[t] = offset < 0 || at[0] < 0 ? -1 : offset + at[0];
      taps.offset[t + (1 << d)] = offset < 0 || at[1] < 0 ? -1 : offset + at[1];
      taps.weight[t] = weight * (1.0f - right);
      taps.weight[t + (1 << d)] = weight * right;
    }
  }
  return taps;
}

template <int D, class Index, class Load>  // Load: element offset -> float
NDD_HD float blend(const LinearTaps<D, Index>& taps, int64_t channel, float fill, Load load) {
  float sum = 0.0f;
  for (int t = 0; t < 1 << D; ++t) sum += taps.weight[t] * (taps.offset[t] < 0 ? fill : load(taps.offset[t] + channel));
  return sum;
}

// torchvision's border for linear interpolation: the image, on black, and its mask are warped in the same way, and then the fill value shows through
// the mask. `value` is the sum of the weighted neighbors in the image, `inside` the sum of their weights.
NDD_HD float faded(float value, float inside, float fill) { return fmaf(value - fill, inside, fill); }

// The number of neighbors that a filter mixes along an axis, and how many of them precede the one that contains the point.
template <Interp interp>
inline constexpr int kTaps = interp == Interp::nearest  ? 1
                             : interp == Interp::linear ? 2
                             : interp == Interp::cubic  ? 4
                                                        : 6;
template <Interp interp>
inline constexpr int kLead = (kTaps<interp> - 1) / 2;

// The weights of the neighbors of a point that lies `right` (0 to 1) beyond the center of neighbor kLead. The cubic filter is OpenCV's, with a =
// -0.75.
template <Interp interp>
NDD_HD void wide_weights(float right, float* weights) {
  if (interp == Interp::cubic) {
    const float a = -0.75f, far = right + 1, left = 1 - right;
    weights[0] = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a;
    weights[1] = ((a + 2) * right - (a + 3)) * right * right + 1;
    weights[2] = ((a + 2) * left - (a + 3)) * left * left + 1;
    weights[3] = 1 - weights[0] - weights[1] - weights[2];
    return;
  }
  float sum = 0;
  for (int k = 0; k < kTaps<interp>; ++k) sum += weights[k] = kernel_knot(Filter::lanczos3, fabsf(right + static_cast<float>(kLead<interp> - k)));
  for (int k = 0; k < kTaps<interp>; ++k) weights[k] /= sum;
}

// The neighbors of a point in an image.
template <Interp interp, class Index = int64_t>
struct WideTaps {
  static constexpr int K = kTaps<interp>;
  Index offset[2][K];  // -1 for the fill value
  float weight[2][K];
};

template <Interp interp, class Index = int64_t>
NDD_HD WideTaps<interp, Index> wide_taps(const WarpSource<2>& src, const Point<2>& p) {
  WideTaps<interp, Index> taps;
  for (int d = 0; d < 2; ++d) {
    const float c = limited(p.at[d] - 0.5f, static_cast<Index>(src.size[d]), src.border), low = whole_below(c);
    wide_weights<interp>(c - low, taps.weight[d]);
    for (int k = 0; k < taps.K; ++k) {
      const Index i = border_index_of<Index>(src.border, static_cast<Index>(low) + k - kLead<interp>, static_cast<Index>(src.size[d]));
      taps.offset[d][k] = i < 0 ? -1 : i * static_cast<Index>(src.stride[d]);
    }
  }
  return taps;
}

template <Interp interp, class Index, class Load>
NDD_HD float blend(const WideTaps<interp, Index>& taps, int64_t channel, float fill, Load load) {
  float sum = 0.0f;
  for (int r = 0; r < taps.K; ++r) {
    // Rows first, then their sum: the order of the vectorized paths.
    float row = 0.0f;
    for (int k = 0; k < taps.K; ++k) {
      const bool outside = taps.offset[0][k] < 0 || taps.offset[1][r] < 0;
      row += taps.weight[0][k] * (outside ? fill : load(taps.offset[0][k] + taps.offset[1][r] + channel));
    }
    sum += taps.weight[1][r] * row;
  }
  return sum;
}

}  // namespace warp
}  // namespace ndd
