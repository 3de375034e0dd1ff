// SPDX-License-Identifier: Apache-2.0
// For the few files that libjpeg refuses: simple loops over all pixels suffice.
#include "decoders/jpeg/area.h"

#include <algorithm>

namespace ndd {
namespace {

// The pixels that a scaled pixel covers along one axis, in units of 1 / eighths of a pixel of the image: scaled pixel k covers [8 k, 8 k + 8).
struct Cover {
  int64_t first, last;
  int64_t begin, end, eighths;

  Cover(int64_t k, int64_t eighths, int64_t extent)
      : first(8 * k / eighths), last((std::min(8 * k + 8, extent * eighths) - 1) / eighths), begin(8 * k), end(std::min(8 * k + 8, extent * eighths)),
        eighths(eighths) {}

  int64_t weight(int64_t pixel) const { return std::min(end, (pixel + 1) * eighths) - std::max(begin, pixel * eighths); }
};

}  // namespace

// In integers: `area` is at most 64 units per pixel of an 8-bit image, and the sum of exact products has no rounding but the last.
void reduce_by_area(const PixelRows& image, int eighths, const CropWindow& part, uint8_t* out) {
  for (int64_t y = part.y; y < part.y + part.height; ++y) {
    // The last scaled pixel may cover less: its extent was rounded up.
    const Cover rows(y, eighths, image.height);
    for (int64_t x = part.x; x < part.x + part.width; ++x) {
      const Cover columns(x, eighths, image.width);
      const int64_t area = (rows.end - rows.begin) * (columns.end - columns.begin);
      for (int c = 0; c < image.channels; ++c) {
        int64_t sum = area / 2;  // rounds to nearest
        for (int64_t i = rows.first; i <= rows.last; ++i) {
          for (int64_t j = columns.first; j <= columns.last; ++j)
            sum += rows.weight(i) * columns.weight(j) * image.data[(i * image.width + j) * image.channels + c];
        }
        *out++ = static_cast<uint8_t>(sum / area);
      }
    }
  }
}

}  // namespace ndd
