// SPDX-License-Identifier: Apache-2.0
// Samples that were decoded elsewhere and travel as if they were an encoded file: Python decodes JPEG 2000 (see is_jpeg2000) and everything
// behind it, windows, output types, dtypes, stays one path.
#pragma once

#include "decoders/image_decoder.h"

namespace ndd {

inline constexpr const char* kRawCodec = "raw";

bool is_raw_image(const EncodedImage& image);
ImageHeader read_raw_header(const EncodedImage& image);
void convert_raw_image(const EncodedImage& image, const ImageHeader& header, const DecodeOptions& options, void* out, DType out_dtype);

}  // namespace ndd
