// SPDX-License-Identifier: Apache-2.0
// CPU side of the stencil driver: convolution along the axes, and correlation with an arbitrary window. Defined in separable.cpp and correlation.cpp.
// The functions process one sample on the calling thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ndd/dtypes.h"
#include "ndd/hd.h"
#include "ndd/stencil/stencil.h"

namespace ndd {
namespace stencil {

// Rows are staged as S: float for any element type, or Q8.7 fixed point (uint16_t) for uint8 -> uint8, which is twice as fast: a pass over a VGA
// image with radius 5 takes 88 us instead of 174 with AVX-512, and 123 instead of 246 with AVX2. weighted_sum counts the center as a pair with
// itself, so tap 0 carries half its weight.
template <class S>
struct Taps;

template <>
struct Taps<float> {
  std::vector<float> weight;
  float bias = 0.0f;

  explicit Taps(const SymmetricWindow& window) : weight(window.half) { weight[0] *= 0.5f; }
  // A pair of samples, already added, times their weight.
  static NDD_HD float term(float pair, float weight) { return pair * weight; }
};

// out[i] = bias + sum over taps k of weight[k] * (lo[k][i] + hi[k][i]), where lo and hi are the rows k before and k after the center.
void weighted_sum(const float* const* lo, const float* const* hi, const Taps<float>& taps, int64_t n, float* out);

}  // namespace stencil

// Convolves the contiguous sample `in` along depth, height and width into `out`. With `exact`, bytes are computed in float as well, not in fixed
// point.
void convolve_separable(const Grid& grid, const std::array<SymmetricWindow, 3>& windows, const void* in, DType in_dtype, void* out, DType out_dtype,
                        bool exact = false);

// A window of weights over depth, height and width, width innermost.
struct TapWindow {
  std::array<Reach, 3> reach;
  std::vector<float> weight;
};

// out[z, y, x] = sum of weight[dz, dy, dx] * in[z + dz - before, ...]. Weights of 0 are skipped, so even infinite elements have no effect.
void correlate(const Grid& in_grid, const Grid& out_grid, const TapWindow& window, Border border, float fill, const void* in, DType in_dtype,
               void* out, DType out_dtype);

}  // namespace ndd
