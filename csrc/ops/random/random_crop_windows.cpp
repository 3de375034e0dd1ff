// SPDX-License-Identifier: Apache-2.0
// Random crop windows for image classification. It runs in the call, on the host: a window takes 0.3 us, and decoders and kernels need it at once.
#include <algorithm>
#include <cmath>

#include "ndd/kernel.h"
#include "ndd/philox.h"

namespace ndd {
namespace {

struct Range {
  double low, high;
  bool holds(double x) const { return low <= x && x <= high; }
};

struct Window {
  int64_t y, x, height, width;
};

int64_t below(double u, int64_t count) { return std::min(static_cast<int64_t>(u * static_cast<double>(count)), count - 1); }

// A part of the image with a relative area and an aspect ratio (width / height, uniform on a logarithmic scale) from these ranges. An attempt
// fails when its window is larger than the image or is no longer within the ratios once rounded. When all have failed, it is the largest part
// that both ranges allow.
Window random_window(Philox stream, int64_t height, int64_t width, const Range& area, const Range& aspect, int64_t attempts) {
  if (height <= 0 || width <= 0) return {0, 0, 0, 0};
  const double rows = static_cast<double>(height), columns = static_cast<double>(width), pixels = rows * columns;
  const double log_low = std::log(aspect.low), log_span = std::log(aspect.high) - log_low;
  int64_t h = 0, w = 0;
  bool found = false;
  for (int64_t k = 0; k < attempts && !found; ++k) {
    const double wanted = pixels * (area.low + (area.high - area.low) * stream.uniform_double());
    const double ratio = std::exp(log_low + log_span * stream.uniform_double());
    w = std::max<int64_t>(1, std::llround(std::sqrt(wanted * ratio)));
    h = std::max<int64_t>(1, std::llround(std::sqrt(wanted / ratio)));
    found = w <= width && h <= height && aspect.holds(static_cast<double>(w) / static_cast<double>(h));
  }
  if (!found) {
    const double wide = std::min(columns, std::max(1.0, std::floor(rows * aspect.high)));
    const double tall = std::min(rows, std::max(1.0, std::floor(columns / aspect.low)));
    const double shrink = std::min(1.0, std::sqrt(pixels * area.high / (wide * tall)));
    w = std::max<int64_t>(1, static_cast<int64_t>(wide * shrink));
    h = std::max<int64_t>(1, static_cast<int64_t>(tall * shrink));
  }
  const int64_t y = below(stream.uniform_double(), height - h + 1), x = below(stream.uniform_double(), width - w + 1);
  return {y, x, h, w};
}

// `shapes` is int64 (N, columns) with heights and widths first, `out` int64 (N, 4).
void random_crop_windows(const Tensor& shapes, const Tensor& words, double area_low, double area_high, double aspect_low, double aspect_high,
                         int64_t num_attempts, const Tensor& out) {
  const auto* shape = static_cast<const int64_t*>(shapes.data_ptr());
  const auto* call = static_cast<const int64_t*>(words.data_ptr());
  auto* row = static_cast<int64_t*>(out.data_ptr());
  const int64_t columns = shapes.size(1);
  for (int64_t i = 0; i < shapes.size(0); ++i, shape += columns, row += 4) {
    const Window window = random_window({call, i}, shape[0], shape[1], {area_low, area_high}, {aspect_low, aspect_high}, num_attempts);
    row[0] = window.y;
    row[1] = window.x;
    row[2] = window.height;
    row[3] = window.width;
  }
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(random_crop_windows, CPU, ndd::random_crop_windows)
