// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ndd/elementwise/pointwise.h"
#include "ndd/kernel.h"
#include "ops/math/float_functions.h"

namespace ndd {
namespace {

NDD_HD float power_of(float base, float exponent) {
  const float positive = base > 0.0f ? base : 0.0f;
#ifdef __CUDA_ARCH__
  return powf(positive, exponent);
#else
  return float_functions::fast<Op::fpow>(positive, exponent);
#endif
}

// gain * v^gamma, at most `most`.
struct Power {
  float gamma, gain, most;
  NDD_HD float operator()(float v) const {
    const float made = power_of(v, gamma) * gain;
    return made < most ? made : most;
  }
};

// The same of integers, as values from 0 to 1; fractions are cut off.
struct WholePower {
  Power power;
  float to_unit, from_unit;
  NDD_HD float operator()(float v) const { return static_cast<float>(static_cast<int32_t>(power(v * to_unit) * from_unit)); }
};

void gamma(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& gain, const Tensor& gamma, const Tensor& output,
           const MaybeTensor& output_shapes) {
  const Args<float> gains(gain), gammas(gamma);
  const Samples in(input, input_shapes), out(output, output_shapes);
  const float range = value_range(input.dtype());
  const auto power = [=](int64_t i, int64_t f) {
    const float exponent = gammas.of_frame(i, f), factor = gains.of_frame(i, f);
    if (!(exponent >= 0.0f)) fail(Error::Value, "gamma: sample ", i, ": gamma must not be negative, got ", exponent);
    if (!(factor >= 0.0f)) fail(Error::Value, "gamma: sample ", i, ": gain must not be negative, got ", factor);
    return Power{exponent, factor, factor == 1.0f ? INFINITY : 1.0f};
  };
  if (is_floating_dtype(input.dtype())) return pointwise("gamma", in, out, {&gains, &gammas}, power);
  pointwise("gamma", in, out, {&gains, &gammas}, [=](int64_t i, int64_t f) {
    Power one = power(i, f);
    one.most = 1.0f;
    return WholePower{one, 1.0f / range, range + 0.999f};
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNELS(gamma, ndd::gamma)
