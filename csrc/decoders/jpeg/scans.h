// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "decoders/encoded_image.h"

namespace ndd {

// Whether this is a progressive JPEG whose scans leave bits of its coefficients out. libjpeg smooths such an image over the borders of its blocks, and
// does that in another way where it decodes a part.
bool lacks_scans(const EncodedImage& jpeg);

}  // namespace ndd
