// SPDX-License-Identifier: Apache-2.0
// What JPEG compression does to an image, without the bits: colors to YCbCr, chroma at half the resolution, discrete cosine transform of 8x8 blocks,
// quantization, and all of it back. In the integer arithmetic of libjpeg (its accurate "islow" transform, fancy upsampling), so the results
// are those of a real encoder and decoder. What CPU and CUDA share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "ndd/args.h"
#include "ndd/hd.h"
#include "ndd/samples.h"

namespace ndd::jpeg {

// Tables K.1 and K.2 of ITU-T T.81: steps of luma and chroma for quality 50.
constexpr uint8_t kSteps[2][64] = {
    {16, 11, 10, 16, 24, 40,  51,  61, 12, 12, 14, 19, 26, 58,  60,  55, 14, 13, 16, 24, 40,  57,  69,  56,  14, 17, 22, 29, 51,  87,  80,  62,
     18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92, 49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99},
    {17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, 99, 99, 99, 99, 99, 47, 66, 99, 99, 99, 99, 99, 99,
     99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99}};

struct Steps {
  uint8_t step[2][64];  // of luma and chroma, row by row

  explicit Steps(int64_t quality) {
    const int64_t q = std::clamp<int64_t>(quality, 1, 100), percent = q < 50 ? 5000 / q : 200 - 2 * q;
    for (int t = 0; t < 2; ++t)
      for (int k = 0; k < 64; ++k) step[t][k] = static_cast<uint8_t>(std::clamp<int64_t>((kSteps[t][k] * percent + 50) / 100, 1, 255));
  }
};

NDD_HD int32_t rounded_shift(int32_t value, int bits) { return (value + (1 << (bits - 1))) >> bits; }
NDD_HD int32_t level(int32_t value) { return value < 0 ? 0 : value > 255 ? 255 : value; }

// Colors, with factors in 16 bits. Luma is centered about 0; so is chroma after to_chroma_mean.
NDD_HD int32_t luma(int32_t r, int32_t g, int32_t b) { return ((19595 * r + 38470 * g + 7471 * b + 32768) >> 16) - 128; }
NDD_HD int32_t blue_chroma(int32_t r, int32_t g, int32_t b) { return (-11059 * r - 21709 * g + 32768 * b + (128 << 16) + 32767) >> 16; }
NDD_HD int32_t red_chroma(int32_t r, int32_t g, int32_t b) { return (32768 * r - 27439 * g - 5329 * b + (128 << 16) + 32767) >> 16; }
// Of four pixels; halves are rounded down and up by turns.
NDD_HD int32_t chroma_mean(int32_t sum, bool odd_column) { return ((sum + (odd_column ? 2 : 1)) >> 2) - 128; }

NDD_HD int32_t to_red(int32_t y, int32_t cr) { return level(y + ((91881 * (cr - 128) + 32768) >> 16)); }
NDD_HD int32_t to_green(int32_t y, int32_t cb, int32_t cr) { return level(y + ((-22554 * (cb - 128) - 46802 * (cr - 128) + 32768) >> 16)); }
NDD_HD int32_t to_blue(int32_t y, int32_t cb) { return level(y + ((116130 * (cb - 128) + 32768) >> 16)); }

// Cosine transform of eight numbers, as Loeffler, Ligtenberg and Moschytz compute it with 12 multiplications (1989), with factors in 13 bits. Between
// the two directions numbers have 2 bits more, and the coefficients are eight times those of the standard.
constexpr int kFactorBits = 13, kExtraBits = 2;

struct Odd {
  int32_t a, b, c, d;
};

// The half of the flow graph that both transforms have: rotations of four numbers.
NDD_HD Odd rotate_odd(int32_t a, int32_t b, int32_t c, int32_t d) {
  const int32_t both = 9633 * (a + b + c + d), ad = -7373 * (a + d), bc = -20995 * (b + c), ac = both - 16069 * (a + c), bd = both - 3196 * (b + d);
  return {2446 * a + ad + ac, 16819 * b + bc + bd, 25172 * c + bc + ac, 12299 * d + ad + bd};
}

// kPass 0 is the first direction, along the rows.
template <int kPass>
NDD_HD void forward(int32_t* v) {
  constexpr int kShift = kPass == 0 ? kFactorBits - kExtraBits : kFactorBits + kExtraBits;
  const int32_t s0 = v[0] + v[7], s1 = v[1] + v[6], s2 = v[2] + v[5], s3 = v[3] + v[4];
  const Odd odd = rotate_odd(v[3] - v[4], v[2] - v[5], v[1] - v[6], v[0] - v[7]);
  const int32_t outer = s0 + s3, inner = s1 + s2, outer_apart = s0 - s3, inner_apart = s1 - s2, both = 4433 * (inner_apart + outer_apart);
  v[0] = kPass == 0 ? (outer + inner) * (1 << kExtraBits) : rounded_shift(outer + inner, kExtraBits);
  v[4] = kPass == 0 ? (outer - inner) * (1 << kExtraBits) : rounded_shift(outer - inner, kExtraBits);
  v[2] = rounded_shift(both + 6270 * outer_apart, kShift);
  v[6] = rounded_shift(both - 15137 * inner_apart, kShift);
  v[7] = rounded_shift(odd.a, kShift);
  v[5] = rounded_shift(odd.b, kShift);
  v[3] = rounded_shift(odd.c, kShift);
  v[1] = rounded_shift(odd.d, kShift);
}

// kPass 0 is the first direction, along the columns.
template <int kPass>
NDD_HD void inverse(int32_t* v) {
  constexpr int kShift = kPass == 0 ? kFactorBits - kExtraBits : kFactorBits + kExtraBits + 3;
  const int32_t both = 4433 * (v[2] + v[6]), low = both - 15137 * v[6], high = both + 6270 * v[2];
  const int32_t sum = (v[0] + v[4]) * (1 << kFactorBits), apart = (v[0] - v[4]) * (1 << kFactorBits);
  const int32_t e0 = sum + high, e3 = sum - high, e1 = apart + low, e2 = apart - low;
  const Odd odd = rotate_odd(v[7], v[5], v[3], v[1]);
  v[0] = rounded_shift(e0 + odd.d, kShift);
  v[7] = rounded_shift(e0 - odd.d, kShift);
  v[1] = rounded_shift(e1 + odd.c, kShift);
  v[6] = rounded_shift(e1 - odd.c, kShift);
  v[2] = rounded_shift(e2 + odd.b, kShift);
  v[5] = rounded_shift(e2 - odd.b, kShift);
  v[3] = rounded_shift(e3 + odd.a, kShift);
  v[4] = rounded_shift(e3 - odd.a, kShift);
}

// A coefficient, eight times too large, to the nearest multiple of the step, halves away from zero. The quotient is exact in float: the numbers have
// 15 bits, and half a unit more keeps it from the next integer.
NDD_HD int32_t quantize(int32_t coefficient, int32_t step, float inverse_step) {
  const int32_t magnitude = coefficient < 0 ? -coefficient : coefficient;
  const int32_t times = static_cast<int32_t>((static_cast<float>(magnitude + 4 * step) + 0.5f) * inverse_step);
  return (coefficient < 0 ? -times : times) * step;
}

NDD_HD float inverse_step(int32_t step) { return 1.0f / static_cast<float>(8 * step); }

// Chroma at full resolution: three parts of the nearest sample and one of the next, in both directions. `sum` and `next` are columns, 3 * near + far.
NDD_HD int32_t upsample_chroma(int32_t sum, int32_t next, bool right) { return (3 * sum + next + (right ? 7 : 8)) >> 4; }

// Images of up to four columns have their chroma repeated instead.
constexpr int64_t kSmoothWidth = 5;

NDD_HD int64_t chroma_extent(int64_t extent) { return (extent + 1) / 2; }

// The images of a call: samples, or frames of them.
struct Frames {
  Samples in, out;
  Args<int64_t> qualities;
  int64_t first;  // 1 for sequences

  Frames(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& quality, const Tensor& output, const MaybeTensor& output_shapes)
      : in(input, input_shapes), out(output, output_shapes), qualities(quality), first(in.ndim() - 3) {
    if (in.dtype() != DType::uint8 || (first != 0 && first != 1))
      fail(Error::Value, "jpeg_compression_distortion: images must be uint8, with height, width and channels, or frames of such images");
    check_same("jpeg_compression_distortion", out, in);
  }

  int64_t count(int64_t i) const { return first ? in.shape(i)[0] : 1; }
  int64_t height(int64_t i) const { return in.shape(i)[first]; }
  int64_t width(int64_t i) const { return in.shape(i)[first + 1]; }
  int64_t quality(int64_t i, int64_t frame) const { return qualities.of_frame(i, frame); }
  const uint8_t* source(int64_t i, int64_t frame) const { return static_cast<const uint8_t*>(in.data(i)) + 3 * frame * height(i) * width(i); }
  uint8_t* target(int64_t i, int64_t frame) const { return static_cast<uint8_t*>(out.data(i)) + 3 * frame * height(i) * width(i); }

  void check(int64_t i) const {
    const std::string sample = "jpeg_compression_distortion: sample " + std::to_string(i) + " has ";
    if (in.shape(i)[first + 2] != 3) fail(sample, in.shape(i)[first + 2], " channels, not 3");
    if (qualities.cols() > 1 && qualities.cols() < count(i)) fail(sample, count(i), " frames, quality has ", qualities.cols(), " numbers");
  }
};

}  // namespace ndd::jpeg
