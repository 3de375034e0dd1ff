// SPDX-License-Identifier: Apache-2.0
// EXIF orientation. nvImageCodec reads it, but its CPU decoders do not apply it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ndd/hd.h"

namespace ndd {

// Transforms the stored image into the displayed one: first a counter-clockwise rotation by `degrees`, then the mirrors.
struct Orientation {
  int degrees = 0;  // 0, 90, 180, 270
  bool mirror_x = false;
  bool mirror_y = false;

  NDD_HD bool is_identity() const { return degrees == 0 && !mirror_x && !mirror_y; }
  NDD_HD bool swaps_axes() const { return degrees % 180 != 0; }
};

// Converts the numbers 1 to 8 of EXIF and TIFF; other numbers mean upright.
inline Orientation orientation_of_exif(int64_t number) {
  switch (number) {
    case 2: return {0, true, false};
    case 3: return {180, false, false};
    case 4: return {0, false, true};
    case 5: return {90, false, true};
    case 6: return {270, false, false};
    case 7: return {90, true, false};
    case 8: return {90, false, false};
    default: return {};
  }
}

struct PixelPlace {
  int64_t y, x;
};

// Returns where a displayed pixel lies in the stored image; `height` and `width` are those of the displayed image.
NDD_HD PixelPlace stored_point(const Orientation& orientation, PixelPlace p, int64_t height, int64_t width) {
  if (orientation.mirror_y) p.y = height - 1 - p.y;
  if (orientation.mirror_x) p.x = width - 1 - p.x;
  switch (orientation.degrees) {
    case 90: return {p.x, height - 1 - p.y};
    case 180: return {height - 1 - p.y, width - 1 - p.x};
    case 270: return {width - 1 - p.x, p.y};
    default: return p;
  }
}

// A rectangle of pixels: its upper left corner and its extents.
struct CropWindow {
  int64_t y, x, height, width;
};

// Returns the part of the stored image that becomes `window` of the displayed image, which has `height` x `width` pixels.
CropWindow stored_window(const Orientation& orientation, const CropWindow& window, int64_t height, int64_t width);

// Copies a stored image to `displayed`, which has `height` x `width` pixels of `pixel_bytes`.
void apply_orientation(const Orientation& orientation, const uint8_t* stored, uint8_t* displayed, int64_t height, int64_t width, size_t pixel_bytes);

}  // namespace ndd
