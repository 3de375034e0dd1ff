// SPDX-License-Identifier: Apache-2.0
// Crop windows refer to the displayed image. They are mapped to the stored image, so only the pixels inside them are decoded and rotated.
#include "decoders/orientation.h"

#include <algorithm>
#include <cstring>

namespace ndd {

// Opposite corners stay opposite corners under rotations and mirrors.
CropWindow stored_window(const Orientation& orientation, const CropWindow& window, int64_t height, int64_t width) {
  const PixelPlace a = stored_point(orientation, {window.y, window.x}, height, width);
  const PixelPlace b = stored_point(orientation, {window.y + window.height - 1, window.x + window.width - 1}, height, width);
  const PixelPlace first{std::min(a.y, b.y), std::min(a.x, b.x)};
  return {first.y, first.x, std::max(a.y, b.y) - first.y + 1, std::max(a.x, b.x) - first.x + 1};
}

void apply_orientation(const Orientation& orientation, const uint8_t* stored, uint8_t* displayed, int64_t height, int64_t width, size_t pixel_bytes) {
  const int64_t stored_width = orientation.swaps_axes() ? height : width;
  const auto offset = [&](PixelPlace p) {
    const PixelPlace s = stored_point(orientation, p, height, width);
    return (s.y * stored_width + s.x) * static_cast<int64_t>(pixel_bytes);
  };
  const int64_t origin = offset({0, 0});
  const int64_t row_step = height > 1 ? offset({1, 0}) - origin : 0;
  const int64_t pixel_step = width > 1 ? offset({0, 1}) - origin : 0;
  // An orientation is affine: the steps between neighboring pixels and rows are constant.
  for (int64_t y = 0; y < height; ++y) {
    const uint8_t* in = stored + origin + y * row_step;
    if (pixel_bytes == 3) {  // a fixed size lets the compiler drop the call to memcpy
      for (int64_t x = 0; x < width; ++x, in += pixel_step, displayed += 3) std::memcpy(displayed, in, 3);
    } else {
      for (int64_t x = 0; x < width; ++x, in += pixel_step, displayed += pixel_bytes) std::memcpy(displayed, in, pixel_bytes);
    }
  }
}

}  // namespace ndd
