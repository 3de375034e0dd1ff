// SPDX-License-Identifier: Apache-2.0
// Decodes what libtiff does not by itself, or not right: planes, other orders of bits, samples of any size, colors other than gray and RGB, and files
// whose directory lacks what it can do without. libtiff only takes the compression off.
#pragma once

#include "decoders/orientation.h"
#include "decoders/tiff/packed_strips.h"
#include "decoders/tiff/tiff_image.h"

#include <cstdint>
#include <functional>

namespace ndd {

// Fills `out` with so many rows of the strips, dense.
using DecodeStrips = std::function<void(const PackedStrips& strips, int64_t first_row, int64_t rows, void* out)>;

// Fills `out` with the part of the image, dense pixels of `image.dtype()`: with all channels, or of those of the colors only.
void decode_tiff_pieces(const TiffImage& image, const CropWindow& part, bool all_channels, const DecodeStrips& decode_strips, void* out);

}  // namespace ndd
