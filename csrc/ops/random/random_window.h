// SPDX-License-Identifier: Apache-2.0
// Random crop windows for image classification, the same on CPU and GPU.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "ndd/error.h"
#include "ndd/random/normal.h"
#include "ndd/random/philox.h"

namespace ndd {

struct Range {
  double low, high;
  NDD_HD bool holds(double x) const { return low <= x && x <= high; }
};

struct RandomWindow {
  int64_t y, x, height, width;
};

struct WindowLimits {
  Range area, aspect;
  int64_t attempts;
};

// Throws for more attempts than Python allows, which would not end.
inline void check_attempts(const std::string& op, const WindowLimits& limits) {
  if (limits.attempts < 1 || limits.attempts > INT32_MAX) fail(Error::Value, op, ": num_attempts must be from 1 to 2^31 - 1, got ", limits.attempts);
}

namespace random_window_detail {

// A number below `count` for u from 0 to just below 1; the product may be rounded up to `count`.
NDD_HD int64_t below(double u, int64_t count) {
  const int64_t k = static_cast<int64_t>(u * static_cast<double>(count));
  return k < count ? k : count - 1;
}

// A window has at least one pixel.
NDD_HD int64_t extent_of(double size) { return size > 1.0 ? static_cast<int64_t>(size < 0x1p62 ? size : 0x1p62) : 1; }

}  // namespace random_window_detail

// A window of the image with a relative area and an aspect ratio (width / height, uniform on a logarithmic scale) from these ranges. An attempt
// fails when its window is larger than the image or is no longer within the ratios once rounded. When all have failed, it is the largest part
// that both ranges allow.
NDD_HD RandomWindow random_window(Philox stream, int64_t height, int64_t width, const WindowLimits& limits) {
  using namespace random_window_detail;
  if (height <= 0 || width <= 0) return {0, 0, 0, 0};
  const Range &area = limits.area, &aspect = limits.aspect;
  const double rows = static_cast<double>(height), columns = static_cast<double>(width), pixels = rows * columns;
  const double log_low = log_of(aspect.low), log_span = log_of(aspect.high) - log_low;
  int64_t h = 0, w = 0;
  bool found = false;
  for (int64_t k = 0; k < limits.attempts && !found; ++k) {
    // Width / height = ratio and width * height = wanted, rounded to the nearest pixel.
    const double wanted = pixels * (area.low + (area.high - area.low) * stream.uniform_double());
    const double ratio = exp_of(log_low + log_span * stream.uniform_double());
    w = extent_of(sqrt(wanted * ratio) + 0.5);
    h = extent_of(sqrt(wanted / ratio) + 0.5);
    found = w <= width && h <= height && aspect.holds(static_cast<double>(w) / static_cast<double>(h));
  }
  if (!found) {
    // The widest and the tallest extent that the image and the ratios allow, shrunk to the largest area.
    const double widest = floor(rows * aspect.high), tallest = floor(columns / aspect.low);
    const double wide = widest < 1.0 ? 1.0 : widest > columns ? columns : widest, tall = tallest < 1.0 ? 1.0 : tallest > rows ? rows : tallest;
    const double most = sqrt(pixels * area.high / (wide * tall)), shrink = most < 1.0 ? most : 1.0;
    w = extent_of(wide * shrink);
    h = extent_of(tall * shrink);
  }
  const int64_t y = below(stream.uniform_double(), height - h + 1), x = below(stream.uniform_double(), width - w + 1);
  return {y, x, h, w};
}

}  // namespace ndd
