// SPDX-License-Identifier: Apache-2.0
// Reduction by averaging, for JPEGs that libjpeg cannot decode at a smaller scale.
#pragma once

#include "decoders/orientation.h"

#include <cstdint>

namespace ndd {

struct PixelRows {
  const uint8_t* data;  // dense rows of interleaved channels
  int64_t height, width;
  int channels;
};

// Writes `part` of the image scaled to `eighths` / 8: each pixel is the mean of the pixels that it covers.
void reduce_by_area(const PixelRows& image, int eighths, const CropWindow& part, uint8_t* out);

}  // namespace ndd
