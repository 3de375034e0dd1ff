// SPDX-License-Identifier: Apache-2.0
#include "ndd/elementwise/pointwise.h"
#include "ndd/kernel.h"
#include "ops/math/float_functions.h"

namespace ndd {
namespace {

// gain * v^gamma of values from 0 to 1. Integers are cut off.
struct Power {
  float gamma, gain, to_unit, from_unit;
  bool limited, whole;

  NDD_HD float operator()(float v) const {
    const float unit = v * to_unit, base = unit > 0.0f ? unit : 0.0f;
#ifdef __CUDA_ARCH__
    const float power = powf(base, gamma) * gain;
#else
    const float power = float_functions::fast<Op::fpow>(base, gamma) * gain;
#endif
    const float inside = limited && power > 1.0f ? 1.0f : power;
    return whole ? static_cast<float>(static_cast<int32_t>(inside * from_unit)) : inside;
  }
};

void gamma(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& gain, const Tensor& gamma, const Tensor& output,
           const MaybeTensor& output_shapes) {
  const Args<float> gains(gain), gammas(gamma);
  const float most = value_range(input.dtype());
  const bool whole = !is_floating_dtype(input.dtype());
  pointwise("gamma", Samples(input, input_shapes), Samples(output, output_shapes), {&gains, &gammas}, [=](int64_t i, int64_t f) {
    const float exponent = gammas.of_frame(i, f), factor = gains.of_frame(i, f);
    if (!(exponent >= 0.0f)) fail(Error::Value, "gamma: sample ", i, ": gamma must not be negative, got ", exponent);
    if (!(factor >= 0.0f)) fail(Error::Value, "gamma: sample ", i, ": gain must not be negative, got ", factor);
    return Power{exponent, factor, 1.0f / most, whole ? most + 0.999f : 1.0f, factor != 1.0f || whole, whole};
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNELS(gamma, ndd::gamma)
