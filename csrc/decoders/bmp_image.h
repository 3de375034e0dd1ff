// SPDX-License-Identifier: Apache-2.0
// A BMP decoder. The codecs of nvImageCodec ignore channel masks, support neither 4-bit run lengths nor 16-bit pixels without masks, and drop alpha.
#pragma once

#include "decoders/image_decoder.h"

namespace ndd {

// Fills `out` with dense rows of the image, or of the window, that `options` select. Throws Error if the file no longer matches `header`.
void decode_bmp(const EncodedImage& file, const ImageHeader& header, const DecodeOptions& options, void* out, DType out_dtype);

}  // namespace ndd
