// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "decoders/orientation.h"

#include <cstdint>

namespace ndd {

struct PixelRows {
  const uint8_t* data;  // dense rows of interleaved channels
  int64_t height, width;
  int channels;
};

// `part` of the image at a scale of `eighths`, each pixel the mean of the 8 / eighths rows and columns of pixels that it covers.
void reduce_by_area(const PixelRows& image, int eighths, const CropWindow& part, uint8_t* out);

}  // namespace ndd
