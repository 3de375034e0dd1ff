// SPDX-License-Identifier: Apache-2.0
// Decodes the TIFFs that nvImageCodec's libtiff extension does not support, or decodes incorrectly: planes, reversed bits, samples of any
// size, colors other than gray and RGB, and files that omit optional tags. libtiff only decompresses.
#pragma once

#include "decoders/orientation.h"
#include "decoders/tiff/packed_strips.h"
#include "decoders/tiff/tiff_image.h"

#include <cstdint>
#include <functional>

namespace ndd {

// Decodes `rows` rows of the strips to `out`, dense.
// The caller supplies the codec, so this file does not depend on nvImageCodec.
using DecodeStrips = std::function<void(const PackedStrips& strips, int64_t first_row, int64_t rows, void* out)>;

// Fills `out` with a part of the image as dense pixels of `image.dtype()`: all channels, or only those of the colors.
void decode_tiff_pieces(const TiffImage& image, const CropWindow& part, bool all_channels, const DecodeStrips& decode_strips, void* out);

}  // namespace ndd
