// SPDX-License-Identifier: Apache-2.0
// brightness, contrast and both together, pointwise: Python's arguments become the scale and the shift of one linear function, so all three
// share a loop. They are combined before any pixel is read: a chain of the operators would round between the steps.
#include "ndd/elementwise/pointwise.h"
#include "ndd/kernel.h"

namespace ndd::brightness_contrast_kernels {
namespace {

// All three operators are linear in the value, so one functor serves them.
struct Linear {
  float scale, shift;
  NDD_HD float operator()(float v) const { return scale * v + shift; }
};

// out = shift * range + brightness * (center + contrast * (in - center))
Linear brightness_contrast_of(float brightness, float shift, float range, float contrast, float center) {
  return {brightness * contrast, shift * range + brightness * (center - contrast * center)};
}

// Half of the input's range; for uint8 that is 128.
float middle_of(DType dtype) {
  return is_floating_dtype(dtype) || dtype == DType::boolean ? 0.5f : static_cast<float>((static_cast<double>(value_range(dtype)) + 1.0) / 2.0);
}

void brightness(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& factor, const Tensor& shift, const Tensor& output,
                const MaybeTensor& output_shapes) {
  const Args<float> scale(factor), offset(shift);
  const float range = value_range(output.dtype());
  pointwise("brightness", Samples(input, input_shapes), Samples(output, output_shapes), {&scale, &offset},
            [=](int64_t i, int64_t f) { return Linear{scale.of_frame(i, f), range * offset.of_frame(i, f)}; });
}

void brightness_contrast(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& brightness, const Tensor& shift, const Tensor& contrast,
                         const MaybeTensor& contrast_center, const Tensor& output, const MaybeTensor& output_shapes) {
  const Args<float> b(brightness), s(shift), c(contrast), center(contrast_center ? *contrast_center : contrast);
  const bool centered = !contrast_center;
  const float range = value_range(output.dtype()), middle = middle_of(input.dtype());
  pointwise("brightness_contrast", Samples(input, input_shapes), Samples(output, output_shapes), {&b, &s, &c, &center}, [=](int64_t i, int64_t f) {
    return brightness_contrast_of(b.of_frame(i, f), s.of_frame(i, f), range, c.of_frame(i, f), centered ? middle : center.of_frame(i, f));
  });
}

void contrast(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& contrast, const MaybeTensor& contrast_center, const Tensor& output,
              const MaybeTensor& output_shapes) {
  const Args<float> c(contrast), center(contrast_center ? *contrast_center : contrast);
  const bool centered = !contrast_center;
  const float middle = middle_of(input.dtype());
  pointwise("contrast", Samples(input, input_shapes), Samples(output, output_shapes), {&c, &center}, [=](int64_t i, int64_t f) {
    return brightness_contrast_of(1.0f, 0.0f, 1.0f, c.of_frame(i, f), centered ? middle : center.of_frame(i, f));
  });
}

}  // namespace
}  // namespace ndd::brightness_contrast_kernels
NDD_KERNELS(brightness, ndd::brightness_contrast_kernels::brightness)
NDD_KERNELS(brightness_contrast, ndd::brightness_contrast_kernels::brightness_contrast)
NDD_KERNELS(contrast, ndd::brightness_contrast_kernels::contrast)
