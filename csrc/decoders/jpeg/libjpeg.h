// SPDX-License-Identifier: Apache-2.0
// libjpeg-turbo for what nvImageCodec lacks: decoding at a part of the size, and encoding. Builds without it know that they have none.
#pragma once

#include "decoders/encoded_image.h"
#include "decoders/orientation.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ndd {

// "libjpeg-turbo 2.1.5", or "none".
const char* libjpeg_version();
bool has_libjpeg();

// JPEG's blocks of 8x8 samples become blocks of k x k: a scale of k eighths.
constexpr int kWholeScale = 8;

// Of an axis with `extent` pixels. No overflow: extents of JPEG have 16 bits.
inline int64_t scaled_extent(int64_t extent, int eighths) { return (extent * eighths + kWholeScale - 1) / kWholeScale; }

enum class JpegColors { rgb, bgr, gray };

struct ScaledJpeg {
  EncodedImage file;
  int64_t height, width;  // as a parser has read them, whole
  int eighths;
  CropWindow part;  // of the scaled image, inside of it
  JpegColors colors;
  bool fast_idct;
};

// Fills `out` with dense rows of the part. Returns false if there is no libjpeg, or if it gives up, which leaves anything in `out`. Corrupt data for
// which it only has a warning are no reason to. Throws for a file with more scans than it is worth.
bool decode_scaled_jpeg(const ScaledJpeg& image, uint8_t* out);

// The file of an image of 1 or 3 channels (gray, RGB), dense rows; `subsampled`: chroma of half the height and width. Throws without libjpeg.
std::vector<uint8_t> encode_jpeg(const uint8_t* pixels, int64_t height, int64_t width, int channels, int quality, bool subsampled);

}  // namespace ndd
