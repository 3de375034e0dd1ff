// SPDX-License-Identifier: Apache-2.0
// Strips or tiles of a TIFF file repacked as the strips of a new file, whose directory contains only what libtiff needs to decompress them.
// libtiff never sees the directory of the original.
#pragma once

#include "decoders/tiff/tiff_image.h"

#include <cstdint>
#include <vector>

namespace ndd {

struct PackedStrips {
  std::vector<uint8_t> file;
  int64_t height, width;  // of all strips together; `width` is in bytes if is_byte_compression()
  int channels;
  DType dtype;  // of the samples delivered by libtiff
};

// The format of the rows of such a file.
// Byte compressions (LZW, deflate, ...) are declared as rows of 8-bit gray, so libtiff delivers the bytes and we interpret them; JPEG and fax
// need the true samples.
struct StripFormat {
  int64_t width;
  int channels;
  int64_t bits;
  bool floating;
  int64_t photometric;
  DType dtype;
};

StripFormat strip_format(const TiffImage& image);

// Packs `pieces` as strips of `rows` rows; the last one has `last_rows`.
PackedStrips pack_strips(const TiffImage& image, const std::vector<int64_t>& pieces, int64_t rows, int64_t last_rows);

}  // namespace ndd
