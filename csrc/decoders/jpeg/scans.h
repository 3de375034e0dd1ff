// SPDX-License-Identifier: Apache-2.0
// How a JPEG is coded, from its segments alone.
#pragma once

#include "decoders/encoded_image.h"

namespace ndd {

// Whether this is a progressive JPEG whose scans leave bits of its coefficients out. libjpeg smooths such an image across the borders of its blocks,
// and differently when it decodes a region: the pixels of a crop would not be those of the whole image.
bool lacks_scans(const EncodedImage& jpeg);

// Whether this is a JPEG whose first frame is baseline (SOF0), the only kind that the JPEG engines of a GPU decode.
bool is_baseline_jpeg(const EncodedImage& image);

}  // namespace ndd
