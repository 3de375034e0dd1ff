// SPDX-License-Identifier: Apache-2.0
// The steps that a policy has drawn for uint8 images: their kinds, their arithmetic where it is a function of a level, and a batch as both devices see
// it.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "ndd/args.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/error.h"
#include "ndd/hd.h"
#include "ndd/python_interface.h"
#include "ndd/samples.h"
#include "ndd/warp/warp.h"
#include "ops/color/color_jitter.h"

namespace ndd::byte_steps {

// brightness, contrast and saturation are those of color_jitter, `equalize` is by Pillow's rule. scale_* and brighten_dark are the augmentations of
// torch_ndd.augment; mask_bits and filter those of DALI.
NDD_ENUM("byte_steps.Kind", Kind, int64_t, none, warp, brightness, contrast, saturation, sharpness, posterize, solarize, autocontrast, equalize,
         invert, scale_brightness, scale_contrast, scale_saturation, brighten_dark, equalize_opencv, mask_bits, filter);

inline constexpr int kParameters = 9;  // a factor, the six numbers of a matrix from output to input, or the weights of a filter
inline constexpr int64_t kNumbers = kParameters + 1;  // of a step: first its kind

struct Step {
  Kind kind = Kind::none;
  double factor = 0.0;  // the first number, for the operators whose arguments are doubles
  float rest = 0.0f;  // 1 - factor, rounded once
  float numbers[kParameters] = {};
};

// brightness, contrast and saturation as steps of color_jitter, which are in this order.
NDD_HD color_jitter::Step jitter_step(const Step& step) {
  return {static_cast<int32_t>(step.kind) - static_cast<int32_t>(Kind::brightness), step.numbers[0], step.rest};
}

// The kinds that are only for interleaved channels.
inline bool mixes_interleaved(Kind kind) { return kind == Kind::scale_contrast || kind == Kind::scale_saturation || kind == Kind::filter; }

// `mean` is that of the gray image, for the two kinds of contrast.
NDD_HD uint8_t level_after(const Step& step, float mean, int v) {
  const float factor = step.numbers[0], value = static_cast<float>(v);
  switch (step.kind) {
    case Kind::brightness: return static_cast<uint8_t>(color_jitter::blend<true>(value, 0.0f, jitter_step(step), 255.0f));
    case Kind::contrast: return static_cast<uint8_t>(color_jitter::blend<true>(value, mean, jitter_step(step), 255.0f));
    case Kind::posterize: {
      const int dropped = 8 - static_cast<int>(factor < 0.0f ? 0.0f : factor > 8.0f ? 8.0f : factor);
      return static_cast<uint8_t>(v >> dropped << dropped);
    }
    case Kind::solarize: return static_cast<uint8_t>(value >= factor ? 255 - v : v);
    case Kind::invert: return static_cast<uint8_t>(255 - v);
    case Kind::scale_brightness: return saturate<uint8_t>(mul_then_add(factor, value, 0.0f));
    case Kind::scale_contrast: return saturate<uint8_t>(mul_then_add(value, factor, mul_then_add(mean, 1.0f - factor, 0.0f)));
    case Kind::brighten_dark: return v < 128 ? saturate<uint8_t>(value + factor) : static_cast<uint8_t>(v);
    case Kind::mask_bits: return static_cast<uint8_t>(v & static_cast<int>(factor));
    default: return static_cast<uint8_t>(v);
  }
}

// The gray level of an image from the means of its channels, with the roundings of the operators that torch_ndd.augment would call.
NDD_HD float gray_of_means(const float* means, int64_t channels) {
  if (channels == 3) {
    const float red = mul_then_add(means[0], 0.299f, 0.0f), green = mul_then_add(means[1], 0.587f, 0.0f), blue = mul_then_add(means[2], 0.114f, 0.0f);
    return static_cast<float>(static_cast<double>(red) + static_cast<double>(green) + static_cast<double>(blue));
  }
  double sum = 0.0;
  for (int64_t c = 0; c < channels; ++c) sum += static_cast<double>(means[c]);
  return static_cast<float>(sum / static_cast<double>(channels));
}

// A frame of a sample: HWC, or CHW if `planar`.
struct Image {
  int64_t height, width, channels;
  bool planar;

  NDD_HD int64_t pixels() const { return height * width; }
  NDD_HD int64_t volume() const { return pixels() * channels; }
  // Planes are processed as separate images of one channel.
  NDD_HD int64_t planes() const { return planar ? channels : 1; }
  NDD_HD int64_t inner() const { return planar ? 1 : channels; }
};

// What all images of a call share.
class Arguments {
 public:
  Arguments(const Samples& in, const Tensor& steps, const Tensor& fill_value, int64_t interp_type, int64_t border, bool fades, bool planar)
      : in_(in), steps_(steps), fills_(fill_value), interp_(static_cast<Interp>(interp_type)), border_(static_cast<Border>(border)), fades_(fades),
        planar_(planar) {}

  Interp interp() const { return interp_; }
  int64_t turns() const { return steps_.cols() / kNumbers; }
  int64_t frames(int64_t i) const { return in_.ndim() > 3 ? in_.shape(i)[0] : 1; }
  Image image(int64_t i) const {
    const int64_t* shape = in_.shape(i) + (in_.ndim() > 3);
    return {shape[planar_ ? 1 : 0], shape[planar_ ? 2 : 1], shape[planar_ ? 0 : 2], planar_};
  }

  // The steps of sample i that change something.
  std::vector<Step> steps(int64_t i) const {
    std::vector<Step> steps;
    const int64_t channels = image(i).channels;
    for (int64_t turn = 0; turn < turns(); ++turn) {
      const int64_t first = turn * kNumbers;
      Step step;
      step.kind = static_cast<Kind>(steps_(i, first));
      step.factor = steps_(i, first + 1);
      step.rest = static_cast<float>(1.0 - step.factor);
      for (int k = 0; k < kParameters; ++k) step.numbers[k] = static_cast<float>(steps_(i, first + 1 + k));
      if (step.kind < Kind::none || step.kind > Kind::filter) fail("byte_steps: unknown kind of step: ", static_cast<int64_t>(step.kind));
      if (step.kind >= Kind::brightness && step.kind <= Kind::saturation) {
        color_jitter::Steps effective;
        if (!color_jitter::add_step(effective, jitter_step(step).kind, step.factor, channels)) continue;
      }
      const bool mixes = step.kind == Kind::contrast || step.kind == Kind::saturation;
      if ((step.kind == Kind::scale_saturation && channels != 3) || (mixes && channels != 1 && channels != 3) ||
          (planar_ && mixes_interleaved(step.kind)))
        fail("byte_steps: a step of kind ", static_cast<int64_t>(step.kind), " is not for the layout or the channels of sample ", i);
      if (step.kind != Kind::none) steps.push_back(step);
    }
    return steps;
  }

  // Of the channels of sample i, or one for all of them.
  std::vector<float> fills(int64_t i) const {
    std::vector<float> values;
    for (int64_t k = 0; k < fills_.rows(); ++k) values.push_back(fills_(k));
    if (values.size() > 1 && static_cast<int64_t>(values.size()) != image(i).channels)
      fail("byte_steps: fill_value has ", values.size(), " numbers, the image has ", image(i).channels, " channels, sample ", i);
    return values;
  }

  // The warp of a plane, which is the first one on the CPU. `fills` must outlive the item.
  WarpItem<2, AffineMap<2>> warp(const Image& image, const Step& step, float fill, const float* fills, const uint8_t* in, uint8_t* out) const {
    const int64_t inner = image.inner();
    WarpItem<2, AffineMap<2>> item{};
    item.src = {in, {image.width, image.height}, {inner, inner * image.width}, inner, border_, fill, fills, fades_};
    for (int k = 0; k < 6; ++k) item.map.m[k / 3][k % 3] = step.numbers[k];
    item.out = out;
    item.size[0] = image.width;
    item.size[1] = image.height;
    item.interp = interp_;
    return item;
  }

 private:
  Samples in_;
  Args<double> steps_;
  Args<float> fills_;
  Interp interp_;
  Border border_;
  bool fades_, planar_;
};

}  // namespace ndd::byte_steps
