// SPDX-License-Identifier: Apache-2.0
// The tiles of the slice driver on the GPU. A warp processes one at a time, and finds its position from its number alone: the host passes no list of
// tiles.
#pragma once

#include <cstdint>

#include "ndd/cuda.h"
#include "ndd/slice/plan.h"

namespace ndd::slice_gpu {

constexpr int kThreads = 256, kLane = 32, kWarps = kThreads / kLane;

// The same tile of several consecutive rows. It is shared by a whole warp, so it is kept in shared memory and takes no registers.
struct Tile {
  const char *in, *low, *high;  // its first pixel in the first row; the readable range
  char* out;
  int64_t row_in, row_out;  // steps from row to row
  int64_t channel;
  int rows, rows_begin, rows_end;  // [rows_begin, rows_end): rows inside the window
  int count, begin, end;           // in pixels; [begin, end) is inside the window
  int64_t in_step, out_step, pixel_in, pixel_out;
  int pixel, pixel_begin, pixel_end, run, channel_of_pixel, channel_of_row;
  uint32_t inverse;

  // The number of pixels of a row inside the window, starting at `begin`.
  __device__ int shown(int row) const { return row >= rows_begin && row < rows_end ? end - begin : 0; }
};

__device__ inline int clamped(int64_t value, int low, int high) { return static_cast<int>(max(int64_t{low}, min(value, int64_t{high}))); }

__device__ inline void find_tile(const Plan& plan, uint32_t unit, Tile& tile) {
  uint32_t group = plan.tiles == 1 ? unit : unit / plan.tiles;
  const int64_t first = static_cast<int64_t>(unit - group * plan.tiles) * plan.tile;
  const int count = static_cast<int>(min(static_cast<int64_t>(plan.tile), plan.length - first)), begin = clamped(plan.begin - first, 0, count);
  const char* in = plan.in + first * plan.in_step;
  char* out = plan.out + first * plan.out_step;
  int64_t row_in = 0, row_out = 0, channel = plan.channels;
  int rows = 1, rows_begin = 0, rows_end = 1;
  bool inside = true;
#pragma unroll 1
  for (int d = plan.row_axes - 1; d >= 0; --d) {
    const RowAxis axis = plan.axes[d];
    const bool inner = d == plan.row_axes - 1;
    const uint32_t parts = inner ? plan.groups : axis.extent, outer = d == 0 ? 0 : group / parts, part = group - outer * parts;
    const uint32_t at = inner ? part * plan.group : part;
    group = outer;
    in += at * axis.in;
    out += at * axis.out;
    if (d == plan.channel) channel += at;
    if (inner) {
      row_in = axis.in;
      row_out = axis.out;
      rows = static_cast<int>(min(plan.group, axis.extent - at));
      rows_begin = clamped(int64_t{axis.begin} - at, 0, rows);
      rows_end = clamped(int64_t{axis.end} - at, 0, rows);
    } else {
      inside = inside && at >= axis.begin && at < axis.end;
    }
  }
  tile.in = in;
  tile.low = plan.first;
  tile.high = plan.last;
  tile.out = out;
  tile.row_in = row_in;
  tile.row_out = row_out;
  tile.channel = channel;
  tile.rows = rows;
  tile.rows_begin = rows_begin;
  tile.rows_end = inside ? rows_end : 0;
  tile.count = count;
  tile.begin = begin;
  tile.end = clamped(plan.end - first, begin, count);
  tile.in_step = plan.in_step;
  tile.out_step = plan.out_step;
  tile.pixel_in = plan.pixel_in;
  tile.pixel_out = plan.pixel_out;
  tile.pixel = plan.pixel;
  tile.pixel_begin = plan.pixel_begin;
  tile.pixel_end = plan.pixel_end;
  tile.run = plan.run_bytes;
  tile.channel_of_pixel = plan.channel == kPixelAxis;
  tile.channel_of_row = plan.row_axes > 0 && plan.channel == plan.row_axes - 1;
  tile.inverse = plan.inverse;
}

// Calls visit() for the tiles in the warp's share: the units of all slices, in order, divided equally among the blocks.
template <class Visit>
__device__ void for_each_tile(const Plan* plans, int count, uint32_t units, Tile& tile, Visit visit) {
  const uint32_t share = ((units + gridDim.x - 1) / gridDim.x + kWarps - 1) / kWarps * kWarps, begin = share * blockIdx.x,
                 end = min(begin + share, units);
  uint32_t unit = begin + threadIdx.x / kLane;
  int k = 0;
#pragma unroll 1
  for (int above = count; above - k > 1;) {
    const int middle = (k + above) / 2;
    if (plans[middle].first_unit <= unit) k = middle;
    else above = middle;
  }
#pragma unroll 1
  for (; unit < end; unit += kWarps) {
    while (k + 1 < count && plans[k + 1].first_unit <= unit) ++k;
    if (threadIdx.x % kLane == 0) find_tile(plans[k], unit - plans[k].first_unit, tile);
    __syncwarp();
    visit();
    __syncwarp();
  }
}

__device__ inline uint4 load_vector(const char* at) { return __ldg(reinterpret_cast<const uint4*>(at)); }
__device__ inline char load_byte(const char* at) { return static_cast<char>(__ldg(reinterpret_cast<const unsigned char*>(at))); }
__device__ inline int misalignment(const char* at) { return static_cast<int>(reinterpret_cast<uintptr_t>(at) % 16); }

// Bytes [shift, shift + 16) of the 32 bytes in `a` and `b`.
__device__ inline uint4 shifted(const uint4& a, const uint4& b, int shift) {
  const bool skip_two = shift & 8, skip_one = shift & 4;
  const int bits = 8 * (shift & 3);
  const uint32_t v0 = skip_two ? a.z : a.x, v1 = skip_two ? a.w : a.y, v2 = skip_two ? b.x : a.z, v3 = skip_two ? b.y : a.w,
                 v4 = skip_two ? b.z : b.x, v5 = skip_two ? b.w : b.y;
  const uint32_t w0 = skip_one ? v1 : v0, w1 = skip_one ? v2 : v1, w2 = skip_one ? v3 : v2, w3 = skip_one ? v4 : v3, w4 = skip_one ? v5 : v4;
  return uint4{__funnelshift_r(w0, w1, bits), __funnelshift_r(w1, w2, bits), __funnelshift_r(w2, w3, bits), __funnelshift_r(w3, w4, bits)};
}

}  // namespace ndd::slice_gpu
