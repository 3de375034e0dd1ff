// SPDX-License-Identifier: Apache-2.0
// The orientation in EXIF data, which PNG and WebP carry in a chunk.
#pragma once

#include "decoders/orientation.h"

#include <cstddef>
#include <cstdint>

namespace ndd {

// Of the content of a chunk: a TIFF structure, behind "Exif\0\0" or not. Upright where there is none, or where it is damaged.
Orientation read_exif_orientation(const uint8_t* data, size_t size);

}  // namespace ndd
