// SPDX-License-Identifier: Apache-2.0
// gaussian_blur: the windows of every image of a batch, shared by the CPU and the CUDA kernel.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include "ndd/args.h"
#include "ndd/error.h"
#include "ndd/samples.h"
#include "ndd/stencil.h"

namespace ndd::gaussian_blur {

// Weights exp(-k^2 / (2 sigma^2)), normalised. A sigma or a window size of 0 follows from the other one.
inline Window window(float sigma, int64_t size, int64_t sample) {
  constexpr float kMaxRadius = 1 << 20;  // a larger window is a mistake, and would be given gigabytes
  const auto refused = [=](const std::string& reason) { return Error(Error::Runtime, "gaussian_blur: sample " + std::to_string(sample) + ": " + reason); };
  if (!(sigma >= 0.0f)) throw refused("sigma must not be negative, got " + std::to_string(sigma));
  if (size < 0 || (size > 0 && size % 2 == 0)) throw refused("window_size must be odd, got " + std::to_string(size));
  if (sigma == 0.0f && size == 0) throw refused("sigma and window_size must not both be 0");
  const float reach = size > 0 ? static_cast<float>((size - 1) / 2) : std::ceil(3.0f * sigma);
  if (!(reach <= kMaxRadius)) throw refused("sigma or window_size is too large");
  const int64_t radius = static_cast<int64_t>(reach);
  const double s = sigma > 0.0f ? double{sigma} : 0.3 * static_cast<double>(radius - 1) + 0.8;
  std::vector<double> half(radius + 1);
  double sum = 0.0;
  for (int64_t k = 0; k <= radius; ++k) {
    half[k] = std::exp(-0.5 * static_cast<double>(k * k) / (s * s));
    sum += k == 0 ? half[k] : 2.0 * half[k];
  }
  Window window;
  window.half.resize(radius + 1);
  for (int64_t k = 0; k <= radius; ++k) window.half[k] = static_cast<float>(half[k] / sum);
  return window;
}

// Numbers for every axis and frame: a row of the tensor holds one, one per axis, or (frames, 1 or axes).
template <class T>
class AxisArgs {
 public:
  explicit AxisArgs(const Tensor& tensor)
      : values_(tensor), frames_(tensor.dim() > 2 ? tensor.size(1) : 1), axes_(tensor.dim() > 1 ? tensor.size(tensor.dim() - 1) : 1) {}

  T operator()(int64_t i, int64_t frame, int64_t axis) const {
    if (frames_ > 1 && frame >= frames_)
      throw Error(Error::Runtime, "gaussian_blur: sample " + std::to_string(i) + " has more frames than the " + std::to_string(frames_) + " of its arguments");
    return values_(i, (frames_ > 1 ? frame * axes_ : 0) + (axes_ > 1 ? axis : 0));
  }

 private:
  Args<T> values_;
  int64_t frames_, axes_;
};

// The arguments as both backends read them. The blurred dimensions of a sample are `spatial` ones from `first`; frames and planar channels stand
// before them, interleaved channels behind.
struct Arguments {
  AxisArgs<float> sigma;
  AxisArgs<int64_t> window_size;
  int64_t first, spatial;

  int64_t images(const Samples& in, int64_t i) const {
    int64_t count = 1;
    for (int64_t d = 0; d < first; ++d) count *= in.shape(i)[d];
    return count;
  }

  Grid grid(const Samples& in, int64_t i) const {
    const int64_t* shape = in.shape(i) + first;
    Grid grid;
    grid.width = shape[spatial - 1];
    if (spatial > 1) grid.height = shape[spatial - 2];
    if (spatial > 2) grid.depth = shape[0];
    for (int64_t d = spatial; d < in.ndim() - first; ++d) grid.inner *= shape[d];
    return grid;
  }

  // The windows of depth, height and width for one of the images of sample i.
  std::array<Window, 3> windows(const Samples& in, int64_t i, int64_t image) const {
    const int64_t frames = first > 0 ? in.shape(i)[0] : 1, frame = frames > 1 ? image / (images(in, i) / frames) : 0;
    std::array<Window, 3> windows;
    for (int64_t a = 0; a < spatial; ++a)
      windows[3 - spatial + a] = window(sigma(i, frame, a), window_size(i, frame, a), i);
    return windows;
  }
};

}  // namespace ndd::gaussian_blur
