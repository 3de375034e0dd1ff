// SPDX-License-Identifier: Apache-2.0
// Samples that Python has decoded (see format_decoded_by_python) and passes on as if they were an encoded file, so windows, output types
// and dtypes need no second implementation.
#pragma once

#include "decoders/image_decoder.h"

namespace ndd {

inline constexpr const char* kRawCodec = "raw";

bool is_raw_image(const EncodedImage& image);
ImageHeader read_raw_header(const EncodedImage& image);
void convert_raw_image(const EncodedImage& image, const ImageHeader& header, const DecodeOptions& options, void* out, DType out_dtype);

}  // namespace ndd
