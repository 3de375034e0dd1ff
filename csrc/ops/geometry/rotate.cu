// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/kernel.h"
#include "ndd/warp.cuh"
#include "ops/geometry/rotate.h"

namespace ndd {
namespace {

template <int D>
void rotate_batch(const rotate::Arguments& arguments, Interp interp, const Samples& in, const Samples& out) {
  std::vector<WarpItem<D, AffineMap<D>>> items;
  int64_t tiles = 0;
  for (int64_t i = 0; i < in.size(); ++i) {
    for (int64_t f = 0; f < rotate::Arguments::frames<D>(in, i); ++f) {
      items.push_back(arguments.item<D>(in, out, i, f));
      tiles = std::max(tiles, warp::tile_count(items.back()));
    }
  }
  const CudaTable<WarpItem<D, AffineMap<D>>> table(items);
  launch_warp(table.data(), static_cast<int64_t>(items.size()), tiles, interp, in.dtype(), out.dtype(), current_cuda_stream());
  check_launch("rotate");
}

void rotate_cuda(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& angle, const MaybeTensor& axis, const MaybeTensor& fill_value,
                 int64_t interp_type, int64_t spatial, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const rotate::Arguments arguments(angle, axis, fill_value);
  (spatial == 3 ? rotate_batch<3> : rotate_batch<2>)(arguments, static_cast<Interp>(interp_type), in, out);
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(rotate, CUDA, ndd::rotate_cuda)
