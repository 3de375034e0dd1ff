// SPDX-License-Identifier: Apache-2.0
// What the first directory of a TIFF file says of its pixels: where their pieces lie, how they are packed, and what they mean.
#pragma once

#include "decoders/tiff/directory.h"
#include "ndd/dtypes.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

namespace ndd {

enum class TiffSampleKind { whole, has_sign, floating };

enum class TiffColors { gray, white_is_zero, rgb, palette, inks, ycbcr, cielab, icclab, unknown };

// Who takes the file apart: libtiff, this library with libtiff for the compression of the pieces, or OpenCV's libtiff with its interface for RGBA.
enum class TiffRoute { whole_file, pieces, opencv };

// `samples` lie next to each other in the data, but for `planar` files, whose pieces have one sample a pixel.
struct TiffImage {
  EncodedImage file;
  TiffDirectory tags;
  int64_t width = 0, height = 0, samples = 1, bits = 1;
  TiffSampleKind kind = TiffSampleKind::whole;
  int64_t compression = 1, photometric = 1, predictor = 1;
  bool planar = false, tiled = false, reversed_bits = false;
  int64_t piece_width = 0, piece_height = 0;  // of a strip or tile
  int64_t chroma_x = 1, chroma_y = 1;         // pixels for which there is one sample of Cb and Cr
  TiffColors colors = TiffColors::gray;
  TiffRoute route = TiffRoute::pieces;
  std::optional<TiffValues> offsets, lengths;  // of the pieces

  explicit TiffImage(const EncodedImage& image) : file(image), tags(image) {}

  int64_t across() const { return (width + piece_width - 1) / piece_width; }
  int64_t down() const { return (height + piece_height - 1) / piece_height; }
  int64_t planes() const { return planar ? samples : 1; }
  int64_t samples_in_piece() const { return planar ? 1 : samples; }
  // Rows of a piece; the last strip has fewer.
  int64_t rows_of_piece(int64_t row) const { return tiled ? piece_height : std::min(piece_height, height - row * piece_height); }

  // Where chroma is subsampled, the data are rows of blocks of chroma_x * chroma_y pixels, each with one Cb and one Cr.
  bool has_blocks() const { return chroma_x * chroma_y > 1; }
  int64_t block_bytes() const { return chroma_x * chroma_y + 2; }
  int64_t packed_rows(int64_t rows) const { return (rows + chroma_y - 1) / chroma_y; }
  int64_t packed_row_bytes() const {
    return has_blocks() ? (piece_width + chroma_x - 1) / chroma_x * block_bytes() : (piece_width * samples_in_piece() * bits + 7) / 8;
  }

  // Channels without those of `extra` samples, such as alpha: 1 or 3.
  int color_channels() const;
  // Channels with the extra samples. Inks stay what they are.
  int channels() const;
  // Of the samples as they are decoded.
  DType dtype() const;
};

// Throws for a file that is damaged, and for one that cannot be decoded.
TiffImage read_tiff_image(const EncodedImage& file);

// "34892 (linear raw)"
std::string photometric_name(int64_t photometric);

// The bits of a byte from the last to the first, as files with FillOrder 2 have them.
inline uint8_t reversed_bits(uint8_t byte) {
  byte = static_cast<uint8_t>((byte & 0x55) << 1 | (byte >> 1 & 0x55));
  byte = static_cast<uint8_t>((byte & 0x33) << 2 | (byte >> 2 & 0x33));
  return static_cast<uint8_t>(byte << 4 | byte >> 4);
}

// Whether the codec delivers bytes that libtiff left packed, or samples that only it can take apart, such as those of JPEG and of fax machines.
bool is_byte_compression(int64_t compression);

}  // namespace ndd
