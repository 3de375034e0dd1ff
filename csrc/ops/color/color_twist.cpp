// SPDX-License-Identifier: Apache-2.0
// color_twist, hsv, hue and saturation on the driver of color matrices. The matrix is computed for each sample on the thread that applies it, because
// the arguments may be pending when the operator is called.
#include "ndd/color/matrix.h"
#include "ndd/kernel.h"
#include "ops/color/twist.h"

namespace ndd {
namespace {

// hsv, hue and saturation are color_twist with the other arguments neutral: one matrix per pixel.
using color::twist;

void color_twist(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& brightness, const Tensor& contrast, const Tensor& hue,
                 const Tensor& saturation, const Tensor& output, const MaybeTensor& output_shapes) {
  const Args<float> b(brightness), c(contrast), h(hue), s(saturation);
  const double middle = is_floating_dtype(input.dtype()) ? 0.5 : 128.0;
  color_matrix("color_twist", Samples(input, input_shapes), Samples(output, output_shapes), 3, 3, {&b, &c, &h, &s},
               [=](int64_t i, int64_t f) { return twist(b.of_frame(i, f), c.of_frame(i, f), s.of_frame(i, f), h.of_frame(i, f), middle); });
}

void hsv(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& hue, const Tensor& saturation, const Tensor& value, const Tensor& output,
         const MaybeTensor& output_shapes) {
  const Args<float> h(hue), s(saturation), v(value);
  color_matrix("hsv", Samples(input, input_shapes), Samples(output, output_shapes), 3, 3, {&h, &s, &v},
               [=](int64_t i, int64_t f) { return twist(v.of_frame(i, f), 1.0, s.of_frame(i, f), h.of_frame(i, f), 0.0); });
}

void hue(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& hue, const Tensor& output, const MaybeTensor& output_shapes) {
  const Args<float> h(hue);
  color_matrix("hue", Samples(input, input_shapes), Samples(output, output_shapes), 3, 3, {&h},
               [=](int64_t i, int64_t f) { return twist(1.0, 1.0, 1.0, h.of_frame(i, f), 0.0); });
}

void saturation(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& saturation, const Tensor& output,
                const MaybeTensor& output_shapes) {
  const Args<float> s(saturation);
  color_matrix("saturation", Samples(input, input_shapes), Samples(output, output_shapes), 3, 3, {&s},
               [=](int64_t i, int64_t f) { return twist(1.0, 1.0, s.of_frame(i, f), 0.0, 0.0); });
}

}  // namespace
}  // namespace ndd
NDD_HOST_KERNELS(color_twist, ndd::color_twist)
NDD_HOST_KERNELS(hsv, ndd::hsv)
NDD_HOST_KERNELS(hue, ndd::hue)
NDD_HOST_KERNELS(saturation, ndd::saturation)
