// SPDX-License-Identifier: Apache-2.0
// laplacian on a GPU: small windows as one correlation with the sum of all derivatives; larger ones as a separable convolution for each derivative,
// whose cost grows with the size of the window instead of its square or cube.
#include <utility>
#include <vector>

#include "ndd/kernel.h"
#include "ndd/stencil/stencil.cuh"
#include "ops/filters/laplacian.h"

namespace ndd::laplacian_kernels {
namespace {

// An image or a frame, with the windows of its partial derivatives.
struct Image {
  Grid grid;
  const void* in;
  void* out;
  std::vector<laplacian::Partial> partials;
};

// Small windows: one launch of correlations with the sum of all partial derivatives.
void launch_sums(const std::vector<Image>& images, const std::vector<laplacian::Sum>& sums, DType in, DType out) {
  std::vector<float> weights;
  for (const laplacian::Sum& sum : sums) weights.insert(weights.end(), sum.weight.begin(), sum.weight.end());
  const CudaTable<float> table(weights);
  std::vector<stencil::Correlation> correlations;
  const float* weight = table.data();
  for (size_t k = 0; k < images.size(); ++k) {
    const Image& image = images[k];
    correlations.push_back({image.in, image.out, weight, nullptr, image.grid, image.grid, {sums[k].reach[0], sums[k].reach[1], sums[k].reach[2]}});
    weight += sums[k].weight.size();
  }
  launch_correlation("laplacian", correlations, Border::reflect_101, in, out, DType::float32, DType::float32);
}

// Large ones: a separable convolution for each partial derivative, added up as floats.
void launch_partials(const std::vector<Image>& images, int64_t spatial, DType in, DType out) {
  int64_t total = 0;
  for (const Image& image : images) total += image.grid.volume();
  const CudaBuffer sums(spatial > 1 ? total * static_cast<int64_t>(sizeof(float)) : 0);
  for (int64_t k = 0; k < spatial; ++k) {
    std::vector<SeparableImage> passes;
    // The sums of all images, one after the other, as floats of the images' shapes.
    float* sum = static_cast<float*>(sums.data());
    const bool last = k == spatial - 1;
    for (const Image& image : images) {
      // Each derivative adds the sum so far; the last one writes the output.
      passes.push_back({image.grid, image.in, last ? image.out : sum, k > 0 ? sum : nullptr, laplacian::windows(image.partials[k])});
      sum += image.grid.volume();
    }
    launch_separable("laplacian", passes, spatial, in, last ? out : DType::float32);
  }
}

void laplacian_cuda(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& scale, const MaybeTensor& smoothing_size,
                    const Tensor& window_size, bool normalized_kernel, int64_t first_spatial, int64_t spatial, const Tensor& output,
                    const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  check_outputs("laplacian", out, in);
  const laplacian::Arguments arguments(scale, smoothing_size, window_size, normalized_kernel, {first_spatial, spatial});
  std::vector<Image> small, large;  // decided per image: the two algorithms round differently, and a result must not depend on the batch
  std::vector<laplacian::Sum> sums;
  for (int64_t i = 0; i < in.size(); ++i) {
    const Grid grid = arguments.axes.grid(in, i);
    for (int64_t image = 0; image < arguments.axes.images(in, i); ++image) {
      const Image item{grid, static_cast<const char*>(in.data(i)) + image * grid.volume() * in.item_bytes(),
                       static_cast<char*>(out.data(i)) + image * grid.volume() * out.item_bytes(), arguments.partials(in, i, image)};
      laplacian::Sum sum(item.partials);
      if (sum.taps > laplacian::kMaxTaps) {
        large.push_back(item);
      } else {
        small.push_back(item);
        sums.push_back(std::move(sum));
      }
    }
  }
  if (!small.empty()) launch_sums(small, sums, in.dtype(), out.dtype());
  if (!large.empty()) launch_partials(large, spatial, in.dtype(), out.dtype());
}

}  // namespace
}  // namespace ndd::laplacian_kernels
NDD_KERNEL(laplacian, CUDA, ndd::laplacian_kernels::laplacian_cuda)
