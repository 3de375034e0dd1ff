// SPDX-License-Identifier: Apache-2.0
// warp_affine: from = matrix * (to, 1), or its inverse.
#include "ndd/kernel.h"
#include "ndd/warp/matrix.h"

#ifdef __CUDACC__
namespace ndd {
template void launch_warp<2, false>(const TableRows<WarpItem<2, AffineMap<2>>>&, const WarpItem<2, AffineMap<2>>*, int64_t, int64_t, DType, DType,
                                    cudaStream_t);
template void launch_warp<3, false>(const TableRows<WarpItem<3, AffineMap<3>>>&, const WarpItem<3, AffineMap<3>>*, int64_t, int64_t, DType, DType,
                                    cudaStream_t);
}  // namespace ndd
#endif

namespace ndd::warp_affine_kernels {
namespace {

template <int D>
void warp(const WarpImages& images, Interp interp, const MaybeTensor& mtx, const MaybeTensor& mtx_shapes, const MaybeTensor& matrix,
          bool inverse_map) {
  warp_images<D, false>(images, interp, MatrixMaps<D, AffineRule<D>>(images, mtx, mtx_shapes, matrix, {!inverse_map}));
}

void warp_affine(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& mtx, const MaybeTensor& mtx_shapes,
                 const MaybeTensor& matrix, const MaybeTensor& fill_value, int64_t interp_type, bool inverse_map, bool fades, int64_t first_spatial,
                 int64_t spatial, bool frames, const Tensor& output, const MaybeTensor& output_shapes) {
  const WarpImages images("warp_affine", {input, input_shapes}, {output, output_shapes}, fill_value ? Border::constant : Border::clamp, fill_value,
                          first_spatial, spatial, frames, fades);
  (spatial == 3 ? warp<3> : warp<2>)(images, static_cast<Interp>(interp_type), mtx, mtx_shapes, matrix, inverse_map);
}

}  // namespace
}  // namespace ndd::warp_affine_kernels
NDD_KERNELS(warp_affine, ndd::warp_affine_kernels::warp_affine)
