// SPDX-License-Identifier: Apache-2.0
#include "ndd/kernel.h"
#include "ndd/pointwise.h"

namespace ndd {
namespace {

struct Brightness {
  float scale, shift;
  NDD_HD float operator()(float v) const { return scale * v + shift; }
};

void brightness(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& factor, const Tensor& shift, const Tensor& output,
                const MaybeTensor& output_shapes) {
  const Args<float> scale(factor), offset(shift);
  const float range = value_range(dtype_of(output));
  pointwise("brightness", Samples(input, input_shapes), Samples(output, output_shapes), {&scale, &offset},
            [=](int64_t i, int64_t f) { return Brightness{scale.of_frame(i, f), range * offset.of_frame(i, f)}; });
}

}  // namespace
}  // namespace ndd
NDD_KERNELS(brightness, ndd::brightness)
