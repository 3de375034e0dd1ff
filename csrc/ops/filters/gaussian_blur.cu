// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "ndd/kernel.h"
#include "ndd/stencil.cuh"
#include "ops/filters/gaussian_blur.h"

namespace ndd {
namespace {

void gaussian_blur_cuda(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& sigma, const Tensor& window_size, int64_t first_spatial,
                        int64_t spatial, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const gaussian_blur::Arguments arguments(sigma, window_size, {first_spatial, spatial});
  std::vector<SeparableImage> images;
  for (int64_t i = 0; i < in.size(); ++i) {
    const Grid grid = arguments.axes.grid(in, i);
    for (int64_t image = 0; image < arguments.axes.images(in, i); ++image)
      images.push_back({grid, static_cast<const char*>(in.data(i)) + image * grid.volume() * in.item_bytes(),
                        static_cast<char*>(out.data(i)) + image * grid.volume() * out.item_bytes(), nullptr, arguments.windows(in, i, image)});
  }
  launch_separable("gaussian_blur", images, spatial, in.dtype(), out.dtype());
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(gaussian_blur, CUDA, ndd::gaussian_blur_cuda)
