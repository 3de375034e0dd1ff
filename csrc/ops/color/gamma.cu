// SPDX-License-Identifier: Apache-2.0
// gamma, pointwise. Integers go by way of values from 0 to 1; the driver replaces a costly function of bytes by a table (kCostly).
#include <cmath>

#include "ndd/elementwise/pointwise.h"
#include "ndd/kernel.h"
#include "ops/math/float_functions.h"

namespace ndd::gamma_kernels {
namespace {

// gain * v^gamma, at most `limit`. Written without branches on the arguments: gcc would keep them in the loop, which then does not vectorize.
struct Power {
  static constexpr bool kCostly = true;
  float gamma, at_zero, at_infinity;  // 0^gamma, infinity^gamma
  float gain, limit;

  Power(float gamma, float gain, float limit)
      : gamma(gamma), at_zero(gamma == 0.0f ? 1.0f : 0.0f), at_infinity(gamma == 0.0f ? 1.0f : INFINITY), gain(gain), limit(limit) {}

  NDD_HD float operator()(float v) const {
#ifdef __CUDA_ARCH__
    const float value = powf(v > 0.0f ? v : 0.0f, gamma) * gain;
#else
    using namespace float_functions;
    const float power = power_of(select(v > 0.0f, v, 1.0f), gamma);
    const float value = select(v > 0.0f, select(v < INFINITY, power, at_infinity), at_zero) * gain;
#endif
    return value < limit ? value : limit;
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
    Power unit_power = power(i, f);
    unit_power.limit = 1.0f;
    return WholePower{unit_power, 1.0f / range, range + 0.999f};
  });
}

}  // namespace
}  // namespace ndd::gamma_kernels
NDD_KERNELS(gamma, ndd::gamma_kernels::gamma)
