// SPDX-License-Identifier: Apache-2.0
// Slices on the GPU that exchange the axes along which input and output are contiguous.
#pragma once

#include <cstdint>

#include "ndd/cuda.h"
#include "ndd/slice/tiles.cuh"

namespace ndd::slice_gpu {
namespace {

// Transposes tiles of up to 32 rows of 96 bytes: read along one axis in 16-byte units, written along the other in words. Pixels of any size up to 24
// bytes are moved as bytes: the places of a word's bytes in the stage are found once and serve for all rows of the output. Rows of the stage are an
// odd number of words apart, so columns are read without bank conflicts.
__global__ void __launch_bounds__(kThreads, 4)
    planes_gpu(const __grid_constant__ TableRows<Place> places, int count, const __grid_constant__ TableRows<Plan> plans, uint32_t units,
               const __grid_constant__ TableRows<unsigned long long> fills) {
  // A row of the stage has the aligned units that kPlaneBytes bytes at any address touch.
  constexpr int kUnits = (kPlaneBytes + 15 + 15) / 16, kPitch = 4 * (kUnits * 4 + 1), kLoads = kPlaneRows * kUnits / kLane;
  static_assert(kPlaneRows * kUnits % kLane == 0);
  __shared__ uint32_t stages[kWarps * kPlaneRows * kPitch / 4];
  __shared__ Tile tiles[kWarps];
  const int lane = threadIdx.x % kLane;
  Tile& tile = tiles[threadIdx.x / kLane];
  uint32_t* const words = stages + threadIdx.x / kLane * (kPlaneRows * kPitch / 4);
  for_each_tile(places, count, plans, units, tile, [&] {
    const int begin = tile.begin, end = tile.end, rows = tile.rows, rows_begin = tile.rows_begin, rows_end = tile.rows_end, pixel = tile.pixel;
    const char *const low = tile.low, *const high = tile.high, *const source = tile.in + rows_begin * tile.row_in;
    char* const out = tile.out;
    assume_global(low, high, source, out);
    const int64_t step = tile.in_step, row_out = tile.row_out;
    // Bytes of an input run that lie in the window.
    const int span = (rows_end - rows_begin) * pixel;
    const auto keep = [&](int u, const uint4& value) {
      const int p = u / kUnits, v = u - p * kUnits;
      uint32_t* const to = words + p * (kPitch / 4) + 4 * v;
      to[0] = value.x, to[1] = value.y, to[2] = value.z, to[3] = value.w;
    };
    const int64_t to_last = (tile.count - 1) * step;
    const bool whole = begin == 0 && end == tile.count && rows_begin == 0 && rows_end == rows;
    if (whole && source + min(int64_t{0}, to_last) - 16 >= low && source + max(int64_t{0}, to_last) + 16 * kUnits <= high) {
      uint4 value[kLoads];
#pragma unroll
      for (int k = 0; k < kLoads; ++k) {
        const int u = k * kLane + lane, p = u / kUnits, v = u - p * kUnits;
        const char* const from = source + min(p, tile.count - 1) * step;
        value[k] = load_vector(from - misalignment(from) + 16 * v);
      }
#pragma unroll
      for (int k = 0; k < kLoads; ++k) keep(k * kLane + lane, value[k]);
    } else {
#pragma unroll 1
      for (int u = lane; u < kPlaneRows * kUnits; u += kLane) {
        const int p = u / kUnits, v = u - p * kUnits;
        const char* const from = source + p * step;
        const int at = 16 * v - misalignment(from);
        const uint32_t wanted = p >= begin && p < end ? bits_within(at, 0, span) : 0u;
        if (wanted == 0) continue;
        if (from + at >= low && from + at + 16 <= high) keep(u, load_vector(from + at));
        else keep(u, load_bytes(from + at, wanted));
      }
    }
    __syncwarp();
    const auto* const stage = reinterpret_cast<const unsigned char*>(words);
    // The place of byte c of pixel p in the first row of the output.
    const auto place = [&](int p, int c) { return p * kPitch + misalignment(source + p * step) - rows_begin * pixel + c; };
    const int length = tile.count * pixel;
    if (whole && (length | misalignment(out) | static_cast<int>(row_out & 3)) % 4 == 0) {
#pragma unroll 1
      for (int e = 4 * lane; e < length; e += 4 * kLane) {
        int from[4], p = e / pixel, c = e - p * pixel;
#pragma unroll
        for (int b = 0; b < 4; ++b) {
          from[b] = place(p, c);
          if (++c == pixel) c = 0, ++p;
        }
#pragma unroll 4
        for (int r = 0; r < rows; ++r) {
          const unsigned char* const at = stage + r * pixel;
          const uint32_t word = __byte_perm(at[from[0]] | at[from[1]] << 8, at[from[2]] | at[from[3]] << 8, 0x5410);
          __stwb(reinterpret_cast<uint32_t*>(out + r * row_out + e), word);
        }
      }
    } else {
#pragma unroll 1
      for (int e = lane; e < length; e += kLane) {
        const int p = e / pixel, c = e - p * pixel, from = place(p, c);
        const bool column_shown = p >= begin && p < end;
        const int64_t channel = tile.channel + (tile.channel_of_pixel ? c / tile.item : 0);
#pragma unroll 2
        for (int r = 0; r < rows; ++r) {
          const bool shown = column_shown && r >= rows_begin && r < rows_end;
          out[r * row_out + e] = static_cast<char>(
              shown ? stage[from + r * pixel] : static_cast<unsigned char>(fills.data()[channel + (tile.channel_of_row ? r : 0)] >> 8 * (c & 7)));
        }
      }
    }
  });
}

}  // namespace
}  // namespace ndd::slice_gpu
