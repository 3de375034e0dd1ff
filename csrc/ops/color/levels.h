// SPDX-License-Identifier: Apache-2.0
// The levels of pixels as autocontrast, byte_steps, color_jitter, equalize, grayscale and sharpness see them, on the CPU and the GPU. `whole` stands for integer
// types: torchvision truncates their values after each step, and so do these operators.
#pragma once

#include <cmath>
#include <cstdint>

#include "ndd/hd.h"
#include "ndd/samples.h"

namespace ndd {

// `value` limited to 0 ... `white`; NaN becomes 0.
template <bool whole>
NDD_HD float limit_level(float value, float white) {
  const float above = value > 0.0f ? value : 0.0f, inside = above < white ? above : white;
  return whole ? floorf(inside) : inside;
}

// The luma of ITU-R BT.601 with torchvision's rounding of its factors. Explicitly fused, so the CPU and the GPU round the same sums.
template <bool whole>
NDD_HD float gray_level(float red, float green, float blue) {
  const float sum = fmaf(blue, 0.114f, fmaf(green, 0.587f, red * 0.2989f));
  return whole ? floorf(sum) : sum;
}

// (v - low) / divisor, truncated for integers, with torchvision's rounding: the divisor is the range times 1 / white. Flat channels are unchanged.
struct Stretch {
  float low, divisor, white;
  bool whole;

  NDD_HD Stretch(float least, float largest, float white, bool whole) : white(white), whole(whole) {
    const bool flat = !(largest > least);
    low = flat ? 0.0f : least;
    divisor = flat ? 1.0f : (largest - least) * (1.0f / white);
  }
  NDD_HD float operator()(float v) const {
    const float stretched = (v - low) / divisor;
    return whole ? limit_level<true>(stretched, white) : limit_level<false>(stretched, white);
  }
};

// A sample as planes of pixels whose channels are interleaved: the `leading` dimensions count planes, the last one channels if `interleaved`.
struct PixelPlanes {
  int64_t planes = 1, pixels = 1, channels = 1;

  PixelPlanes(const Samples& in, int64_t i, int64_t leading, bool interleaved) {
    const int64_t* shape = in.shape(i);
    if (interleaved && in.ndim() > 0) channels = shape[in.ndim() - 1];
    for (int64_t d = 0; d < in.ndim() - interleaved; ++d) (d < leading ? planes : pixels) *= shape[d];
  }
  int64_t volume() const { return pixels * channels; }  // of a plane
};

}  // namespace ndd
