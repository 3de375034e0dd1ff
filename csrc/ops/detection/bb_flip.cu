// SPDX-License-Identifier: Apache-2.0
// bb_flip: x -> 1 - x of the sides that are mirrored.
#include "ndd/kernel.h"
#include "ops/detection/rows.h"

namespace ndd::bb_flip_kernels {
namespace {

struct FlipBox {
  bool horizontal, vertical, ltrb;

  NDD_HD void operator()(const float* in, float* out) const {
    const bool flipped[2] = {horizontal, vertical};
    for (int d = 0; d < 2; ++d) {
      const float a = in[d], b = in[d + 2];  // start, and end or extent
      // The mirrored start is 1 minus the old end.
      out[d] = !flipped[d] ? a : ltrb ? 1.0f - b : 1.0f - a - b;
      out[d + 2] = flipped[d] && ltrb ? 1.0f - a : b;
    }
  }
};

void bb_flip(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& horizontal, bool ltrb, const Tensor& vertical, const Tensor& output,
             const MaybeTensor& output_shapes) {
  const Args<int64_t> across(horizontal), down(vertical);
  map_boxes("bb_flip", {input, input_shapes}, {output, output_shapes}, [=](int64_t i) { return FlipBox{across(i) != 0, down(i) != 0, ltrb}; });
}

}  // namespace
}  // namespace ndd::bb_flip_kernels
NDD_KERNELS(bb_flip, ndd::bb_flip_kernels::bb_flip)
