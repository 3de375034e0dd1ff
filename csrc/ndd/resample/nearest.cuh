// SPDX-License-Identifier: Apache-2.0
// Nearest neighbors: copies elements, whose positions a block computes once for a tile of 64 rows.
#pragma once
#include "ndd/elementwise/vectors.cuh"
#include "ndd/resample/weights.cuh"

namespace ndd::resample_gpu {

constexpr int kNearestRows = 64;

// A sample viewed as [outer][depth][height][width][channels], with elements of the size of an unsigned integer.
struct NearestSample {
  const void* in;
  void* out;
  int64_t outer, channels;
  Axis axes[3];

  NDD_HD int64_t rows() const { return outer * axes[0].out * axes[1].out; }
  NDD_HD int64_t row() const { return axes[2].out * channels; }
};

// The number of units a thread moves at a time: at most 16 bytes, and at most four.
template <class Unit>
constexpr int kNearestUnits = sizeof(Unit) < 8 ? 4 : 2;

#ifdef __CUDACC__
__device__ inline int64_t nearest_of(const Axis& a, int64_t i) {
  float base;
  return clamp_index(clamped_start(a, first_tap(a, i, &base)), a.in);
}

// Most extents fit in 32 bits, where a division takes a fifth of the time.
__device__ inline int64_t quotient(int64_t a, int64_t b) {
  return (a | b) >> 32 ? a / b : static_cast<int64_t>(static_cast<uint32_t>(a) / static_cast<uint32_t>(b));
}

template <class Unit>
__global__ void __launch_bounds__(kThreads) nearest_kernel(const NearestSample* samples, int64_t count) {
  constexpr int kUnits = kNearestUnits<Unit>, kWidth = 32 * kUnits;
  using Units = AlignedVector<Unit, kUnits>;
  __shared__ int64_t row_offsets[kNearestRows], offsets[kWidth];
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t i = blockIdx.y; i < count; i += gridDim.y) {
    const NearestSample& s = samples[i];
    const Unit* in = static_cast<const Unit*>(s.in);
    Unit* out = static_cast<Unit*>(s.out);
    const int64_t rows = s.rows(), row = s.row(), across = (row + kWidth - 1) / kWidth, tiles = (rows + kNearestRows - 1) / kNearestRows * across;
    const bool aligned = reinterpret_cast<uintptr_t>(out) % sizeof(Units) == 0 && row % kUnits == 0;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const int64_t down = quotient(tile, across), first_row = down * kNearestRows, first = (tile - down * across) * kWidth;
      // The previous tile's offsets are no longer read.
      __syncthreads();
      // Some threads compute the positions in a row, others those of the rows, as offsets in units.
      if (thread < kWidth) {
        // Threads beyond the edge repeat the last element: offsets stay within the source.
        const int64_t e = min(first + thread, row - 1), x = quotient(e, s.channels);
        offsets[thread] = nearest_of(s.axes[2], x) * s.channels + (e - x * s.channels);
      } else if (thread - kWidth < kNearestRows) {
        const int64_t line = min(first_row + thread - kWidth, rows - 1), plane = quotient(line, s.axes[1].out), o = quotient(plane, s.axes[0].out);
        const int64_t z = o * s.axes[0].in + nearest_of(s.axes[0], plane - o * s.axes[0].out);
        row_offsets[thread - kWidth] = (z * s.axes[1].in + nearest_of(s.axes[1], line - plane * s.axes[1].out)) * s.axes[2].in * s.channels;
      }
      __syncthreads();
      const int lane = thread % 32 * kUnits;
      const int64_t e = first + lane;
      if (e >= row) continue;
      int64_t from[kUnits];
#pragma unroll
      for (int u = 0; u < kUnits; ++u) from[u] = offsets[lane + u];
      const int last = static_cast<int>(min(rows - first_row, int64_t{kNearestRows}));
      const auto row_of = [&](int y) {
        const Unit* source = in + row_offsets[y];
        Units units;
#pragma unroll
        for (int u = 0; u < kUnits; ++u) units.element[u] = __ldg(source + from[u]);
        return units;
      };
      // Each warp takes every eighth row of the tile.
      Unit* to = out + (first_row + thread / 32) * row + e;
      const int64_t step = kThreads / 32 * row;
      // Whole vectors if all rows start at multiples of their size; otherwise element by element, with a check at the end of the row.
      if (aligned) {
#pragma unroll 2
        for (int y = thread / 32; y < last; y += kThreads / 32, to += step) *reinterpret_cast<Units*>(to) = row_of(y);
      } else {
#pragma unroll 2
        for (int y = thread / 32; y < last; y += kThreads / 32, to += step) {
          const Units units = row_of(y);
#pragma unroll
          for (int u = 0; u < kUnits; ++u)
            if (e + u < row) to[u] = units.element[u];
        }
      }
    }
  }
}
#endif

}  // namespace ndd::resample_gpu
