// SPDX-License-Identifier: Apache-2.0
// Slices on the GPU whose rows are contiguous on both sides: moved in vectors of 16 bytes, and filled outside the window.
#pragma once

#include <cstdint>

#include "ndd/cuda.h"
#include "ndd/slice/tiles.cuh"

namespace ndd::slice_gpu {
namespace {

// Sixteen bytes of a row's output, and where they come from.
struct Spot {
  const char* from;  // the source of the first byte
  char* to;
  uint32_t bits, read;  // bytes to write; bytes to read, the others are filled
  bool vectors;  // they can be read as aligned vectors

  __device__ int shift() const { return misalignment(from); }
};

// Moves rows of whole vectors that are aligned in the output and equally misaligned in the input: 1 to 3 instructions a byte.
__device__ void copy_vectors(const Tile& tile, int lane) {
  const int per_row = tile.count / 16, total = tile.rows * per_row, shift = misalignment(tile.in);
  const uint32_t inverse = inverse_of(per_row);
  const char* const in = tile.in - shift;
  char* const out = tile.out;
  const int64_t row_in = tile.row_in - 16 * per_row, row_out = tile.row_out - 16 * per_row;
  const auto row_of = [&](int u) { return per_row == 1 ? u : quotient(u, inverse); };
#pragma unroll 1
  for (int first = lane; first < total; first += kInFlight * kLane) {
    uint4 a[kInFlight], b[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const int u = min(first + k * kLane, total - 1);
      const char* const from = in + row_of(u) * row_in + 16 * u;
      a[k] = load_vector(from);
      if (shift != 0) b[k] = load_vector(from + 16);
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const int u = first + k * kLane;
      if (u < total) store_vector(out + row_of(u) * row_out + 16 * u, shift == 0 ? a[k] : shifted(a[k], b[k], shift));
    }
  }
}

// Moves rows of any alignment, and fills what lies outside the window: some 6 instructions a byte.
__device__ void copy_spots(const Tile& tile, const unsigned long long* fills, int lane) {
  constexpr int kTwo = 2;
  // The rest of the tile stays in shared memory: registers are scarce here.
  const int64_t row_out = tile.row_out;
  const int length = tile.count;
  // Vectors of a row, wherever it begins within 16 bytes.
  const int before = tile.rows == 1 || row_out % 16 == 0 ? misalignment(tile.out) : 15, per_row = (before + length + 15) / 16,
            total = tile.rows * per_row;
  const uint32_t inverse = inverse_of(per_row);
#pragma unroll 1
  for (int from = lane; from < total; from += kTwo * kLane) {
    Spot spots[kTwo];
    uint4 a[kTwo], b[kTwo];
#pragma unroll
    for (int k = 0; k < kTwo; ++k) {
      const int u = from + k * kLane, row = per_row == 1 ? u : quotient(u, inverse);
      char* const first = tile.out + row * row_out;
      const int at = 16 * (u - row * per_row) - misalignment(first), begin = tile.begin;
      Spot& spot = spots[k];
      spot = {tile.in + row * tile.row_in + at, first + at, u < total ? bits_within(at, 0, length) : 0u, 0, false};
      spot.read = spot.bits & bits_within(at, begin, begin + tile.shown(row));
      const int shift = spot.shift();
      const char* const aligned = spot.from - shift;
      spot.vectors = spot.read != 0 && aligned >= tile.low && aligned + (shift == 0 ? 16 : 32) <= tile.high;
      a[k] = b[k] = uint4{0, 0, 0, 0};
      if (spot.vectors) a[k] = load_vector(aligned);
      if (spot.vectors && shift != 0) b[k] = load_vector(aligned + 16);
    }
#pragma unroll
    for (int k = 0; k < kTwo; ++k) {
      const Spot& spot = spots[k];
      if (spot.bits == 0) continue;
      uint4 value = spot.shift() == 0 ? a[k] : shifted(a[k], b[k], spot.shift());
      if (spot.read != 0 && !spot.vectors) value = load_bytes(spot.from, spot.read);
      if (spot.read != spot.bits) {
        // A vector holds whole items, so each begins with the pattern's first byte.
        const unsigned long long fill = fills[tile.channel];
        const auto lower = static_cast<uint32_t>(fill), upper = static_cast<uint32_t>(fill >> 32);
        value = blended(value, uint4{lower, upper, lower, upper}, spot.read);
      }
      if (spot.bits == 0xFFFFu) store_vector(spot.to, value);
      else store_bytes(spot.to, value, spot.bits);
    }
  }
}

// Moves a row's bytes, and fills what lies outside the window with the bits of `fills`. The rows of a tile are taken together: a row of a crop alone
// would keep only 42 of the warp's 128 loads busy.
__global__ void __launch_bounds__(kThreads, 4)
    copy_gpu(const __grid_constant__ TableRows<Place> places, int count, const __grid_constant__ TableRows<Plan> plans, uint32_t units,
             const __grid_constant__ TableRows<unsigned long long> fills) {
  __shared__ Tile tiles[kWarps];
  const int lane = threadIdx.x % kLane;
  Tile& tile = tiles[threadIdx.x / kLane];
  for_each_tile(places, count, plans, units, tile, [&] {
    const auto steps = static_cast<int>((tile.row_in | tile.row_out) & 15);
    const bool whole = tile.begin == 0 && tile.end == tile.count && (tile.count | misalignment(tile.out) | steps) % 16 == 0;
    if (whole && all_readable(tile, tile.in, tile.count, misalignment(tile.in) == 0 ? 0 : 16)) copy_vectors(tile, lane);
    else copy_spots(tile, fills.data(), lane);
  });
}

}  // namespace
}  // namespace ndd::slice_gpu
