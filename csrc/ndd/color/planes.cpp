// SPDX-License-Identifier: Apache-2.0
// Loads and stores tiles of pixels as one row of floats per channel.
#include "ndd/color/planes.h"

#include "ndd/slice/transpose.h"

namespace ndd {
namespace {

// Interleaved channels are separated before they are converted, while they are still narrow: three shuffles per 48 bytes.
struct Staged {
  alignas(64) char channel[3][ColorTile::kPixels * 8];
  static constexpr int64_t kStep = ColorTile::kPixels * 8;
};

}  // namespace

void ColorRows::load(const ColorImage& image, const void* data, int64_t first, int64_t n, ColorTile& tile) const {
  const char* const from = static_cast<const char*>(data);
  if (image.planar || image.channels == 1) {
    for (int64_t c = 0; c < image.channels; ++c) load_(from + image.element(first, c) * item_, n, tile.channel[c]);
    return;
  }
  Staged staged;
  transpose::move_plane({from + 3 * first * item_, 3 * item_, staged.channel[0], Staged::kStep, n, 3}, item_);
  for (int c = 0; c < 3; ++c) load_(staged.channel[c], n, tile.channel[c]);
}

void ColorRows::store(const ColorImage& image, const ColorTile& tile, int64_t first, int64_t n, void* data) const {
  char* const to = static_cast<char*>(data);
  if (image.planar || image.channels == 1) {
    for (int64_t c = 0; c < image.channels; ++c) store_(tile.channel[c], n, to + image.element(first, c) * item_);
    return;
  }
  Staged staged;
  for (int c = 0; c < 3; ++c) store_(tile.channel[c], n, staged.channel[c]);
  transpose::move_plane({staged.channel[0], Staged::kStep, to + 3 * first * item_, 3 * item_, 3, n}, item_);
}

}  // namespace ndd
