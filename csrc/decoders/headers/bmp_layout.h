// SPDX-License-Identifier: Apache-2.0
// Where the pixels of a Windows or OS/2 bitmap are and how they are stored.
#pragma once

#include "decoders/encoded_image.h"

#include <array>
#include <cstdint>

namespace ndd {

// The bits of a channel in a pixel of 16 or 32 bits.
struct BmpMask {
  int shift = 0, bits = 0;  // no bits: the channel is not stored
};

enum class BmpCoding { plain, rle8, rle4 };

struct BmpLayout {
  int64_t height = 0, width = 0;
  bool top_down = false;
  int bits = 0;  // of a pixel
  int channels = 0;
  BmpCoding coding = BmpCoding::plain;
  size_t pixels = 0;                // where they begin
  size_t palette = 0;               // where its colors begin: blue, green, red
  int64_t colors = 0;               // in the palette
  int color_bytes = 0;              // of each
  std::array<BmpMask, 4> masks{};   // red, green, blue, alpha, of pixels of 16 and 32 bits

  // Of a file that holds all pixels. Run lengths can leave out 255x255 pixels at a time; the end of the last row needs no padding.
  double least_bytes() const;
  size_t row_bytes() const { return static_cast<size_t>((width * bits + 31) / 32 * 4); }
};

// Throws for a header that is damaged, and for a kind of bitmap that we do not decode.
BmpLayout read_bmp_layout(const EncodedImage& file);

}  // namespace ndd
