// SPDX-License-Identifier: Apache-2.0
// The arguments of gaussian_blur as both backends read them.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include "ndd/stencil/stencil.h"

namespace ndd::gaussian_blur {

// Weights exp(-k^2 / (2 sigma^2)), normalized. A sigma or a window size of 0 is derived from the other one, by the formulas of OpenCV and DALI. Computed in
// double and rounded once.
inline SymmetricWindow window(float sigma, int64_t size, int64_t sample) {
  constexpr float kMaxRadius = 1 << 20;  // a larger window is a mistake, and would allocate gigabytes
  const auto reject = [=](const auto&... why) { fail("gaussian_blur: sample ", sample, ": ", why...); };
  if (!(sigma >= 0.0f)) reject("sigma must not be negative, got ", sigma);
  if (size < 0 || (size > 0 && size % 2 == 0)) reject("window_size must be odd, got ", size);
  if (sigma == 0.0f && size == 0) reject("sigma and window_size must not both be 0");
  // OpenCV's and DALI's formulas: three deviations on each side, or a deviation that suits the radius.
  const float reach = size > 0 ? static_cast<float>((size - 1) / 2) : std::ceil(3.0f * sigma);
  if (!(reach <= kMaxRadius)) reject("sigma or window_size is too large");
  const int64_t radius = static_cast<int64_t>(reach);
  const double s = sigma > 0.0f ? double{sigma} : 0.3 * static_cast<double>(radius - 1) + 0.8;
  std::vector<double> half(radius + 1);
  double sum = 0.0;
  for (int64_t k = 0; k <= radius; ++k) {
    half[k] = std::exp(-0.5 * static_cast<double>(k * k) / (s * s));
    sum += k == 0 ? half[k] : 2.0 * half[k];
  }
  SymmetricWindow window;
  window.half.resize(radius + 1);
  for (int64_t k = 0; k <= radius; ++k) window.half[k] = static_cast<float>(half[k] / sum);
  return window;
}

struct Arguments {
  AxisArgs<float> sigma;
  AxisArgs<int64_t> window_size;
  SpatialAxes axes;

  Arguments(const Tensor& sigma, const Tensor& window_size, SpatialAxes axes)
      : sigma("gaussian_blur", sigma), window_size("gaussian_blur", window_size), axes(axes) {}

  // The windows of depth, height and width for one of the images of sample i.
  std::array<SymmetricWindow, 3> windows(const Samples& in, int64_t i, int64_t image) const {
    const int64_t frame = axes.frame(in, i, image);
    std::array<SymmetricWindow, 3> windows;
    for (int64_t a = 0; a < axes.spatial; ++a) windows[3 - axes.spatial + a] = window(sigma(i, frame, a), window_size(i, frame, a), i);
    return windows;
  }
};

}  // namespace ndd::gaussian_blur
