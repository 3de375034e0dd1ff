// SPDX-License-Identifier: Apache-2.0
// nvImageCodec 0.9's WebP parser forgets that RIFF pads chunks to even sizes: it refuses every second file that has an EXIF chunk. These
// copies get the same answers out of it.
#pragma once

#include "decoders/image_decoder.h"

#include <vector>

namespace ndd {

bool is_webp_with_exif(const EncodedImage& image);

// Without the padding, for reading the header; libwebp would refuse it.
std::vector<uint8_t> without_padding(const EncodedImage& webp);

// With the EXIF chunk no longer announced, for decoding.
std::vector<uint8_t> without_exif(const EncodedImage& webp);

}  // namespace ndd
