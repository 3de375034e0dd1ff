// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ndd/elementwise/pointwise.h"
#include "ndd/kernel.h"
#include "ops/math/float_functions.h"

namespace ndd {
namespace {

// gain * v^gamma, at most `most`. Without branches on what is the same for all values: gcc would leave them in the loop, which then has no vectors.
struct Power {
  static constexpr bool kCostly = true;
  float gamma, at_zero, at_infinity;  // 0^gamma, infinity^gamma
  float gain, most;

  Power(float gamma, float gain, float most)
      : gamma(gamma), at_zero(gamma == 0.0f ? 1.0f : 0.0f), at_infinity(gamma == 0.0f ? 1.0f : INFINITY), gain(gain), most(most) {}

  NDD_HD float operator()(float v) const {
#ifdef __CUDA_ARCH__
    const float made = powf(v > 0.0f ? v : 0.0f, gamma) * gain;
#else
    using namespace float_functions;
    const float power = power_of(select(v > 0.0f, v, 1.0f), gamma);
    const float made = select(v > 0.0f, select(v < INFINITY, power, at_infinity), at_zero) * gain;
#endif
    return made < most ? made : most;
  }
};

// The same of integers, as values from 0 to 1; fractions are cut off.
struct WholePower {
  static constexpr bool kCostly = true;
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
