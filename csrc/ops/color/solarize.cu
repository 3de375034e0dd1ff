// SPDX-License-Identifier: Apache-2.0
// invert: white - value; solarize: the same, for values from a threshold on.
#include <cmath>

#include "ndd/elementwise/pointwise.h"
#include "ndd/kernel.h"

namespace ndd::solarize_kernels {
namespace {

// Negative numbers keep their sign: the other bits of signed integers are inverted, as in torchvision.
struct Inverted {
  float threshold, largest, below;
  uint8_t least_byte, flipped;  // bytes from the first one on have these bits inverted

  NDD_HD uint8_t of_byte(uint8_t v) const { return static_cast<uint8_t>(v ^ (v >= least_byte ? flipped : 0)); }
  NDD_HD float operator()(float v) const {
    const float inverted = (v < 0.0f ? below : largest) - v;
    return v >= threshold ? inverted : v;
  }
};

Inverted inverted_from(float threshold, DType dtype) {
  const float largest = value_range(dtype);
  const bool is_signed = dtype == DType::int8 || dtype == DType::int16;
  const bool any = threshold <= 255.0f;
  const auto least_byte = static_cast<uint8_t>(any && threshold > 0.0f ? std::ceil(threshold) : 0.0f);
  return {threshold, largest, is_signed ? -largest - 2.0f : largest, least_byte, static_cast<uint8_t>(any ? 255 : 0)};
}

void invert(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& output, const MaybeTensor& output_shapes) {
  const Inverted inverted = inverted_from(-INFINITY, input.dtype());
  pointwise("invert", Samples(input, input_shapes), Samples(output, output_shapes), {}, [=](int64_t, int64_t) { return inverted; });
}

void solarize(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& threshold, const Tensor& output, const MaybeTensor& output_shapes) {
  const Args<float> thresholds(threshold);
  const DType dtype = input.dtype();
  pointwise("solarize", Samples(input, input_shapes), Samples(output, output_shapes), {&thresholds},
            [=](int64_t i, int64_t f) { return inverted_from(thresholds.of_frame(i, f), dtype); });
}

}  // namespace
}  // namespace ndd::solarize_kernels
NDD_KERNELS(invert, ndd::solarize_kernels::invert)
NDD_KERNELS(solarize, ndd::solarize_kernels::solarize)
