// SPDX-License-Identifier: Apache-2.0
// The arguments of dilate and erode as both backends read them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "ndd/stencil/stencil.h"

namespace ndd::morphology {

template <bool maximum>
inline constexpr const char* kName = maximum ? "experimental.dilate" : "experimental.erode";

struct Arguments {
  const char* op;
  AxisArgs<int64_t> anchor, mask_size;  // x, then y
  int64_t iterations;
  Border border;
  SpatialAxes axes;

  // The window along height (axis 1 of the arguments) or width (0) of an image with this extent.
  Reach reach(int64_t i, int64_t frame, int64_t axis, int64_t extent) const {
    if (iterations < 1 || iterations > INT32_MAX) reject(i, "iterations must be from 1 to 2^31 - 1, got ", iterations);
    int64_t size[2] = {mask_size(i, frame, 0), mask_size(i, frame, 1)};
    // -1, as in OpenCV: the default mask of 3 x 3.
    if (size[0] == -1 || size[1] == -1) size[0] = size[1] = 3;
    if (size[axis] < 1) reject(i, "mask_size must be positive, or -1 for 3, got ", size[axis]);
    const int64_t requested = anchor(i, frame, axis), at = requested < 0 ? size[axis] / 2 : requested;
    if (at >= size[axis]) reject(i, "anchor must lie within the mask, got ", at, " for a size of ", size[axis]);
    // Within two extents every border mode has reached each pixel, so a larger window has the same extreme. `iterations` repetitions are one larger window.
    const int64_t limit = 2 * std::max<int64_t>(1, extent);
    const int64_t before = std::min(at, limit / iterations + 1) * iterations,
                  after = std::min(size[axis] - 1 - at, limit / iterations + 1) * iterations;
    const int64_t clipped = std::min(before, limit);
    return {static_cast<int32_t>(clipped + std::min(after, limit) + 1), static_cast<int32_t>(clipped)};
  }

 private:
  template <class... Why>
  [[noreturn]] void reject(int64_t i, const Why&... why) const {
    fail(op, ": ", why..., ", for sample ", i);
  }
};

}  // namespace ndd::morphology
