// SPDX-License-Identifier: Apache-2.0
// The arithmetic and the arguments of color_jitter. Values of integer types are truncated after each step, as in torchvision.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "ndd/args.h"
#include "ndd/dtypes.h"
#include "ndd/error.h"
#include "ndd/hd.h"
#include "ops/color/levels.h"

namespace ndd::color_jitter {

enum Kind : int32_t { kBrightness, kContrast, kSaturation, kHue };
inline constexpr const char* kNames[] = {"brightness", "contrast", "saturation", "hue"};

// A step: factor and 1 - factor, each rounded once; or the turn of a hue, in sixths.
struct Step {
  int32_t kind;
  float factor, rest;
};

// The steps of one image, in order; `contrast` is the index of the contrast step, which needs the mean of the steps before it, or `count`.
struct Steps {
  Step step[4];
  int32_t count = 0, contrast = 0;
};

// Adds a step; false if it would change nothing. Factors in double: 1 - factor is rounded only once.
inline bool add_step(Steps& steps, int32_t kind, double factor, int64_t channels) {
  const bool hue = kind == kHue;
  if (factor == (hue ? 0.0 : 1.0) || (channels == 1 && kind > kContrast)) return false;
  if (kind != kContrast && steps.contrast == steps.count) ++steps.contrast;
  steps.step[steps.count++] = {kind, static_cast<float>(hue ? 6.0 * factor : factor), static_cast<float>(1.0 - factor)};
  return true;
}

// The values of a type: the largest, and factors to 0 ... 1 and back.
struct Levels {
  float white, to_unit, from_unit;
  bool whole;

  explicit Levels(DType dtype) : white(value_range(dtype)), to_unit(1.0f / white), whole(!is_floating_dtype(dtype)) {
    // torchvision's factor back to integers: 1 truncates to the largest level.
    from_unit = whole ? static_cast<float>(static_cast<double>(white) + 1.0 - 1e-3) : 1.0f;
  }
};

// Between a value and a gray one.
template <bool whole>
NDD_HD float blend(float value, float gray, const Step& step, float white) {
  return limit_level<whole>(fmaf(gray, step.rest, value * step.factor), white);
}

// A channel of a color of the largest value and chroma: `place` of a turn in sixths from where the channel begins to fall.
template <bool whole>
NDD_HD float of_hue(float place, float largest, float chroma, const Levels& levels) {
  const float k = place >= 6.0f ? place - 6.0f : place, near = k < 4.0f - k ? k : 4.0f - k;
  const float lower = near < 1.0f ? near : 1.0f, less = lower > 0.0f ? lower : 0.0f;
  const float mixed = limit_level<false>(fmaf(-chroma, less, largest), 1.0f), value = less > 0.0f ? mixed : largest;
  return whole ? floorf(value * levels.from_unit) : value;
}

// The hue of HSV: where among the six corners of the color circle a color lies, relative to its largest and smallest channel.
template <bool whole>
NDD_HD void turn(float& red, float& green, float& blue, float sixths, const Levels& levels) {
  const float r = whole ? red * levels.to_unit : red, g = whole ? green * levels.to_unit : green, b = whole ? blue * levels.to_unit : blue;
  const float rg = r > g ? r : g, largest = rg > b ? rg : b, small = r < g ? r : g, least = small < b ? small : b;
  const float chroma = largest - least, divisor = chroma > 0.0f ? chroma : 1.0f;
  const bool is_red = largest == r, is_green = largest == g;
  const float difference = is_red ? g - b : is_green ? b - r : r - g, corner = is_red ? 0.0f : is_green ? 2.0f : 4.0f;
  float hue = corner + difference / divisor + sixths;
  hue = hue < 0.0f ? hue + 6.0f : hue;
  hue = hue >= 6.0f ? hue - 6.0f : hue;
  red = of_hue<whole>(hue + 5.0f, largest, chroma, levels);
  green = of_hue<whole>(hue + 3.0f, largest, chroma, levels);
  blue = of_hue<whole>(hue + 1.0f, largest, chroma, levels);
}

// One step of a pixel. A pixel of one channel is `red` alone, which saturation and hue do not change.
template <bool whole>
NDD_HD void apply(const Step& step, float mean, const Levels& levels, int64_t channels, float& red, float& green, float& blue) {
  if (step.kind == kBrightness || step.kind == kContrast) {
    const float middle = step.kind == kContrast ? mean : 0.0f;  // contrast is a blend with the mean, brightness with black
    red = blend<whole>(red, middle, step, levels.white);
    green = blend<whole>(green, middle, step, levels.white);
    blue = blend<whole>(blue, middle, step, levels.white);
  } else if (channels == 3 && step.kind == kSaturation) {
    const float middle = gray_level<whole>(red, green, blue);
    red = blend<whole>(red, middle, step, levels.white);
    green = blend<whole>(green, middle, step, levels.white);
    blue = blend<whole>(blue, middle, step, levels.white);
  } else if (channels == 3) {
    turn<whole>(red, green, blue, step.factor, levels);
  }
}

// The arguments of a call, validated when a step is read.
class Arguments {
 public:
  Arguments(const MaybeTensor& brightness, const MaybeTensor& contrast, const MaybeTensor& saturation, const MaybeTensor& hue, const Tensor& order)
      : order_(order) {
    const MaybeTensor* tensors[] = {&brightness, &contrast, &saturation, &hue};
    for (int k = 0; k < 4; ++k)
      if (*tensors[k]) factors_[k].emplace(**tensors[k]);
  }

  // Of frame f of sample i. Factors of 1 and turns of 0 change nothing.
  Steps steps(int64_t i, int64_t f, int64_t channels) const {
    Steps steps;
    bool seen[4] = {};
    for (int64_t k = 0; k < order_.cols(); ++k) {
      const int64_t kind = order_(i, k);
      if (kind == -1) continue;
      if (kind < -1 || kind > 3 || seen[kind])
        fail(Error::Value, "color_jitter: sample ", i, ": order has each of 0 to 3 at most once, or -1 for no step, got ", kind);
      seen[kind] = true;
      if (!factors_[kind]) continue;
      const Args<double>& factors = *factors_[kind];
      if (factors.cols() > 1 && f >= factors.cols())
        fail("color_jitter: sample ", i, " has more frames than the ", factors.cols(), " of '", kNames[kind], "'");
      const double factor = factors.of_frame(i, f);
      const bool hue = kind == kHue;
      if (hue ? !(factor >= -0.5 && factor <= 0.5) : !(factor >= 0.0 && factor < 1e30))
        fail(Error::Value, "color_jitter: sample ", i, ": ", kNames[kind], hue ? " must be from -0.5 to 0.5" : " must not be negative", ", got ",
             factor);
      add_step(steps, static_cast<int32_t>(kind), factor, channels);
    }
    return steps;
  }

 private:
  std::optional<Args<double>> factors_[4];
  Args<int64_t> order_;
};

}  // namespace ndd::color_jitter
