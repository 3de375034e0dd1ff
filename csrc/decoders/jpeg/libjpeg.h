// SPDX-License-Identifier: Apache-2.0
// libjpeg-turbo for what nvImageCodec lacks: decoding at a fraction of the size, and encoding. It is optional: see has_libjpeg().
#pragma once

#include "decoders/encoded_image.h"
#include "decoders/orientation.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ndd {

// Returns, for example, "libjpeg-turbo 2.1.5", or "none".
const char* libjpeg_version();
bool has_libjpeg();

// The inverse DCT turns blocks of 8x8 samples into blocks of k x k: a scale of k eighths.
constexpr int kWholeScale = 8;

// Returns the scaled extent of an axis. It cannot overflow: JPEG's extents have 16 bits.
inline int64_t scaled_extent(int64_t extent, int eighths) { return (extent * eighths + kWholeScale - 1) / kWholeScale; }

enum class JpegColors { rgb, bgr, gray };

struct ScaledJpeg {
  EncodedImage file;
  int64_t height, width;  // of the whole image, from the parser
  int eighths;
  CropWindow part;  // a window within the scaled image
  JpegColors colors;
  bool fast_idct;
};

// Fills `out` with dense rows of the part. Returns false without libjpeg, or if it fails, which leaves `out` undefined; corrupt data for
// which libjpeg only warns are not a failure. Throws Error for a file with too many scans.
bool decode_scaled_jpeg(const ScaledJpeg& image, uint8_t* out);

// Encodes an image of 1 or 3 channels (gray, RGB) in dense rows; `subsampled`: chroma of half the height and width. Throws Error without libjpeg.
std::vector<uint8_t> encode_jpeg(const uint8_t* pixels, int64_t height, int64_t width, int channels, int quality, bool subsampled);

}  // namespace ndd
