// SPDX-License-Identifier: Apache-2.0
// How a JPEG is coded, from its segments alone.
#pragma once

#include "decoders/encoded_image.h"

namespace ndd {

// Whether this is a progressive JPEG whose scans leave bits of its coefficients out. libjpeg smooths such an image across the borders of its blocks,
// and differently when it decodes a region: the pixels of a crop would not be those of the whole image.
bool lacks_scans(const EncodedImage& jpeg);

// How many scans a JPEG of so many pixels may have. A scan can be a few hundred bytes long but costs a pass over all coefficients, so
// a small file could take minutes. Encoders write about ten. The limit falls with the size of the image, so the total work is bounded.
int max_scans(double pixels);
bool has_too_many_scans(const EncodedImage& jpeg, double pixels);
[[noreturn]] void reject_scans(int most);

struct JpegFrame {
  int marker = 0;  // SOF0 and so on: see JpegMarker
  int bits = 0;    // of a sample
};

// Returns the only frame before the first scan. All zeros if parsers may disagree about it: for two frame headers, and for other bytes between the
// segments.
JpegFrame first_frame(const EncodedImage& image);

}  // namespace ndd
