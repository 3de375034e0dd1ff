// SPDX-License-Identifier: Apache-2.0
// The arithmetic and the arguments of color steps with the roundings of OpenCV on uint8, for translated Albumentations: factors by table, saturation
// towards the 8-bit gray image, and shifts in the 8-bit HSV color space, whose hue has 180 levels. Exact color arithmetic would differ by several levels.
// Levels are integers in float; whatever OpenCV computes in fixed point stays below 2^24, where float is exact and vectorizes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ndd/args.h"
#include "ndd/color/planes.h"
#include "ndd/error.h"
#include "ndd/hd.h"
#include "ndd/python_interface.h"

namespace ndd::opencv_colors {

// scale: factor. contrast: factor about the mean of the gray image. saturation: factor. hsv: shifts of hue, saturation and value. mix: a matrix, row by row.
NDD_ENUM("opencv_colors.Kind", Kind, int64_t, none, scale, contrast, saturation, hsv, mix);

constexpr int64_t kNumbers = 10;  // of a step: its kind and up to nine parameters
constexpr int kHues = 180, kMaxSteps = 4;

struct Step {
  Kind kind;
  double factor;  // of levels, or the shift of the value of a gray image
  float numbers[9];  // the parameters of a change of colors

  // Whether each level of the result depends on the same level alone, for which a table is made.
  NDD_HD bool maps_levels(int64_t channels) const { return kind == Kind::scale || kind == Kind::contrast || (channels == 1 && kind == Kind::hsv); }
};

// The steps of an image that change it.
struct Steps {
  Step step[kMaxSteps];
  int32_t count = 0;

  // The first contrast from `begin` on, which needs the mean of what the steps before it make; `count` if there is none.
  NDD_HD int32_t next_contrast(int32_t begin) const {
    while (begin < count && step[begin].kind != Kind::contrast) ++begin;
    return begin;
  }
};

// A shift of the hue as an integer number of levels from 0 to 179.
inline float whole_hue(double shift) {
  const double turned = std::fmod(shift, kHues);
  return static_cast<float>(std::min(std::floor(turned < 0.0 ? turned + kHues : turned), kHues - 1.0));
}

// The steps of sample i. Gray images have neither saturation nor hue to change.
inline Steps read_steps(const Args<double>& numbers, int64_t i, int64_t channels) {
  Steps steps;
  for (int64_t k = 0; k < numbers.cols(); k += kNumbers) {
    for (int64_t n = 0; n < kNumbers; ++n)
      if (!std::isfinite(numbers(i, k + n))) fail("opencv_colors: the numbers of a step must be finite, sample ", i);
    const double kind = numbers(i, k);
    if (kind < 0 || kind > static_cast<double>(Kind::mix)) fail("opencv_colors: unknown kind of step, sample ", i);
    Step step{static_cast<Kind>(static_cast<int64_t>(kind)), numbers(i, k + 1), {}};
    for (int64_t n = 1; n < kNumbers; ++n) step.numbers[n - 1] = static_cast<float>(numbers(i, k + n));
    if (step.kind == Kind::none || (channels == 1 && (step.kind == Kind::saturation || step.kind == Kind::mix))) continue;
    if (step.kind == Kind::saturation) step.numbers[1] = static_cast<float>(1.0 - step.factor);
    if (step.kind == Kind::hsv) {
      step.numbers[0] = whole_hue(step.factor);
      step.factor = std::trunc(numbers(i, k + 3));
      step.numbers[1] = static_cast<float>(std::trunc(numbers(i, k + 2)));
      step.numbers[2] = static_cast<float>(step.factor);
    }
    steps.step[steps.count++] = step;
  }
  return steps;
}

inline void check_arguments(const Samples& in, const Samples& out, const Args<double>& numbers) {
  if (in.dtype() != DType::uint8 || out.dtype() != DType::uint8) fail("opencv_colors: images must be uint8");
  check_outputs("opencv_colors", out, in);
  const int64_t samples = in.size();
  if (samples == 0) return;
  if (numbers.rows() != samples || numbers.cols() % kNumbers != 0 || numbers.cols() > kMaxSteps * kNumbers)
    fail("opencv_colors: expected ", kNumbers, " numbers for each of up to ", kMaxSteps, " steps of ", samples, " samples");
}

// A level of the table of a step, in double as Albumentations computes tables. `mean` is that of the gray image, for contrast.
NDD_HD uint8_t map_level(const Step& step, int level, double mean) {
  const double factor = step.kind == Kind::hsv ? 1.0 : step.factor;
  const double term = step.kind == Kind::hsv ? step.factor : step.kind == Kind::contrast ? (1.0 - step.factor) * mean : 0.0;
#ifdef __CUDA_ARCH__
  const double value = __dadd_rn(__dmul_rn(factor, static_cast<double>(level)), term);
#else
  const double product = factor * static_cast<double>(level), value = product + term;
#endif
  return static_cast<uint8_t>(value > 0.0 ? value < 255.0 ? value : 255.0 : 0.0);
}

// By value, because gcc takes the references of std::max for branches.
NDD_HD float larger(float a, float b) { return a > b ? a : b; }
NDD_HD float smaller(float a, float b) { return a < b ? a : b; }
NDD_HD float clamp_level(float value) { return smaller(larger(value, 0.0f), 255.0f); }

// A product that nvcc does not fuse with the sum it is used in.
NDD_HD float multiply(float a, float b) { return mul_then_add(a, b, 0.0f); }

// BT.601 in 15 bits; the weights add up to 1.
NDD_HD float gray_of(float r, float g, float b) {
  const float sum = 9798.0f * r + 19235.0f * g + 3735.0f * b;  // exact, fused or not
  return floorf((sum + 16384.0f) * (1.0f / 32768.0f));
}

NDD_HD void saturate_color(const Step& step, float& r, float& g, float& b) {
  const float factor = step.numbers[0], gray = step.numbers[1] * gray_of(r, g, b);
  // Rounded once, as by OpenCV's vector instructions.
  r = clamp_level(rintf(fmaf(r, factor, gray)));
  g = clamp_level(rintf(fmaf(g, factor, gray)));
  b = clamp_level(rintf(fmaf(b, factor, gray)));
}

NDD_HD void mix_color(const Step& step, float& r, float& g, float& b) {
  const float* w = step.numbers;
  const float red = mul_then_add(w[2], b, mul_then_add(w[1], g, w[0] * r));
  const float green = mul_then_add(w[5], b, mul_then_add(w[4], g, w[3] * r));
  const float blue = mul_then_add(w[8], b, mul_then_add(w[7], g, w[6] * r));
  r = clamp_level(rintf(red)), g = clamp_level(rintf(green)), b = clamp_level(rintf(blue));
}

// A fixed-point number with 12 fractional bits, rounded to an integer.
NDD_HD float round_fixed(float value) { return floorf((value + 2048.0f) * (1.0f / 4096.0f)); }

// To the 8-bit HSV of OpenCV in fixed point, with whole shifts there, and back in float with the roundings of OpenCV 5, which cuts off fractions.
NDD_HD void shift_hsv(const Step& step, float& r, float& g, float& b) {
  constexpr float kHueUnit = 30.0f * 4096.0f, kSaturationUnit = 255.0f * 4096.0f;
  const float high = larger(larger(r, g), b), difference = high - smaller(smaller(r, g), b);
  // OpenCV's tables of reciprocals. No quotient is as close to a half as the rounding of the division.
  const float hue_scale = rintf(kHueUnit / larger(difference, 1.0f)), saturation_scale = rintf(kSaturationUnit / larger(high, 1.0f));
  // The hue within its third of the circle, plus that of the third's first color, in units of the difference.
  const float of_blue = r - g + 4.0f * difference, of_green = b - r + 2.0f * difference, of_red = g - b;
  const float turns = high == r ? of_red : high == g ? of_green : of_blue;
  const float turned = round_fixed(turns * hue_scale), positive = turned < 0.0f ? turned + kHues : turned;
  const float shifted = positive + step.numbers[0], hue = shifted >= kHues ? shifted - kHues : shifted;
  const float old_saturation = round_fixed(difference * saturation_scale);
  const float new_saturation = old_saturation > 0.0f ? clamp_level(old_saturation + step.numbers[1]) : 0.0f;  // gray stays gray
  const float saturation = multiply(new_saturation, 1.0f / 255.0f), value = clamp_level(high + step.numbers[2]) * (1.0f / 255.0f);
  // Of a sector's levels one channel has the highest, one the lowest and one a level that rises, or falls in odd sectors.
  const float position = multiply(hue, 6.0f / 180.0f), floor_of_position = floorf(position), part = position - floor_of_position;
  const float sector = smaller(floor_of_position, 5.0f), pair = floorf(sector * 0.5f), odd = sector - 2.0f * pair;
  const float share = odd > 0.0f ? part : 1.0f - part;
  const float highest = floorf(value * 255.0f), lowest = floorf(value * (1.0f - saturation) * 255.0f);
  const float between = floorf(value * fmaf(-saturation, share, 1.0f) * 255.0f);
  // Sectors in pairs begin with red, green and blue; the third channel of a pair's sectors is between in its first or second one.
  const float first = odd > 0.0f ? between : highest, second = odd > 0.0f ? highest : between;
  r = pair == 0.0f ? first : pair == 1.0f ? lowest : second;
  g = pair == 0.0f ? second : pair == 1.0f ? first : lowest;
  b = pair == 0.0f ? lowest : pair == 1.0f ? second : first;
}

}  // namespace ndd::opencv_colors
