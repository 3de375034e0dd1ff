// SPDX-License-Identifier: Apache-2.0
// Separable resampling: where an output element lies in the source, and which source elements it mixes with which weights. Shared by the CPU and CUDA
// drivers, so both compute the same weights.
//
// A driver gets addresses and types for each sample, and three axes with their sizes, source regions, filters and rules (make_axis). On the CPU
// resample_cpu() chooses among u8.h, two_passes.cpp and passes of floats. On CUDA resize.cu chooses: nearest.cuh moves pixels, linear.cuh
// reduces without antialias, tile.cuh has two axes of any type, pass.cuh a single one through memory; byte_tile.cuh and float_tile.cuh have
// torch's and Pillow's rules.
#pragma once
#include <cmath>
#include <cstdint>

#include "ndd/hd.h"
#include "ndd/python_interface.h"

namespace ndd {

NDD_ENUM("types.InterpType", Filter, int32_t, nearest, linear, cubic, lanczos3, triangular, gaussian);

// Whose arithmetic to reproduce. For bytes, Pillow uses 22-bit weights and torch 15-bit ones; for floats they are the same. `pillow_12` is Pillow
// before version 13, which always resized the width first.
NDD_ENUM("resize.Rule", Rule, int32_t, dali, torch, pillow, pillow_12);

NDD_HD bool is_pillow(Rule rule) { return rule == Rule::pillow || rule == Rule::pillow_12; }

// One resampled axis: output element i is centered at source coordinate lo + (i + 0.5) * scale, where source element k covers [k, k + 1).
struct Axis {
  int64_t in, out;
  float lo, scale;  // negative if mirrored
  Filter filter;
  float stretch;  // the kernel is this many times wider than at unit scale
  float shrink;  // 1 / stretch
  float anchor;  // distance from the first tap's lower bound to the center
  int32_t taps;
  Rule rule = Rule::dali;
  // For the rules other than DALI's, whose weights derive from integer sizes: computes `out` elements, from `first` on, of the `whole` that the full
  // source would become.
  bool antialias = false;
  int64_t first = 0, whole = 0;
};

NDD_HD float support_radius(Filter filter) { return filter == Filter::cubic ? 2.0f : filter == Filter::lanczos3 ? 3.0f : 1.0f; }

// Maps the source region [lo, hi) of an axis of `in` elements to `out` elements. `min_filter` is used for reduction, and widened if `antialias`.
NDD_HD Axis make_axis(int64_t in, int64_t out, float lo, float hi, Filter min_filter, Filter mag_filter, bool antialias) {
  const float limit = 4194304.0f;  // keeps coordinates exact to half an element, bounds the kernel, and replaces NaN
  lo = fminf(fmaxf(lo, -limit), limit);
  hi = fminf(fmaxf(hi, -limit), limit);
  Axis a{};
  a.in = in;
  a.out = a.whole = out;
  a.lo = lo;
  a.scale = out > 0 ? (hi - lo) / static_cast<float>(out) : 1.0f;
  const bool reduces = fabsf(a.scale) > 1.0f;
  // A linear filter that antialias stretches becomes the triangle, whose taps grow with the scale.
  a.filter = reduces ? min_filter : mag_filter;
  a.stretch = reduces && antialias ? fabsf(a.scale) : 1.0f;
  a.shrink = 1 / a.stretch;
  if (a.filter == Filter::linear && a.stretch > 1.0f) a.filter = Filter::triangular;
  if (a.filter == Filter::nearest || a.filter == Filter::linear) {
    a.taps = a.filter == Filter::nearest ? 1 : 2;
  } else if (a.filter == Filter::gaussian) {
    // The radius is computed by way of a float sigma, as in DALI: the rounding decides whether a tap exactly at the edge (weight e^-4) takes part.
    const float sigma = static_cast<float>(static_cast<double>(a.stretch * 0.5f) / 1.4142135623730951);
    a.anchor = 32.0f / (64.0f / fmaxf(1.0f, 5.656854249492381f * sigma));
    a.taps = static_cast<int32_t>(ceilf(2 * a.anchor));
  } else {
    a.anchor = support_radius(a.filter) * a.stretch;
    a.taps = static_cast<int32_t>(ceilf(2 * a.anchor));
  }
  return a;
}

// An axis that is copied.
inline Axis unchanged_axis(int64_t n) { return make_axis(n, n, 0, static_cast<float>(n), Filter::nearest, Filter::nearest, false); }

// Whether two axes have the same weights.
inline bool same_axis(const Axis& a, const Axis& b) {
  return a.in == b.in && a.out == b.out && a.lo == b.lo && a.scale == b.scale && a.filter == b.filter && a.taps == b.taps && a.stretch == b.stretch &&
         a.rule == b.rule && a.antialias == b.antialias && a.first == b.first && a.whole == b.whole;
}

// A kernel at distance x >= 0 from its center, in source elements at unit scale.
NDD_HD float kernel_knot(Filter filter, float x) {
  switch (filter) {
    case Filter::cubic:  // Catmull-Rom
      return x < 1 ? (1.5f * x - 2.5f) * x * x + 1 : x < 2 ? ((-0.5f * x + 2.5f) * x - 4) * x + 2 : 0.0f;
    case Filter::lanczos3: {
      if (x < 1e-6f) return 1.0f;
      if (x >= 3) return 0.0f;
      const float t = x * 1.0471975512f;
#ifdef __CUDA_ARCH__
      const float s = sinpif(x * 0.333333333f);  // sinf has a path for large arguments, which would keep a table in local memory
#else
      const float s = sinf(t);
#endif
      return s * (3 * s - 4 * s * s * s) / (3 * t * t);  // sin(pi x) = sin(3 t) = 3 s - 4 s^3; sinc(x) sinc(x / 3)
    }
    case Filter::gaussian: return x <= 1 ? expf(-4 * x * x) : 0.0f;
    default: return x < 1 ? 1 - x : 0.0f;
  }
}

// Knot n of a kernel, at distance n / 32. The CPU reads a table of these instead, which saves 75 us for two Lanczos axes of 224 elements.
struct ComputedKnots {
  Filter filter;
  NDD_HD float operator[](int32_t n) const { return kernel_knot(filter, static_cast<float>(n) / 32); }
};
constexpr int32_t kMaxKnots = 3 * 32 + 2;

// DALI tabulates its kernels in steps of 1/32 and interpolates linearly. Doing the same makes float results agree to 1e-6 instead of 1e-3.
template <class Knots>
NDD_HD float kernel_value(Filter filter, const Knots& knots, float x) {
  x = fabsf(x);
  if (filter == Filter::triangular) return x < 1 ? 1 - x : 0.0f;
  // Knots are 1/32 apart.
  const float t = x * 32;
  if (t >= 32 * support_radius(filter) + 1) return 0.0f;  // a Gaussian falls from e^-4 to 0 over the last 1/32
  const int32_t n = static_cast<int32_t>(t);
  return knots[n] + (knots[n + 1] - knots[n]) * (t - static_cast<float>(n));
}

NDD_HD int64_t round_down(float x) {  // floorf is a function call on baseline x86-64
#ifdef __CUDA_ARCH__
  return static_cast<int32_t>(floorf(x));  // 64-bit conversions take four times as long, and coordinates stay below 2^25
#else
  const int64_t n = static_cast<int64_t>(x);
  return n - (x < static_cast<float>(n));
#endif
}

// The first source element of output i (which may lie outside the source: the caller clamps it), and `base`, the argument of tap_weight.
NDD_HD int64_t first_tap(const Axis& a, int64_t i, float* base) {
  const float n = static_cast<float>(i);
  if (a.filter == Filter::nearest) return round_down(mul_then_add(n + 0.5f, a.scale, a.lo));
  // The lower bound of the kernel: rounded up to the first element whose center it covers, or down for the pair of linear.
  const float x = mul_then_add(n, a.scale, mul_then_add(0.5f, a.scale, a.lo) - 0.5f - a.anchor);
  const int64_t first = a.filter == Filter::linear ? round_down(x) : -round_down(-x);
  *base = a.filter == Filter::linear ? x - static_cast<float>(first) : static_cast<float>(first) - x - a.anchor;
  return first;
}

// The weight of tap k before normalization to a sum of 1.
template <class Knots>
NDD_HD float tap_weight(const Axis& a, const Knots& knots, int32_t k, float base) {
  if (a.filter == Filter::nearest) return 1.0f;
  if (a.filter == Filter::linear) return k == 0 ? 1 - base : base;
  return kernel_value(a.filter, knots, (base + static_cast<float>(k)) * a.shrink);
}

NDD_HD int64_t clamp_index(int64_t k, int64_t n) { return k < 0 ? 0 : k >= n ? n - 1 : k; }

}  // namespace ndd
