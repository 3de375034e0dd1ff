// SPDX-License-Identifier: Apache-2.0
// gaussian_blur on a GPU: the windows are computed on the host and uploaded together with the table of images.
#include <array>
#include <utility>
#include <vector>

#include "ndd/kernel.h"
#include "ndd/stencil/stencil.cuh"
#include "ops/filters/gaussian_blur.h"

namespace ndd::gaussian_blur_kernels {
namespace {

void gaussian_blur_cuda(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& sigma, const Tensor& window_size, bool,
                        int64_t first_spatial, int64_t spatial, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  check_outputs("gaussian_blur", out, in);
  const gaussian_blur::Arguments arguments(sigma, window_size, {first_spatial, spatial});
  std::vector<SeparableImage> images;
  // Most images have the windows of the previous one: recomputing them for each of 64 images takes as long as all the rest of the launch.
  std::array<float, 3> sigmas{};
  std::array<int64_t, 3> sizes{};
  for (int64_t i = 0; i < in.size(); ++i) {
    const Grid grid = arguments.axes.grid(in, i);
    const int64_t volume = grid.volume(), count = arguments.axes.images(in, i);
    for (int64_t image = 0; image < count; ++image) {
      const int64_t frame = arguments.axes.frame(in, i, image);
      bool same = !images.empty();
      for (int64_t a = 0; a < spatial; ++a) {
        const float s = arguments.sigma(i, frame, a);
        const int64_t n = arguments.window_size(i, frame, a);
        same = same && s == sigmas[a] && n == sizes[a];
        sigmas[a] = s;
        sizes[a] = n;
      }
      auto windows = same ? images.back().windows : arguments.windows(in, i, image);
      images.push_back({grid, static_cast<const char*>(in.data(i)) + image * volume * in.item_bytes(),
                        static_cast<char*>(out.data(i)) + image * volume * out.item_bytes(), nullptr, std::move(windows)});
    }
  }
  launch_separable("gaussian_blur", images, spatial, in.dtype(), out.dtype());
}

}  // namespace
}  // namespace ndd::gaussian_blur_kernels
NDD_KERNEL(gaussian_blur, CUDA, ndd::gaussian_blur_kernels::gaussian_blur_cuda)
