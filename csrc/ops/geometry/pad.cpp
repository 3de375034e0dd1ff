// SPDX-License-Identifier: Apache-2.0
#include "ops/geometry/window.h"

namespace ndd {
namespace {

void pad(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& start, const Tensor& fill_values, bool pad, const std::string& layout,
         const Tensor& output, const MaybeTensor& output_shapes) {
  copy_windows("pad", input, input_shapes, start, fill_values, pad, layout, output, output_shapes);
}

}  // namespace
}  // namespace ndd
NDD_HOST_KERNELS(pad, ndd::pad)
