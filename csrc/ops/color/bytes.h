// SPDX-License-Identifier: Apache-2.0
// Operators on a single uint8 image on the CPU, for kernels that apply several steps in one pass. Input and output must not overlap.
#pragma once

#include <cstdint>

#include "ndd/color/planes.h"

namespace ndd {

// A step of color_jitter; `kind` is 0 for brightness, 1 for contrast, 2 for saturation, 3 for hue.
void jitter_bytes(const ColorImage& image, int32_t kind, double factor, const uint8_t* in, uint8_t* out);

// autocontrast of interleaved channels, and of a float32 plane whose white is `white`; equalize of interleaved channels, by
// Pillow's rule if `stepped`, else by OpenCV's.
void stretch_bytes(const uint8_t* in, int64_t pixels, int64_t channels, uint8_t* out);
void stretch_plane(const float* in, int64_t count, float white, float* out);
void equalize_bytes(const uint8_t* in, int64_t pixels, int64_t channels, bool stepped, uint8_t* out);

// sharpness of interleaved channels.
void sharpen_bytes(const uint8_t* in, int64_t height, int64_t width, int64_t channels, double factor, uint8_t* out);

}  // namespace ndd
