// SPDX-License-Identifier: Apache-2.0
// Resamples images to floats by torch's or Pillow's rule, width first, in one launch; from floats, or from bytes that become floats. A block computes
// a tile: it mixes the columns of some source rows into floats in shared memory, and the rows of these to the output. All sums are those of a pass
// for each axis, in the same order, without rounding in between. Images have any number of channels.
//
// Counted in the machine code for sm_90 (compiled and emulated, not run on a GPU), reducing 640x480x3 to 224x224 with antialias takes 215
// instructions for an element of the output: 145 to mix columns, for 2.3 source rows with 6 taps each, and 70 to mix rows. An H100 needs 0.23 ms for
// 128 images of floats (predicted), of which the bytes take 0.19. A pass through memory for each axis, an element a thread, took 0.79 ms for bytes
// (measured), and moves 1.6 times the bytes of the tiles.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "ndd/elementwise/divisor.h"
#include "ndd/elementwise/vectors.cuh"
#include "ndd/resample/normalized.cuh"
#include "ndd/resample/table.h"
#include "ndd/resample/weights.cuh"

namespace ndd::resample_gpu {

constexpr int kFloatRows = 32, kFloatColumns = 64;  // of a tile, at most

// An axis, and its places in the tables in device memory: the starts of its outputs and after them the numbers of their taps; and `stride` weights
// for each output; no output needs more than `most` of them.
struct FloatAxis {
  int64_t numbers, weights;
  int32_t in, out, stride, most;
};

// The tables of an axis, as append() adds them.
struct FloatTable {
  FloatAxis axis{};
  // The most source elements that the outputs of a tile need, for tiles of 8, 16 and 32 outputs.
  int64_t elements[3] = {};
  // Whether the first and the last output of each tile have its first and its last source elements between them.
  bool in_order = false;

  void append(const AxisTable& t, std::vector<int32_t>& numbers, std::vector<float>& weights) {
    axis = {static_cast<int64_t>(numbers.size()), static_cast<int64_t>(weights.size()), static_cast<int32_t>(t.axis.in),
            static_cast<int32_t>(t.axis.out),     static_cast<int32_t>(t.stride),       t.most};
    numbers.insert(numbers.end(), t.start.begin(), t.start.end());
    numbers.insert(numbers.end(), t.count.begin(), t.count.end());
    weights.insert(weights.end(), t.weight.begin(), t.weight.end());
    in_order = true;
    for (int n = 0; n < 3; ++n) {
      elements[n] = 0;
      for (int64_t begin = 0; begin < t.axis.out; begin += 8 << n) {
        const int64_t last = std::min<int64_t>(begin + (8 << n), t.axis.out) - 1;
        int32_t low = t.start[begin], high = low;
        for (int64_t i = begin; i <= last; ++i) {
          low = std::min(low, t.start[i]);
          high = std::max(high, t.start[i] + t.count[i]);
        }
        elements[n] = std::max<int64_t>(elements[n], high - low);
        in_order = in_order && low == std::min(t.start[begin], t.start[last]) &&
                   high == std::max(t.start[begin] + t.count[begin], t.start[last] + t.count[last]);
      }
    }
  }
};

// A sample viewed as [planes][height][width][channels], and its partition into tiles.
struct FloatSample {
  const void* in;
  void* out;
  int64_t planes;
  FloatAxis vertical, horizontal;
  int32_t channels, columns, rows, across, tiles;  // columns and rows: of a tile
  // Offsets in bytes of the parts of a block's shared memory, behind the starts and the numbers of taps of its rows and columns.
  int32_t column_weights, mixed;

  static constexpr int kNumbers = 2 * (kFloatRows + kFloatColumns);

  // Partitions into tiles that mix at most `elements` source rows. Returns the shared memory that a block needs.
  int64_t cut(int64_t width, int64_t height, int64_t elements) {
    columns = static_cast<int32_t>(width);
    rows = static_cast<int32_t>(height);
    across = static_cast<int32_t>((horizontal.out + width - 1) / width);
    tiles = static_cast<int32_t>(std::min<int64_t>((vertical.out + height - 1) / height * across, INT32_MAX));
    const int64_t weights_at = (kNumbers + height * vertical.most) * 4, mixed_at = weights_at + width * horizontal.most * 4;
    const int64_t end = mixed_at + (elements + 3) / 4 * 4 * width * channels * 4;
    if (end > INT32_MAX) return end;
    column_weights = static_cast<int32_t>(weights_at);
    mixed = static_cast<int32_t>(mixed_at);
    return end;
  }
};

#ifdef __CUDACC__
template <class In>
__device__ __forceinline__ float load_value(const In* from) {
  return static_cast<float>(AlignedVector<In, 1>::load(reinterpret_cast<const AlignedVector<In, 1>*>(from)).element[0]);
}

// `out` is float32, float16 or bfloat16.
template <class In>
__global__ void __launch_bounds__(kThreads, 4)
    float_kernel(const __grid_constant__ TableRows<FloatSample> samples, int64_t count, const int32_t* numbers, const float* weights, DType out) {
  extern __shared__ float4 memory[];
  // In shared memory, one after the other: starts and tap counts of rows and of columns, weights of rows and of columns, mixed rows.
  auto* const row_starts = reinterpret_cast<int32_t*>(memory);
  auto* const row_taps = row_starts + kFloatRows;
  auto* const column_starts = row_taps + kFloatRows;
  auto* const column_taps = column_starts + kFloatColumns;
  auto* const row_weights = reinterpret_cast<float*>(column_taps + kFloatColumns);
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int64_t i = blockIdx.y; i < count; i += gridDim.y) {
    const FloatSample& s = samples[i];
    // `numbers` has the starts of an axis and then its counts; `stride` weights follow each other for an output.
    const FloatAxis &v = s.vertical, &h = s.horizontal;
    auto* const column_weights = reinterpret_cast<float*>(reinterpret_cast<char*>(memory) + s.column_weights);
    auto* const mixed = reinterpret_cast<float*>(reinterpret_cast<char*>(memory) + s.mixed);
    const int channels = s.channels, columns = s.columns, most_down = v.most, most_across = h.most;
    const int64_t in_pitch = int64_t{h.in} * channels, out_pitch = int64_t{h.out} * channels;
    const Divisor of_channel(channels);
#pragma unroll 1
    for (int tile = static_cast<int>(blockIdx.x); tile < s.tiles; tile += static_cast<int>(gridDim.x)) {
      const int down = tile / s.across, across = tile - down * s.across, y0 = down * s.rows, x0 = across * columns;
      const int rows = min(v.out - y0, s.rows), width = min(h.out - x0, columns), elements = width * channels;
      // The threads may still read the weights of the previous tile.
      __syncthreads();
      if (thread < rows) {
        row_starts[thread] = __ldg(numbers + v.numbers + y0 + thread);
        row_taps[thread] = __ldg(numbers + v.numbers + v.out + y0 + thread);
      }
      if (thread < width) {
        column_starts[thread] = __ldg(numbers + h.numbers + x0 + thread);
        column_taps[thread] = __ldg(numbers + h.numbers + h.out + x0 + thread);
      }
      const Divisor of_row(most_down), of_column(most_across);
      for (int k = thread; k < rows * most_down; k += kThreads) {
        const int y = static_cast<int>(of_row.quotient(k));
        row_weights[k] = __ldg(weights + v.weights + int64_t{y0 + y} * v.stride + (k - y * most_down));
      }
      for (int k = thread; k < width * most_across; k += kThreads) {
        const int x = static_cast<int>(of_column.quotient(k)), tap = k - x * most_across;
        column_weights[tap * columns + x] = __ldg(weights + h.weights + int64_t{x0 + x} * h.stride + tap);
      }
      __syncthreads();
      // A mirrored axis has its first output at the other end.
      const int first = min(row_starts[0], row_starts[rows - 1]),
                last = max(row_starts[0] + row_taps[0], row_starts[rows - 1] + row_taps[rows - 1]) - 1, quads = (last - first) / 4 + 1;
      const Divisor of_element(elements);
#pragma unroll 1
      for (int64_t plane = blockIdx.z; plane < s.planes; plane += gridDim.z) {
        // Columns: a thread mixes those of an element in four rows, which share the weights.
        const In* const in = static_cast<const In*>(s.in) + (plane * v.in + first) * in_pitch;
        assume_global(in);
#pragma unroll 1
        for (int item = thread; item < quads * elements; item += kThreads) {
          const int quad = static_cast<int>(of_element.quotient(item)), e = item - quad * elements;
          const int x = static_cast<int>(of_channel.quotient(e)), c = e - x * channels, taps = column_taps[x];
          const In* from[4];
          float sum[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            // Rows behind the last one repeat it; they are not used.
            from[j] = in + min(4 * quad + j, last - first) * in_pitch + (int64_t{column_starts[x]} * channels + c);
            sum[j] = 0.0f;
          }
          const float* weight = column_weights + x;
#pragma unroll 2
          for (int k = 0; k < taps; ++k, weight += columns) {
            const float w = *weight;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
              sum[j] += w * load_value(from[j]);
              from[j] += channels;
            }
          }
          float* const to = mixed + 4 * quad * elements + e;
#pragma unroll
          for (int j = 0; j < 4; ++j) to[j * elements] = sum[j];
        }
        __syncthreads();
        // Rows: neighboring threads take neighboring elements.
        const int64_t out_first = (plane * v.out + y0) * out_pitch + int64_t{x0} * channels;
#pragma unroll 1
        for (int item = thread; item < rows * elements; item += kThreads) {
          const int y = static_cast<int>(of_element.quotient(item)), e = item - y * elements, taps = row_taps[y];
          const float *value = mixed + (row_starts[y] - first) * elements + e, *weight = row_weights + y * most_down;
          float sum = 0.0f;
#pragma unroll 4
          for (int k = 0; k < taps; ++k, value += elements) sum += weight[k] * *value;
          store_value(sum, s.out, out, out_first + y * out_pitch + e);
        }
        __syncthreads();  // before the next plane
      }
    }
  }
}
#endif

}  // namespace ndd::resample_gpu
