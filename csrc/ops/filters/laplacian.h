// SPDX-License-Identifier: Apache-2.0
// The arguments of laplacian as both backends read them, and the windows derived from them.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ndd/stencil/stencil.h"

namespace ndd::laplacian {

constexpr int64_t kMaxWindow = 31;

// Upper half, center first, of the binomial coefficients [1 2 1] * ... * [1 2 1] with `size` elements, convolved with [1 -2 1] for a second derivative.
inline std::vector<double> half_window(int64_t size, bool derivative) {
  std::vector<double> whole{1.0};
  while (static_cast<int64_t>(whole.size()) < size) {
    // The first step makes [1 -2 1], all others smooth.
    const double middle = derivative && whole.size() == 1 ? -2.0 : 2.0;
    std::vector<double> longer(whole.size() + 2);
    for (size_t k = 0; k < whole.size(); ++k) {
      longer[k] += whole[k];
      longer[k + 1] += middle * whole[k];
      longer[k + 2] += whole[k];
    }
    whole = longer;
  }
  return {whole.begin() + size / 2, whole.end()};
}

// One partial derivative: windows along depth, height and width.
using Partial = std::array<std::vector<double>, 3>;

class Arguments {
 public:
  Arguments(const MaybeTensor& scale, const MaybeTensor& smoothing_size, const Tensor& window_size, bool normalized, SpatialAxes axes)
      : axes(axes), window_size_("laplacian", window_size), normalized_(normalized) {
    if (scale) scale_.emplace("laplacian", *scale);
    if (smoothing_size) smoothing_size_.emplace("laplacian", *smoothing_size);
  }

  // For one of the images of sample i: a partial derivative for each spatial axis.
  std::vector<Partial> partials(const Samples& in, int64_t i, int64_t image) const {
    const int64_t frame = axes.frame(in, i, image);
    std::vector<Partial> result;
    for (int64_t of = 0; of < axes.spatial; ++of) {
      Partial partial{std::vector<double>{1.0}, std::vector<double>{1.0}, std::vector<double>{1.0}};
      int64_t sizes = 0;
      for (int64_t a = 0; a < axes.spatial; ++a) {
        // Without a smoothing size, the window of the derivative is that of all axes.
        const int64_t size = a == of || !smoothing_size_ ? window(i, frame, of) : smoothing(i, frame, a);
        partial[3 - axes.spatial + a] = half_window(size, a == of);
        sizes += size;
      }
      // Powers of two that make the sum of the weights' magnitudes independent of the sizes, as in DALI.
      const double scale = normalized_ ? std::exp2(static_cast<double>(axes.spatial + 2 - sizes)) : scale_ ? double{(*scale_)(i, frame, of)} : 1.0;
      for (double& weight : partial[3 - axes.spatial + of]) weight *= scale;
      result.push_back(partial);
    }
    return result;
  }

  SpatialAxes axes;

 private:
  int64_t window(int64_t i, int64_t frame, int64_t axis) const {
    const int64_t size = window_size_(i, frame, axis);
    if (size < 3 || size > kMaxWindow || size % 2 == 0) reject("window_size", 3, size, i);
    return size;
  }

  int64_t smoothing(int64_t i, int64_t frame, int64_t axis) const {
    const int64_t size = (*smoothing_size_)(i, frame, axis);
    if (size < 1 || size > kMaxWindow || size % 2 == 0) reject("smoothing_size", 1, size, i);
    return size;
  }

  [[noreturn]] static void reject(const char* name, int64_t least, int64_t size, int64_t i) {
    fail("laplacian: ", name, " must be odd, from ", least, " to ", kMaxWindow, ", got ", size, " for sample ", i);
  }

  AxisArgs<int64_t> window_size_;
  std::optional<AxisArgs<float>> scale_;
  std::optional<AxisArgs<int64_t>> smoothing_size_;
  bool normalized_;
};

// All partial derivatives as one window of weights, depth by height by width.
struct Sum {
  std::array<Reach, 3> reach;
  std::vector<float> weight;
  int64_t taps = 0;  // weights other than 0

  explicit Sum(const std::vector<Partial>& partials) {
    int64_t radius[3] = {0, 0, 0}, volume = 1;
    for (int axis = 0; axis < 3; ++axis) {
      for (const Partial& partial : partials) radius[axis] = std::max(radius[axis], static_cast<int64_t>(partial[axis].size()) - 1);
      reach[axis] = {static_cast<int32_t>(2 * radius[axis] + 1), static_cast<int32_t>(radius[axis])};
      volume *= reach[axis].size;
    }
    const auto at = [](const std::vector<double>& half, int64_t k) {
      return std::abs(k) < static_cast<int64_t>(half.size()) ? half[std::abs(k)] : 0.0;
    };
    weight.reserve(volume);
    for (int64_t z = -radius[0]; z <= radius[0]; ++z)
      for (int64_t y = -radius[1]; y <= radius[1]; ++y)
        for (int64_t x = -radius[2]; x <= radius[2]; ++x) {
          double sum = 0.0;
          for (const Partial& partial : partials) sum += at(partial[0], z) * at(partial[1], y) * at(partial[2], x);
          weight.push_back(static_cast<float>(sum));
          taps += weight.back() != 0.0f;
        }
  }
};

// Up to this many taps, one sum over the whole window is faster than a separable convolution for each partial derivative: of a VGA image of uint8
// a tap takes 13 us, a pass over an axis with 5 taps about 100 us.
constexpr int64_t kMaxTaps = 24;

inline std::array<SymmetricWindow, 3> windows(const Partial& partial) {
  std::array<SymmetricWindow, 3> result;
  for (int axis = 0; axis < 3; ++axis) result[axis].half.assign(partial[axis].begin(), partial[axis].end());
  return result;
}

}  // namespace ndd::laplacian
