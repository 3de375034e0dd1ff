// SPDX-License-Identifier: Apache-2.0
// RGB, YCbCr and gray: one matrix for the whole batch, on the driver of color matrices. Python composes it from the names of the spaces.
#include "ndd/color/matrix.h"
#include "ndd/kernel.h"

namespace ndd {
namespace {

// `values` is the 3 x 4 matrix of the conversion.
void color_space_conversion(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& values, int64_t channels, int64_t out_channels,
                            const Tensor& output, const MaybeTensor& output_shapes) {
  // Read here, not in the closure: Python makes the matrix, so it is never pending.
  const Args<float> numbers(values);
  ColorMatrix matrix;
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t k = 0; k < 4; ++k) matrix.m[c][k] = numbers(c, k);
  color_matrix("color_space_conversion", Samples(input, input_shapes), Samples(output, output_shapes), static_cast<int>(channels),
               static_cast<int>(out_channels), {}, [=](int64_t, int64_t) { return matrix; });
}

}  // namespace
}  // namespace ndd
NDD_HOST_KERNELS(color_space_conversion, ndd::color_space_conversion)
