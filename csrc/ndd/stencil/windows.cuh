// SPDX-License-Identifier: Apache-2.0
// Filters that look at a whole window for each output (correlations, medians), in tiles of 32 rows in shared memory, with one launch for all images.
// A thread computes 16 outputs in a column.
//
// A Filter supplies the type Staged, the constants kWeighted and kBlocks, and the functions in_bytes, prepare, stage and outputs; the one in
// correlation.cu is an example.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/stencil/tile.cuh"

namespace ndd::stencil {

// A row of the table of a launch. Sizes are in pixels, of `inner` interleaved elements each. Input and output may differ in size, because a
// correlation may keep to windows inside the image.
struct WindowImage {
  const void* in;
  void* out;
  const void* weights;  // of filters that have weights
  const void* fill;  // the value beyond a constant border, or null
  int64_t in_height, in_width, out_height, out_width, inner;
  Span down, along;
};

// The layout of shared memory: pointers to rows, the weights, the rows.
struct WindowPlan {
  int64_t pixels, rows, pitch, weights_at, staged_at, bytes;
};

// `elements` is the approximate number of elements that a row of outputs has in a tile.
template <class Filter>
NDD_HD WindowPlan window_plan(const WindowImage& image, int64_t elements) {
  WindowPlan plan;
  const int64_t fitting = elements / image.inner, wanted = image.out_width < fitting ? image.out_width : fitting;
  plan.pixels = wanted > 1 ? wanted : 1;
  // Output rows plus the rest of the windows of the last one.
  plan.rows = kTileRows + image.down.size - 1;
  plan.pitch = tile_pitch((plan.pixels + image.along.size - 1) * image.inner, sizeof(typename Filter::Staged));
  plan.weights_at = plan.rows * static_cast<int64_t>(sizeof(char*));
  const int64_t weights = Filter::kWeighted ? int64_t{image.down.size} * image.along.size * static_cast<int64_t>(sizeof(float)) : 0;
  plan.staged_at = (plan.weights_at + weights + 15) / 16 * 16;
  plan.bytes = plan.staged_at + plan.rows * plan.pitch * static_cast<int64_t>(sizeof(typename Filter::Staged));
  return plan;
}

template <class Filter>
bool fits_window(const WindowImage& image) {
  // Bounds for which the sizes of a plan cannot overflow.
  const bool small = image.inner >= 1 && image.inner <= 4096 && image.down.size <= 2048 && image.along.size <= 2048;
  return small && window_plan<Filter>(image, 0).bytes <= kMaxTileBytes;
}

// State that is the same for all threads of a block; in shared memory, because it would not leave enough registers for the windows.
struct WindowBlock {
  WindowImage image;
  Plane plane;
  WindowPlan plan;
  int64_t strips, tiles, x, y;  // x, y: of the tile's first output
  int inner, columns, staged_columns, pitch;
};

template <class Filter>
__global__ void __launch_bounds__(kTileThreads, Filter::kBlocks)
    window_kernel(const __grid_constant__ TableRows<WindowImage> images, int64_t count, int elements, Border border, Filter filter) {
  using Staged = typename Filter::Staged;
  extern __shared__ uint4 memory[];
  __shared__ WindowBlock block;
  char* const bytes = reinterpret_cast<char*>(memory);
  const char** const rows = reinterpret_cast<const char**>(memory);
  for (int64_t n = blockIdx.y; n < count; n += gridDim.y) {
    __syncthreads();  // the previous image is finished
    if (threadIdx.x == 0) {
      block.image = images[n];
      const WindowImage& image = block.image;
      block.plan = window_plan<Filter>(image, elements);
      block.plane = {static_cast<const char*>(image.in), image.in_height, image.in_width, image.inner};
      block.inner = static_cast<int>(image.inner);
      block.columns = static_cast<int>(block.plan.pixels) * block.inner;
      block.staged_columns = block.columns + (image.along.size - 1) * block.inner;
      block.pitch = static_cast<int>(block.plan.pitch);
      block.strips = (image.out_width + block.plan.pixels - 1) / block.plan.pixels;
      block.tiles = image.inner > 0 ? block.strips * ((image.out_height + kTileRows - 1) / kTileRows) : 0;
    }
    __syncthreads();
    float* const weights = reinterpret_cast<float*>(bytes + block.plan.weights_at);
    Staged* const staged = reinterpret_cast<Staged*>(bytes + block.plan.staged_at);
    filter.prepare(weights, block.image);
    for (int64_t tile = blockIdx.x; tile < block.tiles; tile += gridDim.x) {
      __syncthreads();  // the previous tile is finished
      if (threadIdx.x == 0) {
        block.x = tile % block.strips * block.plan.pixels * block.inner;
        block.y = tile / block.strips * kTileRows;
      }
      __syncthreads();
      const int64_t first = block.y - block.image.down.before;
      const int staged_rows = static_cast<int>(block.plan.rows);
      // Rows are found once for each tile; staging then needs no borders along the height.
      locate_rows(rows, staged_rows, block.plane, first, border, filter.in_bytes());
      __syncthreads();
      filter.stage(staged, block.pitch,
                   {rows, staged_rows, block.staged_columns, border != Border::constant || rows_inside(block.plane, first, staged_rows),
                    block.x - block.image.along.before * block.image.inner, border},
                   block.plane, block.image);
      __syncthreads();
      for_warp_tasks((block.columns + 31) / 32, kTileRows / kPiece, [&](int group, int piece) {
        const int i = group * 32 + lane_index();
        const int64_t y = block.y + piece * kPiece, row = block.image.out_width * block.image.inner, left = block.image.out_height - y;
        if (i >= block.columns || block.x + i >= row || left <= 0) return;
        filter.outputs(staged + piece * kPiece * block.pitch + i, block.pitch, block.inner, block.image.down.size, block.image.along.size, weights,
                       block.image.out, y * row + block.x + i, row, left < kPiece ? static_cast<int>(left) : kPiece);
      });
    }
  }
}

// Filters all images in one launch. Every one must satisfy fits_window.
template <class Filter>
void launch_windows(const char* op, const std::vector<WindowImage>& images, Border border, const Filter& filter) {
  const auto bytes_of = [&](int64_t elements) {
    int64_t bytes = 0;
    for (const WindowImage& image : images) bytes = std::max(bytes, window_plan<Filter>(image, elements).bytes);
    return bytes;
  };
  int64_t elements = 192, bytes = bytes_of(elements), most = 0;
  // Narrower tiles for larger windows, so several blocks fit in a multiprocessor.
  while (bytes > kGoodTileBytes && elements > kPiece) bytes = bytes_of(elements /= 2);
  for (const WindowImage& image : images) {
    const int64_t pixels = window_plan<Filter>(image, elements).pixels;
    if (image.inner > 0) most = std::max(most, (image.out_width + pixels - 1) / pixels * ((image.out_height + kTileRows - 1) / kTileRows));
  }
  if (most == 0) return;
  const KernelTable<WindowImage> table(images);
  const int64_t count = static_cast<int64_t>(images.size());
  if (bytes > 32 << 10)  // above 48 KB, kernel variables included, shared memory must be requested; always the maximum, since threads may race
    check_cuda(cudaFuncSetAttribute(window_kernel<Filter>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMaxTileBytes)), op);
  const dim3 grid = batch_grid(most, 1, count, 1 << 20);
  window_kernel<Filter><<<grid, kTileThreads, bytes, current_cuda_stream()>>>(table.rows(), count, static_cast<int>(elements), border, filter);
  check_launch(op);
}

}  // namespace ndd::stencil
