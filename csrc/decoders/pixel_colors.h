// SPDX-License-Identifier: Apache-2.0
// The arithmetic of decoded pixels, shared by the CPU and the GPU: samples as fractions of their type's range, gray, YCbCr.
#pragma once

#include "ndd/dtypes.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/hd.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace ndd {

template <class T>
NDD_HD constexpr float full_range() {
  if constexpr (std::is_integral_v<T>) return static_cast<float>(std::numeric_limits<T>::max());
  return 1.0f;
}

// Multiplies by the rounded reciprocal, as DALI does, so the floats are bitwise equal.
template <class T>
NDD_HD float as_fraction(T value) {
  constexpr float scale = 1.0f / full_range<T>();
  return static_cast<float>(value) * scale;
}

template <class T>
NDD_HD T of_fraction(float fraction) {
  return saturate<T>(fraction * full_range<T>());
}

// The largest sample of the type in which a codec rounds gray; 1 means that it does not round.
NDD_HD float gray_levels(DType dtype) { return dtype == DType::uint8 ? 255.0f : dtype == DType::uint16 ? 65535.0f : 1.0f; }

// Rounds to the type of the file's samples, as codecs that convert to gray do.
NDD_HD float gray_of_pixel(const float* in, int channels, float levels) {
  const float gray = channels < 3 ? in[0] : 0.299f * in[0] + 0.587f * in[1] + 0.114f * in[2];
  return levels == 1.0f ? gray : std::floor(gray * levels + 0.5f) * (1.0f / levels);
}

// An integer type has one level more than its largest value: the zero of Y is 16 of 256 levels, hence 16/255 for uint8 and 4096/65535 for
// uint16.
template <class T>
NDD_HD constexpr float studio_offset() {
  if constexpr (std::is_integral_v<T>)
    return static_cast<float>((static_cast<double>(std::numeric_limits<T>::max()) + 1) / 256 / static_cast<double>(std::numeric_limits<T>::max()));
  return 1 / 256.0f;
}

// Converts to ITU-R BT.601 with the studio range, on [0, 1]. `offset` is one 256th of the output's range.
NDD_HD void ycbcr_of_pixel(const float* in, int channels, float offset, float* out) {
  const int g = channels < 3 ? 0 : 1, b = channels < 3 ? 0 : 2;
  out[0] = 16 * offset + (65.481f * in[0] + 128.553f * in[g] + 24.966f * in[b]) / 255.0f;
  out[1] = 128 * offset + (-37.797f * in[0] - 74.203f * in[g] + 112.0f * in[b]) / 255.0f;
  out[2] = 128 * offset + (112.0f * in[0] - 93.786f * in[g] - 18.214f * in[b]) / 255.0f;
}

}  // namespace ndd
