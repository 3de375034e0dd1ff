// SPDX-License-Identifier: Apache-2.0
// Frames of videos from the planes that decoders produce: YUV of 8 to 16 bits, with chroma of full or half size, to RGB bytes. In the integer
// arithmetic of FFmpeg's libswscale on x86, so a frame decoded on a GPU has the pixels of the same frame decoded on the CPU. What CPU and CUDA
// share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include "ndd/dtypes.h"
#include "ndd/error.h"
#include "ndd/hd.h"
#include "ndd/python_interface.h"
#include "ndd/tensor.h"

namespace ndd::yuv {

NDD_PLAIN_ENUM("yuv_to_rgb.Matrix", Matrix, int64_t, bt601, bt709, fcc, smpte240m, bt2020);

// How libswscale converts a frame. It depends on the format and on whether the size is even.
enum class Rule {
  repeated,  // 8 bits, even height: products of 16 bits, rounded down one by one; chroma is repeated. Up to 3 levels below the formula.
  stepped,   // more bits or an odd height: chroma is interpolated between rows and moves luma by whole steps. Up to 5 levels from the formula.
  exact,     // chroma of full width, or an odd width: rounded once. Chroma of half size is interpolated in both directions.
};

constexpr int kTaps = 5;

struct Taps {
  int32_t first;
  int32_t weight[kTaps];
};

struct Plane {
  const void* data;
  int64_t stride;  // elements from row to row
};

// A frame to convert, and the constants of its conversion.
struct Frame {
  Plane luma, blue, red;
  uint8_t* out;
  int32_t height, width, chroma_height, chroma_width;
  int32_t step;   // elements from one blue sample to the next: 2 if red ones lie between them
  int32_t shift;  // from samples to 16 bits
  int32_t row_increment, column_increment;  // chroma samples from pixel to pixel, in 1/65536
  Taps inner[2];  // of even and odd rows away from the border if rows of chroma are repeated exactly once; relative to the row of chroma
  Rule rule;
  int32_t offset, luma_factor, red_v, green_u, green_v, blue_u;
  int32_t bias;  // of stepped
};

// The red, blue and green contributions of chroma in the definitions of the color spaces, for samples of limited range, in 16 bits.
struct Contributions {
  int64_t red_v, blue_u, green_u, green_v;
};
constexpr Contributions kContributions[] = {{104597, 132201, 25675, 53279},
                                            {117489, 138438, 13975, 34925},
                                            {104448, 132798, 24759, 53109},
                                            {117579, 136230, 16907, 35559},
                                            {110013, 140363, 12277, 42626}};

constexpr int64_t kOne = 1 << 16;
constexpr int64_t kUnit = 2 * kOne;  // of positions among chroma samples

// Limited to a byte.
NDD_HD int32_t level(int32_t value) { return value < 0 ? 0 : value > 255 ? 255 : value; }

// Weights of the samples around the place of pixel i by the cubic filter with parameter -0.6, as integers with the sum `one`. The remainder of
// each goes to the next.
NDD_HD Taps find_taps(int32_t i, int32_t increment, int32_t one) {
  const int64_t place = (2 * int64_t{i} + 1) * increment - kOne;
  Taps taps{static_cast<int32_t>((place - 3 * kOne) / kUnit), {}};  // rounded toward 0, also at the upper border
  int64_t weights[kTaps], sum = 0, rest = 0;
#pragma unroll 1  // of few rows: small rather than fast
  for (int j = 0; j < kTaps; ++j) {
    const int64_t apart = (taps.first + j) * kUnit - place, distance = apart < 0 ? -apart : apart;
    const int64_t d = distance < 2 * kUnit ? distance : 2 * kUnit;  // where the weight is 0
    const int64_t near = 7 * d * d * d - 12 * d * d * kUnit + 5 * kUnit * kUnit * kUnit;
    const int64_t far = -3 * d * d * d + 15 * d * d * kUnit - 24 * d * kUnit * kUnit + 12 * kUnit * kUnit * kUnit;
    weights[j] = (d < kUnit ? near : far) >> 12;  // 42 bits, with which the products below fit
    sum += weights[j];
  }
#pragma unroll 1
  for (int j = 0; j < kTaps; ++j) {
    const int64_t value = weights[j] * one + rest, twice = 2 * value + sum;
    const int64_t rounded = twice >= 0 ? twice / (2 * sum) : -((2 * sum - 1 - twice) / (2 * sum));
    rest = value - rounded * sum;
    taps.weight[j] = static_cast<int32_t>(rounded);
  }
  return taps;
}

constexpr int32_t kRowOne = 1 << 12, kColumnOne = 1 << 14;

NDD_HD Taps find_row_taps(const Frame& f, int32_t row) {
  // With chroma of half height, rows away from the upper border have one of two sets of weights.
  if (f.row_increment != kOne / 2 || row < 4) return find_taps(row, f.row_increment, kRowOne);
  Taps taps = f.inner[row % 2];
  taps.first += row / 2;
  return taps;
}

NDD_HD int32_t clamp_index(int32_t at, int32_t count) { return at < 0 ? 0 : at < count ? at : count - 1; }

template <class T>
NDD_HD const T* row_of(const Plane& plane, int32_t row) {
  return static_cast<const T*>(plane.data) + row * plane.stride;
}

// Of 15 bits.
template <class T>
NDD_HD int32_t sample_of(const Frame& f, T value) {
  return static_cast<int32_t>((static_cast<uint32_t>(value) << f.shift) >> 1);
}

struct Rgb {
  uint8_t r, g, b;
};

NDD_HD Rgb rgb_of(int32_t r, int32_t g, int32_t b) {
  return {static_cast<uint8_t>(level(r)), static_cast<uint8_t>(level(g)), static_cast<uint8_t>(level(b))};
}

// What a pair of chroma samples adds to luma.
struct Tint {
  int32_t r, g, b;
};

NDD_HD Tint tint_repeated(const Frame& f, int32_t u, int32_t v) {
  // Around 0, in an eighth of a level: the products are those of 16-bit vector instructions, which keep the upper half.
  u = 8 * u - 1024, v = 8 * v - 1024;
  return {(v * f.red_v) >> 16, ((u * f.green_u) >> 16) + ((v * f.green_v) >> 16), (u * f.blue_u) >> 16};
}
NDD_HD Rgb pixel_repeated(const Frame& f, int32_t y, const Tint& tint) {
  const int32_t luma = ((8 * y - f.offset) * f.luma_factor) >> 16;
  return rgb_of(luma + tint.r, luma + tint.g, luma + tint.b);
}

// In steps of luma, of u and v from 0 to 255.
NDD_HD int32_t steps_of(int32_t chroma, int32_t factor) { return ((chroma * factor) >> 16) - (factor >> 9); }
NDD_HD Tint tint_stepped(const Frame& f, int32_t u, int32_t v) {
  return {steps_of(v, f.red_v), steps_of(u, f.green_u) + steps_of(v, f.green_v), steps_of(u, f.blue_u)};
}
// Luma of 15 bits.
NDD_HD Rgb pixel_stepped(const Frame& f, int32_t luma, const Tint& tint) {
  const int32_t y = level((luma + 64) >> 7);
  const auto value = [&](int32_t steps) { return (f.bias + (y + steps) * f.luma_factor) >> 16; };
  return rgb_of(value(tint.r), value(tint.g), value(tint.b));
}

// Luma of 15 bits; chroma of 17 around 0.
NDD_HD Rgb pixel_exact(const Frame& f, int32_t luma, int32_t u, int32_t v) {
  const int64_t y = int64_t{4 * luma - f.offset} * f.luma_factor + (1 << 21);
  const auto value = [](int64_t sum) { return static_cast<int32_t>(sum >> 22); };
  return rgb_of(value(y + int64_t{v} * f.red_v), value(y + int64_t{v} * f.green_v + int64_t{u} * f.green_u), value(y + int64_t{u} * f.blue_u));
}

// Chroma interpolated between rows, of 8 bits; `at(row)` is a sample of 15 bits.
template <class At>
NDD_HD int32_t chroma_between_rows(const Frame& f, const Taps& taps, At at) {
  int32_t sum = 1 << 18;
  for (int j = 0; j < kTaps; ++j) sum += taps.weight[j] * at(clamp_index(taps.first + j, f.chroma_height));
  return level(sum >> 19);
}

// Chroma at a pixel, interpolated where it is smaller than luma: of 17 bits around 0.
template <class T>
NDD_HD int32_t chroma_at(const Frame& f, const Plane& plane, const Taps& rows, int32_t row, int32_t x) {
  if (f.chroma_width == f.width && f.chroma_height == f.height) return (sample_of(f, row_of<T>(plane, row)[x * f.step]) - (1 << 14)) * 4;
  const Taps columns = find_taps(x, f.column_increment, kColumnOne);
  int32_t sum = (1 << 9) - (128 << 19);
#pragma unroll 1
  for (int j = 0; j < kTaps; ++j) {
    const T* const samples = row_of<T>(plane, clamp_index(rows.first + j, f.chroma_height));
    int32_t across = 0;
#pragma unroll 1
    for (int k = 0; k < kTaps; ++k)
      across += columns.weight[k] *
                static_cast<int32_t>(static_cast<uint32_t>(samples[clamp_index(columns.first + k, f.chroma_width) * f.step]) << f.shift);
    across >>= 15;
    sum += rows.weight[j] * (across < 32767 ? across : 32767);
  }
  return sum >> 10;
}

// Pixels [begin, end) of a row; `begin` is even.
template <class T, Rule rule>
NDD_HD void convert_pixels(const Frame& f, int32_t row, int32_t begin, int32_t end) {
  const T* const luma = row_of<T>(f.luma, row);
  uint8_t* out = f.out + (int64_t{row} * f.width + begin) * 3;
  const auto store = [&](const Rgb& pixel) { out[0] = pixel.r, out[1] = pixel.g, out[2] = pixel.b, out += 3; };
  if constexpr (rule == Rule::exact) {
    const Taps taps = find_row_taps(f, row);
    for (int32_t x = begin; x < end; ++x)
      store(pixel_exact(f, sample_of(f, luma[x]), chroma_at<T>(f, f.blue, taps, row, x), chroma_at<T>(f, f.red, taps, row, x)));
  } else if constexpr (rule == Rule::stepped) {
    const Taps taps = find_row_taps(f, row);
    for (int32_t x = begin; x < end; x += 2) {
      const auto chroma = [&](const Plane& plane) {
        return chroma_between_rows(f, taps, [&](int32_t y) { return sample_of(f, row_of<T>(plane, y)[x / 2 * f.step]); });
      };
      const Tint tint = tint_stepped(f, chroma(f.blue), chroma(f.red));
      for (int32_t k = x; k < x + 2 && k < end; ++k) store(pixel_stepped(f, sample_of(f, luma[k]), tint));
    }
  } else {
    const int32_t chroma_row = f.chroma_height == f.height ? row : row / 2;
    const T *const blue = row_of<T>(f.blue, chroma_row), *const red = row_of<T>(f.red, chroma_row);
    for (int32_t x = begin; x < end; x += 2) {
      const Tint tint = tint_repeated(f, blue[x / 2 * f.step], red[x / 2 * f.step]);
      for (int32_t k = x; k < x + 2 && k < end; ++k) store(pixel_repeated(f, luma[k], tint));
    }
  }
}

// Calls call(T(), std::integral_constant<Rule, rule>()) for the type of the samples and the rule.
template <class Call>
void with_types(DType dtype, Rule rule, Call call) {
  const auto with_rule = [&](auto zero) {
    if (rule == Rule::exact) call(zero, std::integral_constant<Rule, Rule::exact>());
    else call(zero, std::integral_constant<Rule, Rule::stepped>());
  };
  if (rule == Rule::repeated) call(uint8_t{}, std::integral_constant<Rule, Rule::repeated>());
  else if (dtype == DType::uint8) with_rule(uint8_t{});
  else with_rule(uint16_t{});
}

// Checks the planes, uint8 or uint16 (rows, columns) with any distance between rows, and the output, uint8 (height, width, 3). `bits`: of the samples,
// counted from the lowest one, or the highest ones of 16 if it is 16.
inline Frame frame_of(const Tensor& luma, const Tensor& blue, const Tensor& red, int64_t bits, int64_t matrix, bool full_range,
                      const Tensor& output) {
  const char* const op = "yuv_to_rgb: ";
  const bool bytes = luma.dtype() == DType::uint8;
  if (!bytes && luma.dtype() != DType::uint16) fail(op, "samples must be uint8 or uint16");
  if (bytes ? bits != 8 : bits < 9 || bits > 16) fail(op, "samples of ", bits, " bits do not have this type");
  if (matrix < 0 || matrix >= static_cast<int64_t>(std::size(kContributions))) fail(op, "unknown matrix ", matrix);
  if (luma.dim() != 2 || blue.dim() != 2) fail(op, "a plane must have rows and columns");
  const int64_t height = luma.size(0), width = luma.size(1), rows = blue.size(0), columns = blue.size(1);
  if (height < 1 || width < 1 || height > (1 << 20) || width > (1 << 20)) fail(op, "frames of ", height, "x", width, " are not supported");
  for (const Tensor* chroma : {&blue, &red})
    if (chroma->dim() != 2 || chroma->dtype() != luma.dtype() || chroma->size(0) != rows || chroma->size(1) != columns)
      fail(op, "the planes must have one type, and those of chroma one size");
  if ((rows != height && rows != (height + 1) / 2) || (columns != width && columns != (width + 1) / 2))
    fail(op, "chroma of ", rows, "x", columns, " does not belong to luma of ", height, "x", width);
  // A plane of one column has any stride.
  const int64_t step = columns > 1 ? blue.stride(1) : 1;
  if ((width > 1 && luma.stride(1) != 1) || (step != 1 && step != 2) || (columns > 1 && red.stride(1) != step))
    fail(op, "samples must lie side by side, or blue and red ones alternately");
  if (!output.is_contiguous() || output.dtype() != DType::uint8 || output.dim() != 3 || output.size(0) != height || output.size(1) != width ||
      output.size(2) != 3)
    fail(op, "the output must be uint8 ", height, "x", width, "x3");

  Frame f{};
  f.luma = {luma.data_ptr(), luma.stride(0)}, f.blue = {blue.data_ptr(), blue.stride(0)}, f.red = {red.data_ptr(), red.stride(0)};
  f.out = static_cast<uint8_t*>(output.data_ptr());
  f.height = static_cast<int32_t>(height), f.width = static_cast<int32_t>(width);
  f.chroma_height = static_cast<int32_t>(rows), f.chroma_width = static_cast<int32_t>(columns);
  f.step = static_cast<int32_t>(step), f.shift = static_cast<int32_t>(16 - bits);
  f.row_increment = static_cast<int32_t>((rows * kOne + height / 2) / height);
  f.column_increment = static_cast<int32_t>((columns * kOne + width / 2) / width);
  for (int k = 0; k < 2; ++k) {
    f.inner[k] = find_taps(4 + k, static_cast<int32_t>(kOne / 2), kRowOne);
    f.inner[k].first -= 2;  // the row of chroma is 2
  }
  f.rule = columns == width || width % 2 != 0 ? Rule::exact : Rule::stepped;
  if (bytes && columns != width && height % 2 == 0) f.rule = Rule::repeated;  // also of an odd width

  // Limited range: luma from 16 to 235, chroma from 16 to 240.
  const Contributions& c = kContributions[matrix];
  const auto scaled = [&](int64_t value) { return full_range ? value * 224 / 255 : value; };
  const int64_t luma_factor = full_range ? kOne : kOne * 255 / 219, black = full_range ? 0 : 16;
  // To 13 bits, or to luma's steps in 16 bits.
  const auto factor = [&](int64_t value) {
    const bool stepped = f.rule == Rule::stepped;
    const int64_t in_steps = (value * 65536 + 0x8000) / luma_factor, limit = 32767;
    return static_cast<int32_t>(stepped ? in_steps : std::clamp((value * 8192 + 0x8000) >> 16, -limit, limit));
  };
  f.red_v = factor(scaled(c.red_v)), f.blue_u = factor(scaled(c.blue_u));
  f.green_u = factor(-scaled(c.green_u)), f.green_v = factor(-scaled(c.green_v));
  f.luma_factor = static_cast<int32_t>(f.rule == Rule::stepped ? luma_factor : (luma_factor * 8192 + 0x8000) >> 16);
  f.offset = static_cast<int32_t>(black * (f.rule == Rule::exact ? 512 : 8));
  // libswscale's table of levels begins 384 of them before black; limited luma enters it at step 326.
  f.bias = static_cast<int32_t>((full_range ? 384 : 326) * luma_factor - (384 + black) * kOne + 0x8000);
  return f;
}

}  // namespace ndd::yuv
