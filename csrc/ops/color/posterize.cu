// SPDX-License-Identifier: Apache-2.0
// posterize, pointwise. Bytes are masked; other types go through the same steps in float, which a power of two scales without rounding.
#include <algorithm>
#include <cmath>

#include "ndd/elementwise/pointwise.h"
#include "ndd/kernel.h"

namespace ndd::posterize_kernels {
namespace {

// The step below a value, of `1 / inverse` width, and not above `most`.
struct Steps {
  float inverse, step, smallest, largest;
  uint8_t mask;  // of bytes, the highest of whose bits are kept

  NDD_HD uint8_t of_byte(uint8_t v) const { return v & mask; }
  NDD_HD float operator()(float v) const {
    const float level = floorf(v * inverse);
    return (level < smallest ? smallest : level > largest ? largest : level) * step;
  }
};

constexpr float kUnlimited = 3.0e38f;

// Integers keep their highest bits, without the sign; floats have 2^bits levels from 0 to 1.
Steps steps_of(float bits, DType dtype) {
  if (is_floating_dtype(dtype)) return {std::exp2(bits), std::exp2(-bits), 0.0f, std::exp2(bits) - 1.0f, 0};
  const float all = std::log2(value_range(dtype) + 1.0f), dropped = all > bits ? all - bits : 0.0f;
  return {std::exp2(-dropped), std::exp2(dropped), -kUnlimited, kUnlimited, static_cast<uint8_t>(0xFF00u >> std::min(static_cast<int>(bits), 8))};
}

void posterize(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& bits, const Tensor& output, const MaybeTensor& output_shapes) {
  const Args<float> kept(bits);
  const DType dtype = input.dtype();
  pointwise("posterize", Samples(input, input_shapes), Samples(output, output_shapes), {&kept}, [=](int64_t i, int64_t f) {
    const float count = kept.of_frame(i, f);
    if (!(count >= 0.0f && count <= 32.0f))
      fail(Error::Value, "posterize: sample ", i, ": bits must be from 0 to 32, got ", static_cast<int64_t>(count));
    return steps_of(count, dtype);
  });
}

}  // namespace
}  // namespace ndd::posterize_kernels
NDD_KERNELS(posterize, ndd::posterize_kernels::posterize)
