// SPDX-License-Identifier: Apache-2.0
// Some strips or tiles of a TIFF file as the strips of another one, whose directory says no more than libtiff needs to take the compression off. It
// never sees the directory of the original.
#pragma once

#include "decoders/tiff/tiff_image.h"

#include <cstdint>
#include <vector>

namespace ndd {

struct PackedStrips {
  std::vector<uint8_t> file;
  int64_t height, width;  // of all strips together; `width` in bytes where the compression is one of bytes
  int channels;
  DType dtype;  // of the samples that libtiff delivers
};

// What a strip of such a file has in a row.
struct StripFormat {
  int64_t width;
  int channels;
  int64_t bits;
  bool floating;
  int64_t photometric;
  DType dtype;
};

StripFormat strip_format(const TiffImage& image);

// Strips of `pieces`, each of `rows` rows but for the last one, which has `last_rows`.
PackedStrips pack_strips(const TiffImage& image, const std::vector<int64_t>& pieces, int64_t rows, int64_t last_rows);

}  // namespace ndd
