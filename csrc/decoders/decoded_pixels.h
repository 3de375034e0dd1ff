// SPDX-License-Identifier: Apache-2.0
// Converts the samples that a codec delivers to the requested channels and type.
#pragma once

#include "decoders/image_decoder.h"

namespace ndd {

// Interleaved samples: gray, gray and alpha, RGB, RGBA, or any channels for ImageType::any.
struct DecodedPixels {
  const void* data;  // may be unaligned
  DType dtype;
  int64_t count;
  int channels;
};

// Integers represent [0, 1] by their full range, also across types: 8-bit 128 becomes 16-bit 32896 and float 0.50196. YCbCr has the studio range of
// ITU-R BT.601, Y 16..235 and chroma 16..240, as fractions of the output's range.
void convert_pixels(const DecodedPixels& in, ImageType type, int out_channels, void* out, DType out_dtype);

}  // namespace ndd
