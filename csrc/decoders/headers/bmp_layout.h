// SPDX-License-Identifier: Apache-2.0
// Where the pixels of a Windows or OS/2 bitmap lie and how they are stored. Read by the header check, and again by the decoder (bmp_image.cpp).
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
  size_t pixels = 0;                // offset of the rows
  size_t palette = 0;               // offset of the palette; each color is blue, green, red
  int64_t colors = 0;               // in the palette
  int color_bytes = 0;              // per color
  std::array<BmpMask, 4> masks{};   // red, green, blue, alpha, of pixels of 16 and 32 bits

  // Returns the size of the smallest file that holds all pixels. Run lengths can skip 255x255 pixels at a time; the last row needs no padding.
  double min_bytes() const;
  // Rows are padded to a multiple of four bytes.
  size_t row_bytes() const { return static_cast<size_t>((width * bits + 31) / 32 * 4); }
};

// Throws Error for a damaged header and for an unsupported kind of bitmap.
BmpLayout read_bmp_layout(const EncodedImage& file);

}  // namespace ndd
