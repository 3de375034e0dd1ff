// SPDX-License-Identifier: Apache-2.0
// The layout of a TIFF's pixels according to its first directory: where the pieces (strips or tiles) lie, how samples are packed, and what
// colors they mean.
#pragma once

#include "decoders/tiff/directory.h"
#include "ndd/dtypes.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

namespace ndd {

// Unsigned integers, signed integers, floats.
enum class TiffSampleKind { whole, has_sign, floating };

enum class TiffColors { gray, white_is_zero, rgb, palette, inks, ycbcr, cielab, icclab, unknown };

// How the file is decoded: by libtiff; by this library, with libtiff decompressing the pieces; or by OpenCV's libtiff through its RGBA interface.
enum class TiffRoute { whole_file, pieces, opencv };

// The samples of a pixel are interleaved, except in `planar` files, whose pieces have one sample per pixel.
// Defaults are those of TIFF 6.0.
struct TiffImage {
  EncodedImage file;
  TiffDirectory tags;
  int64_t width = 0, height = 0, samples = 1, bits = 1;
  TiffSampleKind kind = TiffSampleKind::whole;
  int64_t compression = 1, photometric = 1, predictor = 1;
  bool planar = false, tiled = false, reversed_bits = false;
  int64_t piece_width = 0, piece_height = 0;  // of a strip or tile
  int64_t chroma_x = 1, chroma_y = 1;  // pixels that share one sample of Cb and Cr
  TiffColors colors = TiffColors::gray;
  TiffRoute route = TiffRoute::pieces;
  std::optional<TiffValues> offsets, lengths;  // of the pieces

  explicit TiffImage(const EncodedImage& image) : file(image), tags(image) {}

  // Numbers of pieces along the width, the height and the planes.
  int64_t across() const { return (width + piece_width - 1) / piece_width; }
  int64_t down() const { return (height + piece_height - 1) / piece_height; }
  int64_t planes() const { return planar ? samples : 1; }
  int64_t samples_in_piece() const { return planar ? 1 : samples; }
  // Returns the rows of a piece; the last strip may have fewer.
  int64_t rows_of_piece(int64_t row) const { return tiled ? piece_height : std::min(piece_height, height - row * piece_height); }

  // If chroma is subsampled, a packed row consists of blocks of chroma_x * chroma_y luma samples, each followed by one Cb and one Cr.
  bool has_blocks() const { return chroma_x * chroma_y > 1; }
  int64_t block_bytes() const { return chroma_x * chroma_y + 2; }
  int64_t packed_rows(int64_t rows) const { return (rows + chroma_y - 1) / chroma_y; }
  int64_t packed_row_bytes() const {
    return has_blocks() ? (piece_width + chroma_x - 1) / chroma_x * block_bytes() : (piece_width * samples_in_piece() * bits + 7) / 8;
  }

  // Number of color channels, without extra samples such as alpha: 1 or 3.
  int color_channels() const;
  // Number of channels including extra samples; inks are not converted.
  int channels() const;
  // Type of the decoded samples.
  DType dtype() const;
};

// Throws Error for a damaged file, and for a kind of file that cannot be decoded.
TiffImage read_tiff_image(const EncodedImage& file);

// Returns, for example, "34892 (linear raw)".
std::string photometric_name(int64_t photometric);

// Reverses the bits of a byte, for files with FillOrder 2.
inline uint8_t reverse_bits(uint8_t byte) {
  byte = static_cast<uint8_t>((byte & 0x55) << 1 | (byte >> 1 & 0x55));
  byte = static_cast<uint8_t>((byte & 0x33) << 2 | (byte >> 2 & 0x33));
  return static_cast<uint8_t>(byte << 4 | byte >> 4);
}

// Whether decompression delivers the packed bytes of a row; other compressions, such as JPEG and fax, deliver samples.
bool is_byte_compression(int64_t compression);

}  // namespace ndd
