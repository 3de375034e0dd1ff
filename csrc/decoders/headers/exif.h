// SPDX-License-Identifier: Apache-2.0
// The orientation in EXIF data, which JPEG carries in a segment, PNG and WebP in a chunk.
#pragma once

#include "decoders/orientation.h"

#include <cstddef>
#include <cstdint>

namespace ndd {

// Reads the content of the segment or chunk: a TIFF structure, with or without the prefix "Exif\0\0". Returns the upright orientation if there is
// none or the data are damaged: the pixels are still good.
Orientation read_exif_orientation(const uint8_t* data, size_t size);

}  // namespace ndd
