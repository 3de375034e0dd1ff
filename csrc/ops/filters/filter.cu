// SPDX-License-Identifier: Apache-2.0
// Correlation on a GPU. Weights and fill values stay in device memory, where another kernel may have computed them; only their addresses are in the
// table of images, so the host waits for nothing.
#include "ops/filters/filter.h"

#include <vector>

#include "ndd/kernel.h"
#include "ndd/stencil/stencil.cuh"

namespace ndd::filter_kernels {
namespace {

void filter_cuda(const Tensor& data, const MaybeTensor& data_shapes, const Tensor& filter, const MaybeTensor& filter_shapes,
                 const MaybeTensor& fill_value, const MaybeTensor& fill_shapes, const Tensor& anchor, int64_t border, bool valid,
                 int64_t first_spatial, int64_t spatial, const Tensor& output, const MaybeTensor& output_shapes) {
  const filter::Arguments arguments(data, data_shapes, filter, filter_shapes, fill_value, fill_shapes, anchor, valid, {first_spatial, spatial},
                                    output, output_shapes);
  const Samples &in = arguments.in, &out = arguments.out, &weights = arguments.weights;
  std::vector<stencil::Correlation> images;
  for (int64_t i = 0; i < in.size(); ++i) {
    const Grid in_grid = arguments.axes.grid(in, i), out_grid = arguments.out_axes.grid(out, i);
    // Frames and planes are images of their own; windows and fill values may be given for each frame.
    for (int64_t image = 0; image < arguments.images(i); ++image) {
      const int64_t frame = arguments.frame(i, image);
      const auto reach = arguments.reach(i, frame);
      const void* fill = nullptr;
      if (arguments.fill) fill = static_cast<const char*>(arguments.fill->data(i)) + arguments.fill_at(frame) * arguments.fill->item_bytes();
      images.push_back({arguments.source(i, image, in_grid),
                        static_cast<char*>(out.data(i)) + image * out_grid.volume() * out.item_bytes(),
                        static_cast<const char*>(weights.data(i)) + arguments.weights_at(i, frame) * weights.item_bytes(),
                        fill,
                        in_grid,
                        out_grid,
                        {reach[0], reach[1], reach[2]}});
    }
  }
  launch_correlation("filter", images, static_cast<Border>(border), in.dtype(), out.dtype(), weights.dtype(),
                     arguments.fill ? arguments.fill->dtype() : DType::float32);
}

}  // namespace
}  // namespace ndd::filter_kernels
NDD_KERNEL(filter, CUDA, ndd::filter_kernels::filter_cuda)
