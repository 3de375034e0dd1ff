// SPDX-License-Identifier: Apache-2.0
// bbox_paste: start + size / ratio, where the canvas leaves (1 - 1 / ratio) of itself free.
#include <algorithm>

#include "ndd/kernel.h"
#include "ops/detection/rows.h"

namespace ndd::bbox_paste_kernels {
namespace {

struct PasteBox {
  float ratio, start[2];
  bool ltrb;

  NDD_HD void operator()(const float* in, float* out) const {
    for (int d = 0; d < 2; ++d) {
      out[d] = start[d] + in[d] / ratio;
      // The second corner moves, an extent only shrinks.
      out[d + 2] = (ltrb ? start[d] : 0.0f) + in[d + 2] / ratio;
    }
  }
};

void bbox_paste(const Tensor& input, const MaybeTensor& input_shapes, bool ltrb, const Tensor& paste_x, const Tensor& paste_y, const Tensor& ratio,
                const Tensor& output, const MaybeTensor& output_shapes) {
  const Args<float> xs(paste_x), ys(paste_y), ratios(ratio);
  map_boxes("bbox_paste", {input, input_shapes}, {output, output_shapes}, [=](int64_t i) {
    const float r = ratios(i), room = 1.0f - 1.0f / r;
    // A position beyond 1 is 1, as in DALI.
    const auto start = [=](float position) { return std::min(position * room, room); };
    return PasteBox{r, {start(xs(i)), start(ys(i))}, ltrb};
  });
}

}  // namespace
}  // namespace ndd::bbox_paste_kernels
NDD_KERNELS(bbox_paste, ndd::bbox_paste_kernels::bbox_paste)
