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

// One image's pass over one axis: elements `stride` apart are neighbours.
struct Pass {
  const void* in;
  void* out;
  const float* half;  // radius + 1 weights, centre first
  const float* add;   // added to the result, or null; may be `out`
  int64_t elements, extent, stride;
  int32_t radius;
};

NDD_HD int64_t neighbour(const Pass& pass, int64_t element, int64_t position, int64_t shift) {
  return element + (reflect_101(position + shift, pass.extent) - position) * pass.stride;
}

template <class Load>  // Load: element index -> float
NDD_HD float weighted_element(const Pass& pass, int64_t element, Load load) {
  const int64_t position = element / pass.stride % pass.extent;
  float sum = pass.half[0] * load(element);
  for (int32_t k = 1; k <= pass.radius; ++k)
    sum += pass.half[k] * (load(neighbour(pass, element, position, -k)) + load(neighbour(pass, element, position, k)));
  return pass.add ? sum + pass.add[element] : sum;
}

// Bound by the loads of the window, which the first-level cache serves: with 11 taps about a sixth of the memory's bandwidth.
static __global__ void __launch_bounds__(256) pass_kernel(const Pass* passes, int64_t count, DType in, DType out) {
  for (int64_t n = blockIdx.y; n < count; n += gridDim.y) {
    const Pass pass = passes[n];
    for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < pass.elements; e += int64_t{gridDim.x} * blockDim.x)
      store_element(weighted_element(pass, e, [&](int64_t i) { return load_element(pass.in, in, i); }), pass.out, out, e);
  }
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

// Convolves the images along their last `spatial` axes: a launch for each.
inline void launch_separable(const char* op, const std::vector<SeparableImage>& images, int64_t spatial, DType in, DType out) {
  int64_t total = 0, most = 0;
  for (const SeparableImage& image : images) {
    total += image.grid.volume();
    most = std::max(most, image.grid.volume());
  }
  if (total == 0) return;
  // Between the axes the whole batch is float, in two buffers by turns.
  const int64_t staged_bytes = total * static_cast<int64_t>(sizeof(float)), count = static_cast<int64_t>(images.size());
  const CudaBuffer first_stage(spatial > 1 ? staged_bytes : 0), second_stage(spatial > 2 ? staged_bytes : 0);
  float* staged[2] = {static_cast<float*>(first_stage.data()), static_cast<float*>(second_stage.data())};
  for (int64_t a = 0; a < spatial; ++a) {
    const int64_t axis = 3 - spatial + a;
    const bool first = a == 0, last = a == spatial - 1;
    std::vector<float> weights;
    for (const SeparableImage& image : images) weights.insert(weights.end(), image.windows[axis].half.begin(), image.windows[axis].half.end());
    const CudaTable<float> weight_table(weights);
    std::vector<stencil::Pass> passes;
    int64_t offset = 0;
    const float* half = weight_table.data();
    for (const SeparableImage& image : images) {
      const Grid& grid = image.grid;
      const int64_t extents[3] = {grid.depth, grid.height, grid.width}, strides[3] = {grid.height * grid.row(), grid.row(), grid.inner};
      passes.push_back({first ? image.in : staged[(a - 1) % 2] + offset, last ? image.out : staged[a % 2] + offset, half, last ? image.add : nullptr,
                        grid.volume(), extents[axis], strides[axis], static_cast<int32_t>(image.windows[axis].radius())});
      offset += grid.volume();
      half += image.windows[axis].half.size();
    }
    const CudaTable<stencil::Pass> table(passes);
    stencil::pass_kernel<<<stencil::blocks(most, count), 256, 0, current_cuda_stream()>>>(table.data(), count, first ? in : DType::float32,
                                                                                          last ? out : DType::float32);
    check_launch(op);
  }
}

}  // namespace ndd
