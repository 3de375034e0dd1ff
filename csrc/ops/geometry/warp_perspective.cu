// SPDX-License-Identifier: Apache-2.0
// experimental.warp_perspective: from = the first two of matrix * (to, 1), divided by the third.
#include "ndd/kernel.h"
#include "ndd/warp/matrix.h"

namespace ndd::warp_perspective_kernels {
namespace {

void warp_perspective(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& mtx, const MaybeTensor& mtx_shapes,
                      const MaybeTensor& matrix, const Tensor& fill_value, int64_t border, int64_t interp_type, bool inverse_map, bool centered,
                      bool fades, int64_t first_spatial, bool frames, const Tensor& output, const MaybeTensor& output_shapes) {
  const WarpImages images("experimental.warp_perspective", {input, input_shapes}, {output, output_shapes}, static_cast<Border>(border), fill_value,
                          first_spatial, 2, frames, fades);
  const PerspectiveRule rule{!inverse_map, centered};
  warp_images<2, true>(images, static_cast<Interp>(interp_type), MatrixMaps<2, PerspectiveRule>(images, mtx, mtx_shapes, matrix, rule));
}

}  // namespace
}  // namespace ndd::warp_perspective_kernels
NDD_KERNELS(experimental_warp_perspective, ndd::warp_perspective_kernels::warp_perspective)
