// SPDX-License-Identifier: Apache-2.0
// Filters that run along the width and then along the height of an image (blurs, minima and maxima), in a single launch. A block walks down a strip
// of the image in steps of 32 rows: rows are staged and filtered along their width into a second tile, which keeps the rows that later windows still
// cover; that tile is filtered along the height into the output. Every element is read once except for the halos of strips, and nothing goes through
// global memory between the passes.
//
// A thread computes 16 consecutive outputs along the pass, and uses each value that it loads from shared memory in up to 16 sums.
//
// A Filter supplies the types Staged, Between and Value, the constants kWeighted and kBlocks, and the functions in_bytes, stage, window and store; Blur
// in separable.cu is an example.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/stencil/tile.cuh"

namespace ndd::stencil {

// A row of the table of a launch, one for each image, plane or frame. Sizes are in pixels, of `inner` interleaved elements each.
struct TileImage {
  const void* in;
  void* out;
  const float* add;  // floats to add to the result, or null
  const float* weights;  // of weighted filters: first along the height, then along the width, the center's first
  int64_t height, width, inner;
  Span down, along;  // the windows along height and width
};

// The layout of shared memory: 32 pointers to rows, the weights, the staged rows, and the rows filtered along the width.
struct TilePlan {
  int64_t pixels, staged_pitch, between_pitch, staged_at, between_at, bytes;
};

// `elements` is the approximate number of elements that a row of outputs has in a tile.
template <class Filter>
NDD_HD TilePlan tile_plan(const TileImage& image, int64_t elements) {
  constexpr int64_t kStaged = sizeof(typename Filter::Staged), kBetween = sizeof(typename Filter::Between);
  TilePlan plan;
  // Whole pieces of 16 pixels, at least one.
  const int64_t fitting = elements / image.inner / kPiece * kPiece, columns_beyond = (image.along.size - 1) * image.inner;
  const int64_t wanted = image.width < fitting ? (image.width + kPiece - 1) / kPiece * kPiece : fitting;
  plan.pixels = wanted > kPiece ? wanted : kPiece;
  plan.staged_pitch = tile_pitch(plan.pixels * image.inner + columns_beyond, kStaged);
  plan.between_pitch = tile_pitch(plan.pixels * image.inner, kBetween);
  const int64_t weights = Filter::kWeighted ? (image.down.size + image.along.size) * static_cast<int64_t>(sizeof(float)) : 0;
  plan.staged_at = (kTileRows * static_cast<int64_t>(sizeof(char*)) + weights + 15) / 16 * 16;
  plan.between_at = (plan.staged_at + kTileRows * plan.staged_pitch * kStaged + 15) / 16 * 16;
  // The second tile holds 32 rows and the halo of the window along the height.
  plan.bytes = plan.between_at + (kTileRows + image.down.size - 1) * plan.between_pitch * kBetween;
  return plan;
}

// The height of the part of a strip that a block walks down: parts have at most `steps` steps of 32 rows and are equally high.
NDD_HD int64_t tile_height(int64_t height, int64_t steps) {
  const int64_t all = (height + kTileRows - 1) / kTileRows, parts = (all + steps - 1) / steps;
  // An image without rows has no parts; the height must still not be zero, because it divides.
  return parts > 0 ? (all + parts - 1) / parts * kTileRows : kTileRows;
}

template <class Filter>
bool fits_tile(const TileImage& image) {
  return image.inner >= 1 && image.inner <= 4096 && tile_plan<Filter>(image, 0).bytes <= kMaxTileBytes;
}

// State that is the same for all threads of a block. It is in shared memory because it would not leave enough registers for the windows.
struct TileBlock {
  TileImage image;
  Plane plane;
  TilePlan plan;
  int64_t x, staged_x, pixel, y, y_end, next;  // the position of the tile's first element; its output rows, and the next input row
  int64_t high, strips, tiles;
  int inner, columns, staged_columns, staged_pitch, between_pitch;

  // Prepares tile number `tile` of the image.
  NDD_HD void place(int64_t tile) {
    pixel = tile % strips * plan.pixels;
    x = pixel * image.inner;
    staged_x = x - image.along.before * image.inner;
    y = tile / strips * high;
    y_end = y + high < image.height ? y + high : image.height;
    next = y - image.down.before;
  }
};

template <class Filter>
__global__ void __launch_bounds__(kTileThreads, Filter::kBlocks)
    separable_kernel(const __grid_constant__ TableRows<TileImage> images, int64_t count, int elements, int steps, Border border, Filter filter) {
  using Staged = typename Filter::Staged;
  using Between = typename Filter::Between;
  extern __shared__ uint4 memory[];
  __shared__ TileBlock block;
  char* const bytes = reinterpret_cast<char*>(memory);
  const char** const rows = reinterpret_cast<const char**>(memory);
  float* const weights = reinterpret_cast<float*>(bytes + kTileRows * sizeof(char*));
  const int lane = lane_index();
  for (int64_t n = blockIdx.y; n < count; n += gridDim.y) {
    __syncthreads();  // the previous image is finished
    if (threadIdx.x == 0) {
      block.image = images[n];
      block.plan = tile_plan<Filter>(block.image, elements);
      block.plane = {static_cast<const char*>(block.image.in), block.image.height, block.image.width, block.image.inner};
      block.inner = static_cast<int>(block.image.inner);
      block.columns = static_cast<int>(block.plan.pixels) * block.inner;
      block.staged_columns = block.columns + (block.image.along.size - 1) * block.inner;
      block.staged_pitch = static_cast<int>(block.plan.staged_pitch);
      block.between_pitch = static_cast<int>(block.plan.between_pitch);
      block.high = tile_height(block.image.height, steps);
      block.strips = (block.image.width + block.plan.pixels - 1) / block.plan.pixels;
      block.tiles = block.strips * ((block.image.height + block.high - 1) / block.high);
    }
    __syncthreads();
    Staged* const staged = reinterpret_cast<Staged*>(bytes + block.plan.staged_at);
    Between* const between = reinterpret_cast<Between*>(bytes + block.plan.between_at);
    const int halo = block.image.down.size - 1;
    if (Filter::kWeighted)
      for (int k = static_cast<int>(threadIdx.x); k < block.image.down.before + block.image.along.before + 2; k += kTileThreads)
        weights[k] = block.image.weights[k];
    for (int64_t tile = blockIdx.x; tile < block.tiles; tile += gridDim.x) {
      __syncthreads();  // the previous tile is finished
      if (threadIdx.x == 0) block.place(tile);
      __syncthreads();
      // Fills `between` with the halo and 32 rows; then alternates between filtering 32 output rows and 32 more input rows.
      int ready = 0;  // rows of `between` that are finished
      int64_t y = block.y, next = block.next;
      locate_rows(rows, kTileRows, block.plane, next, border, filter.in_bytes());
      __syncthreads();
      for (;;) {
        // The last rows of the halo are staged on their own, so every later step has 32 rows.
        const int fresh = ready < halo && halo - ready < kTileRows ? halo - ready : kTileRows;
        filter.stage(
            staged, block.staged_pitch,
            {rows, fresh, block.staged_columns, border != Border::constant || rows_inside(block.plane, next, kTileRows), block.staged_x, border},
            block.plane);
        __syncthreads();
        // Along the width: a lane per row, a warp per channel and piece.
        for_warp_tasks(block.inner, static_cast<int>(block.plan.pixels) / kPiece, [&](int channel, int piece) {
          const int inner = block.inner, from = piece * kPiece;
          if (lane >= fresh || block.pixel + from >= block.image.width) return;
          typename Filter::Value values[kPiece];
          filter.window(values, staged + lane * block.staged_pitch + from * inner + channel, inner, block.image.along,
                        weights + block.image.down.before + 1);
          Between* to = between + (ready + lane) * block.between_pitch + from * inner + channel;
#pragma unroll
          for (int o = 0; o < kPiece; ++o, to += inner) *to = static_cast<Between>(values[o]);
        });
        __syncthreads();
        ready += fresh;
        next += fresh;
        // The next rows are located while other warps still compute; the barrier follows in either branch.
        locate_rows(rows, kTileRows, block.plane, next, border, filter.in_bytes());
        if (ready < halo + kTileRows) {
          __syncthreads();
          continue;
        }
        // Along the height: a lane per column, a warp per 32 columns and piece.
        for_warp_tasks((block.columns + 31) / 32, kTileRows / kPiece, [&](int group, int piece) {
          const int i = group * 32 + lane, from = piece * kPiece;
          if (i >= block.columns || block.x + i >= block.plane.row() || y + from >= block.y_end) return;
          typename Filter::Value values[kPiece];
          filter.window(values, between + from * block.between_pitch + i, block.between_pitch, block.image.down, weights);
          const int64_t row = block.plane.row(), left = block.y_end - y - from;
          filter.store(values, block.image.out, block.image.add, (y + from) * row + block.x + i, row,
                       left < kPiece ? static_cast<int>(left) : kPiece);
        });
        y += kTileRows;
        if (y >= block.y_end) break;
        __syncthreads();
        // Each column is moved by a single thread, because source and destination rows may overlap.
        for (int i = static_cast<int>(threadIdx.x); i < block.columns && block.x + i < block.plane.row(); i += kTileThreads) {
          Between* to = between + i;
          for (int r = 0; r < halo; ++r, to += block.between_pitch) *to = to[kTileRows * block.between_pitch];
        }
        ready = halo;
      }
    }
  }
}

// Filters all images in one launch. Every one must satisfy fits_tile.
template <class Filter>
void launch_tiles(const char* op, const std::vector<TileImage>& images, Border border, const Filter& filter) {
  const auto bytes_of = [&](int64_t elements) {
    int64_t bytes = 0;
    for (const TileImage& image : images) bytes = std::max(bytes, tile_plan<Filter>(image, elements).bytes);
    return bytes;
  };
  // Large windows get narrower tiles, so three blocks still share a multiprocessor.
  int64_t elements = 192, bytes = bytes_of(elements);
  while (bytes > kGoodTileBytes && elements > kPiece) bytes = bytes_of(elements /= 2);
  const auto tiles_of = [&](const TileImage& image, int64_t steps) {
    const int64_t pixels = tile_plan<Filter>(image, elements).pixels, high = tile_height(image.height, steps);
    return (image.width + pixels - 1) / pixels * ((image.height + high - 1) / high);
  };
  int64_t total = 0, most = 0;
  for (const TileImage& image : images) total += tiles_of(image, 1);
  if (total == 0) return;
  // Each block stages and filters the halo above its rows again, so blocks are as high as possible while still keeping all multiprocessors
  // busy.
  const int64_t resident = Filter::kBlocks * multiprocessors(), steps = std::clamp<int64_t>((total + resident - 1) / resident, 1, 16);
  for (const TileImage& image : images) most = std::max(most, tiles_of(image, steps));
  const KernelTable<TileImage> table(images);
  const int64_t count = static_cast<int64_t>(images.size());
  if (bytes > 32 << 10)  // above 48 KB, kernel variables included, shared memory must be requested; always the maximum, since threads may race
    check_cuda(cudaFuncSetAttribute(separable_kernel<Filter>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMaxTileBytes)), op);
  const dim3 grid = batch_grid(most, 1, count, 1 << 20);
  separable_kernel<Filter><<<grid, kTileThreads, bytes, current_cuda_stream()>>>(table.rows(), count, static_cast<int>(elements),
                                                                                 static_cast<int>(steps), border, filter);
  check_launch(op);
}

}  // namespace ndd::stencil
