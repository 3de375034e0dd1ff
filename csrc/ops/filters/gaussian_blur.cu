// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/kernel.h"
#include "ndd/stencil.cuh"
#include "ops/filters/gaussian_blur.h"

namespace ndd {
namespace {

// The passes of all images over one axis (0 depth, 1 height, 2 width), before their buffers are known.
struct AxisPasses {
  std::vector<stencil::Pass> passes;
  std::vector<float> weights;
  std::vector<size_t> first_weight;
  int64_t elements = 0;

  void add(const Grid& grid, const Window& window, int axis) {
    const int64_t extents[3] = {grid.depth, grid.height, grid.width};
    const int64_t strides[3] = {grid.height * grid.width * grid.inner, grid.width * grid.inner, grid.inner};
    const int64_t volume = grid.depth * strides[0];
    passes.push_back({nullptr, nullptr, nullptr, volume, extents[axis], strides[axis], static_cast<int32_t>(window.radius())});
    first_weight.push_back(weights.size());
    weights.insert(weights.end(), window.half.begin(), window.half.end());
    elements = std::max(elements, volume);
  }
};

void gaussian_blur_cuda(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& sigma, const Tensor& window_size, int64_t first_spatial,
                        int64_t spatial, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const gaussian_blur::Arguments arguments{gaussian_blur::AxisArgs<float>(sigma), gaussian_blur::AxisArgs<int64_t>(window_size), first_spatial, spatial};
  std::vector<AxisPasses> axes(spatial);
  std::vector<const char*> sources;
  std::vector<char*> targets;
  int64_t total = 0;
  for (int64_t i = 0; i < in.size(); ++i) {
    const Grid grid = arguments.grid(in, i);
    const int64_t volume = grid.depth * grid.height * grid.width * grid.inner;
    for (int64_t image = 0; image < arguments.images(in, i); ++image, total += volume) {
      const auto windows = arguments.windows(in, i, image);
      for (int64_t a = 0; a < spatial; ++a) axes[a].add(grid, windows[3 - spatial + a], static_cast<int>(3 - spatial + a));
      sources.push_back(static_cast<const char*>(in.data(i)) + image * volume * in.item_bytes());
      targets.push_back(static_cast<char*>(out.data(i)) + image * volume * out.item_bytes());
    }
  }
  // Between the axes the whole batch is float, in two buffers by turns.
  const int64_t staged_bytes = total * static_cast<int64_t>(sizeof(float));
  const CudaBuffer first_stage(spatial > 1 ? staged_bytes : 0), second_stage(spatial > 2 ? staged_bytes : 0);
  float* staged[2] = {static_cast<float*>(first_stage.data()), static_cast<float*>(second_stage.data())};
  for (int64_t a = 0; a < spatial; ++a) {
    const CudaTable<float> weights(axes[a].weights);
    int64_t offset = 0;
    for (size_t k = 0; k < sources.size(); ++k) {
      stencil::Pass& pass = axes[a].passes[k];
      pass.in = a == 0 ? static_cast<const void*>(sources[k]) : staged[(a - 1) % 2] + offset;
      pass.out = a == spatial - 1 ? static_cast<void*>(targets[k]) : staged[a % 2] + offset;
      pass.half = weights.data() + axes[a].first_weight[k];
      offset += pass.elements;
    }
    const CudaTable<stencil::Pass> table(axes[a].passes);
    launch_stencil(table.data(), static_cast<int64_t>(sources.size()), axes[a].elements, a == 0 ? in.dtype() : DType::float32,
                   a == spatial - 1 ? out.dtype() : DType::float32, current_cuda_stream());
    check_launch("gaussian_blur");
  }
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(gaussian_blur, CUDA, ndd::gaussian_blur_cuda)
