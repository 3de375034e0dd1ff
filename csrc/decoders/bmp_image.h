// SPDX-License-Identifier: Apache-2.0
// BMP, decoded here: its codecs ignore channel masks, know neither run lengths of 4 bits nor pixels of 16 bits without masks, and have no alpha.
#pragma once

#include "decoders/image_decoder.h"

namespace ndd {

// Fills `out` with dense rows of what `options` asks for. The file holds all pixels that `header` promises.
void decode_bmp(const EncodedImage& file, const ImageHeader& header, const DecodeOptions& options, void* out, DType out_dtype);

}  // namespace ndd
