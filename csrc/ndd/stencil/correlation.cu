// SPDX-License-Identifier: Apache-2.0
// Correlation of images with windows of weights: planes in tiles in shared memory; volumes, and windows too large for a tile, one element per thread.
#include <vector>

#include "ndd/elementwise/elements.cuh"
#include "ndd/launch_runs.cuh"
#include "ndd/stencil/byte_windows.cuh"
#include "ndd/stencil/stencil.cuh"
#include "ndd/stencil/windows.cuh"

namespace ndd {
namespace stencil {
namespace {

// S is the staged type: uint8_t for uint8, converted when loaded from the tile, otherwise float.
template <class S>
struct WeightedSum {
  using Staged = S;
  static constexpr bool kWeighted = true;
  static constexpr int kBlocks = 4;  // per multiprocessor, which leaves up to 80 registers per thread
  DType in, out, weight_type, fill_type;

  __device__ int64_t in_bytes() const { return item_bytes(in); }

  // Stores the weights column by column.
  __device__ void prepare(float* weights, const WindowImage& image) const {
    const int down = image.down.size, along = image.along.size;
    for (int k = static_cast<int>(threadIdx.x); k < down * along; k += kTileThreads)
      // The order in which outputs() reads them.
      weights[k % along * down + k / along] = load_element(image.weights, weight_type, k);
  }

  __device__ void stage(S* tile, int pitch, const StagedRows& from, const Plane& plane, const WindowImage& image) const {
    if constexpr (sizeof(S) == 1) {
      stage_bytes(tile, pitch, from, plane, 0, 0);  // such images have no constant border
    } else {
      const float fill = image.fill ? load_element(image.fill, fill_type, 0) : 0.0f;
      for_dtype(in, [&](auto tag) {
        using T = typename decltype(tag)::type;
        stage_elements<T>(tile, pitch, from, plane, fill, [](T value) { return static_cast<float>(value); });
      });
    }
  }

  static __device__ float value(S element) {
    if constexpr (sizeof(S) == 1) return static_cast<float>(static_cast<uint32_t>(element));
    else return element;
  }

  // Goes through the window column by column while 16 values slide down, so each value is loaded once per column.
  __device__ void outputs(const S* from, int pitch, int inner, int down, int along, const float* weights, void* to, int64_t at, int64_t row,
                          int count) const {
    float sum[kPiece];
#pragma unroll
    for (int o = 0; o < kPiece; ++o) sum[o] = 0.0f;
    for (int dx = 0; dx < along; ++dx, from += inner, weights += down) {
      float window[kPiece];
      const S* next = from;
#pragma unroll
      for (int o = 0; o < kPiece; ++o, next += pitch) window[o] = value(*next);
      // The window is a ring in registers: `shift` says which of its entries belongs to output 0. All indices are known after unrolling.
      const auto add = [&](float weight, int shift) {
        if (weight == 0.0f) return;  // skipped, so even infinite elements have no effect
#pragma unroll
        for (int o = 0; o < kPiece; ++o) sum[o] += weight * window[(o + shift) % kPiece];
      };
      add(weights[0], 0);
      // Each step replaces the uppermost value of the ring by the next one below.
      for (int first = 1; first < down; first += kPiece) {
#pragma unroll
        for (int u = 0; u < kPiece; ++u) {
          if (first + u >= down) break;
          window[u] = value(*next);
          next += pitch;
          add(weights[first + u], u + 1);
        }
      }
    }
    store_elements(sum, count, to, out, at, row);
  }
};

// Bytes by windows of 3 x 3 weights. A byte is converted once for its nine products, which are added in the order of WeightedSum::outputs: column by column.
// Weights of 0 need no care here, because bytes are finite. Predicted: 22 instructions for each output, 0.5 of the copy bandwidth.
struct ByteWeightedSum {
  static constexpr int kRows = 3, kColumns = 3, kWeights = 9, kOutputs = 16, kScale = 1;
  static constexpr int kResident = 3;  // up to 80 registers: 36 values of three rows, and the weights
  DType weight_type;

  __device__ float weight(const ByteImages& image, int k) const { return load_element(image.weights, weight_type, k); }

  // saturate<uint8_t>() as the lowest byte of a number of 2^23: integers are all that it can hold, and the sum is rounded down.
  static __device__ __forceinline__ uint32_t rounded(float sum) {
    return __float_as_uint(__fadd_rd(fminf(fmaxf(sum + 0.49999997f, 0.0f), 255.0f), 8388608.0f));
  }

  template <class Words, class Put>
  __device__ __forceinline__ void operator()(const Words& words, const float* weights, int, int, Put put) const {
    float row[3][3][4], weight[9];  // of the rows of the window, its columns and four elements
#pragma unroll
    for (int k = 0; k < 9; ++k) weight[k] = weights[k];
    const auto add = [&](int r) {
      uint32_t taps[3];
      words(r, taps);
#pragma unroll
      for (int dx = 0; dx < 3; ++dx)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          row[0][dx][e] = row[1][dx][e];
          row[1][dx][e] = row[2][dx][e];
          // The byte as the lowest one of 2^23, which is subtracted: conversions of bytes are issued at an eighth of the rate.
          row[2][dx][e] = __uint_as_float(__byte_perm(taps[dx], 0x4B000000u, 0x7440 + e)) - 8388608.0f;
        }
    };
    add(0);
    add(1);
#pragma unroll 4
    for (int o = 0; o < kOutputs; ++o) {
      add(o + 2);
      uint32_t level[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float sum = 0.0f;
#pragma unroll
        for (int dx = 0; dx < 3; ++dx)
#pragma unroll
          for (int dy = 0; dy < 3; ++dy) sum += weight[3 * dy + dx] * row[dy][dx][e];
        level[e] = rounded(sum);
      }
      put(o, {__byte_perm(__byte_perm(level[0], level[1], 0x0040), __byte_perm(level[2], level[3], 0x0040), 0x5410)});
    }
  }
};

// An element of the result, with the window's weights in the order of its planes, rows and columns.
template <class Load>
__device__ float correlated_element(const Correlation& c, int64_t element, DType weights, Border border, float fill, Load load) {
  // The upper left corner of the window; indices beyond the image are resolved per axis.
  const int64_t channel = element % c.in_grid.inner, x = element / c.in_grid.inner % c.out_grid.width - c.reach[2].before;
  const int64_t row = element / c.out_grid.row(), y = row % c.out_grid.height - c.reach[1].before, z = row / c.out_grid.height - c.reach[0].before;
  float sum = 0.0f;
  int64_t k = 0;
  for (int32_t dz = 0; dz < c.reach[0].size; ++dz) {
    const int64_t plane = border_index(border, z + dz, c.in_grid.depth);
    for (int32_t dy = 0; dy < c.reach[1].size; ++dy) {
      const int64_t line = border_index(border, y + dy, c.in_grid.height);
      // Not read if an index is negative, which stands for an element of a constant border.
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

// The general path, for everything that does not fit in tiles: one element per thread, its window read through the L1 cache.
__global__ void __launch_bounds__(256) correlation_kernel(const __grid_constant__ TableRows<Correlation> images, int64_t count, Border border,
                                                          DType in, DType out, DType weights, DType fill_type) {
  for (int64_t n = blockIdx.y; n < count; n += gridDim.y) {
    const Correlation& c = images[n];
    const float fill = c.fill ? load_element(c.fill, fill_type, 0) : 0.0f;
    const int64_t elements = c.out_grid.volume();
    for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < elements; e += int64_t{gridDim.x} * blockDim.x)
      store_element(correlated_element(c, e, weights, border, fill, [&](int64_t i) { return load_element(c.in, in, i); }), c.out, out, e);
  }
}

template <class S>
void launch(const char* op, const std::vector<Correlation>& images, Border border, DType in, DType out, DType weights, DType fill_type) {
  // Decided for each image on its own, so its result does not depend on the rest of the batch.
  std::vector<ByteImages> small;
  std::vector<WindowImage> tiled;
  std::vector<Correlation> rest;
  for (const Correlation& c : images) {
    const Grid &from = c.in_grid, &to = c.out_grid;
    if (to.volume() == 0) continue;
    if (sizeof(S) == 1 && out == DType::uint8 && c.reach[0].size == 1 && c.reach[1].size == 3 && c.reach[2].size == 3 && fits_bytes(from, to, 3)) {
      small.push_back(byte_images<ByteWeightedSum>(from, to, c.reach[1], c.reach[2], c.in, c.out, 0, c.weight));
      continue;
    }
    const WindowImage plane{c.in,
                            c.out,
                            c.weight,
                            c.fill,
                            from.height,
                            from.width,
                            to.height,
                            to.width,
                            from.inner,
                            {c.reach[1].size, c.reach[1].before},
                            {c.reach[2].size, c.reach[2].before}};
    // Planes with windows of one plane; volumes take the general path.
    if (from.depth == 1 && c.reach[0].size == 1 && fits_window<WeightedSum<S>>(plane)) tiled.push_back(plane);
    else rest.push_back(c);
  }
  if constexpr (sizeof(S) == 1) bytes::launch(op, small, border, 0, ByteWeightedSum{weights});
  if (!tiled.empty()) launch_windows(op, tiled, border, WeightedSum<S>{in, out, weights, fill_type});
  const auto volume = [](const Correlation& c) { return c.out_grid.volume(); };
  launch_runs(op, rest, volume, 256, [&](dim3 grid, const auto& rows, int64_t count) {
    correlation_kernel<<<grid, 256, 0, current_cuda_stream()>>>(rows, count, border, in, out, weights, fill_type);
  });
}

}  // namespace
}  // namespace stencil

void launch_correlation(const char* op, const std::vector<stencil::Correlation>& images, Border border, DType in, DType out, DType weights,
                        DType fill_type) {
  if (in == DType::uint8 && border != Border::constant) stencil::launch<uint8_t>(op, images, border, in, out, weights, fill_type);
  else stencil::launch<float>(op, images, border, in, out, weights, fill_type);
}

}  // namespace ndd
