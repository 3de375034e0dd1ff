// SPDX-License-Identifier: Apache-2.0
// CUDA side of the stencil driver: one launch for the whole ragged batch, or one per axis with float results between them. The borders and the order
// of the sums are those of the CPU side.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/elements.cuh"
#include "ndd/stencil.h"

namespace ndd {
namespace stencil {

// An element for a thread in the first dimension of the grid, an image for every block in the second.
inline dim3 blocks(int64_t elements, int64_t images, int64_t threads = 256) {
  return dim3(static_cast<unsigned>(std::clamp<int64_t>((elements + threads - 1) / threads, 1, 65536)), static_cast<unsigned>(std::min<int64_t>(images, 65535)));
}

// An image to be correlated with a window of weights. A weight of 0 takes no part.
struct Correlation {
  const void* in;
  void* out;
  const void* weight;  // of a type of their own: a filter is an input
  const void* fill;    // one number of the type `fill_type`, or null
  Grid in_grid, out_grid;
  Reach reach[3];
};

template <class Load>
NDD_HD float correlated_element(const Correlation& c, int64_t element, DType weights, Border border, float fill, Load load) {
  const int64_t channel = element % c.in_grid.inner, x = element / c.in_grid.inner % c.out_grid.width - c.reach[2].before;
  const int64_t row = element / c.out_grid.row(), y = row % c.out_grid.height - c.reach[1].before, z = row / c.out_grid.height - c.reach[0].before;
  float sum = 0.0f;
  int64_t k = 0;
  for (int32_t dz = 0; dz < c.reach[0].size; ++dz) {
    const int64_t plane = border_index(border, z + dz, c.in_grid.depth);
    for (int32_t dy = 0; dy < c.reach[1].size; ++dy) {
      const int64_t line = border_index(border, y + dy, c.in_grid.height);
      const int64_t start = (plane * c.in_grid.height + line) * c.in_grid.row() + channel;
      for (int32_t dx = 0; dx < c.reach[2].size; ++dx, ++k) {
        const float weight = load_element(c.weight, weights, k);
        if (weight == 0.0f) continue;
        const int64_t column = border_index(border, x + dx, c.in_grid.width);
        sum += weight * (plane < 0 || line < 0 || column < 0 ? fill : load(start + column * c.in_grid.inner));
      }
    }
  }
  return sum;
}

// Reads each pixel once from memory and taps - 1 times from the first-level cache. Nine taps on uint8 are bound by those loads, at about a quarter of
// the memory's bandwidth; float32, with four times the bytes a load, by memory.
static __global__ void __launch_bounds__(256)
    correlation_kernel(const Correlation* images, int64_t count, Border border, DType in, DType out, DType weights, DType fill_type) {
  for (int64_t n = blockIdx.y; n < count; n += gridDim.y) {
    const Correlation c = images[n];
    const float fill = c.fill ? load_element(c.fill, fill_type, 0) : 0.0f;
    const int64_t elements = c.out_grid.volume();
    for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < elements; e += int64_t{gridDim.x} * blockDim.x)
      store_element(correlated_element(c, e, weights, border, fill, [&](int64_t i) { return load_element(c.in, in, i); }), c.out, out, e);
  }
}

}  // namespace stencil

// One launch for all images.
inline void launch_correlation(const char* op, const std::vector<stencil::Correlation>& images, Border border, DType in, DType out, DType weights,
                               DType fill_type) {
  int64_t most = 0;
  for (const auto& image : images) most = std::max(most, image.out_grid.volume());
  if (most == 0) return;
  const CudaTable<stencil::Correlation> table(images);
  const int64_t count = static_cast<int64_t>(images.size());
  stencil::correlation_kernel<<<stencil::blocks(most, count), 256, 0, current_cuda_stream()>>>(table.data(), count, border, in, out, weights, fill_type);
  check_launch(op);
}

// An image and its windows along depth, height and width.
struct SeparableImage {
  Grid grid;
  const void* in;
  void* out;
  const float* add;  // floats to add to the result, or null
  std::array<Window, 3> windows;
};

// Convolves the images along their last `spatial` axes. separable.cu
void launch_separable(const char* op, const std::vector<SeparableImage>& images, int64_t spatial, DType in, DType out);

}  // namespace ndd
