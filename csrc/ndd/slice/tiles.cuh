// SPDX-License-Identifier: Apache-2.0
// The tiles of the slice driver on the GPU. A warp processes one at a time, and finds its position from its number alone: the host passes no list of
// tiles.
#pragma once

#include <cstdint>

#include "ndd/cuda.h"
#include "ndd/slice/plan.h"

namespace ndd::slice_gpu {

constexpr int kThreads = 256, kLane = 32, kWarps = kThreads / kLane;

// Loads of a thread in flight together. Four of 16 bytes in 1024 threads are 64 KB per multiprocessor; the bandwidth of an H100 needs some 10 KB there
// at all times (computed), and a warp spends half of its time without loads.
constexpr int kInFlight = 4;

// The same tile of several consecutive rows. It is shared by a whole warp, so it is kept in shared memory and takes no registers.
struct Tile {
  const char *in, *low, *high;  // its first pixel in the first row; the readable range
  char* out;
  int64_t row_in, row_out;  // steps from row to row
  int64_t channel;
  int rows, rows_begin, rows_end;  // [rows_begin, rows_end): rows inside the window
  int count, begin, end;           // in pixels; [begin, end) is inside the window
  int64_t in_step, out_step, pixel_in, pixel_out;
  int pixel, pixel_begin, pixel_end, item, run, row_bytes, channel_of_pixel, channel_of_row;
  // Of `pixel`, for the element number of a write: 2^32 / pixel, rounded up.
  uint32_t inverse;

  // The number of pixels of a row inside the window, starting at `begin`.
  __device__ int shown(int row) const { return row >= rows_begin && row < rows_end ? end - begin : 0; }
};

__device__ inline int clamped(int64_t value, int low, int high) { return static_cast<int>(max(int64_t{low}, min(value, int64_t{high}))); }

// The number of a unit has digits: the innermost is the tile along the row, the next one the group of rows, then the outer axes. They are taken
// off by one division each, and every digit moves the addresses.
__device__ inline void find_tile(const Plan& plan, const Place& place, Tile& tile, uint32_t unit) {
  uint32_t group = plan.tiles == 1 ? unit : unit / plan.tiles;
  const int64_t first = static_cast<int64_t>(unit - group * plan.tiles) * plan.tile;
  const int count = static_cast<int>(min(static_cast<int64_t>(plan.tile), plan.length - first)), begin = clamped(plan.begin - first, 0, count);
  const char* in = place.in + first * plan.in_step;
  char* out = place.out + first * plan.out_step;
  int64_t row_in = 0, row_out = 0, channel = plan.channels, sample = 0;
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
    if (d == 0 && plan.batched) sample = at * axis.in;
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
  tile.low = place.in + sample + plan.first;
  tile.high = place.in + sample + plan.last;
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
  tile.item = plan.item;
  tile.run = plan.run_bytes;
  tile.row_bytes = plan.row_bytes;
  tile.channel_of_pixel = plan.channel == kPixelAxis;
  tile.channel_of_row = plan.row_axes > 0 && plan.channel == plan.row_axes - 1;
  tile.inverse = plan.inverse;
}

// The last place whose units begin at `unit` or before. The lanes probe 32 places at a time: two dependent loads find one among a thousand, where
// halving takes ten.
__device__ inline int find_place(const Place* places, int count, uint32_t unit) {
  const int lane = static_cast<int>(threadIdx.x % kLane);
  int k = 0;
#pragma unroll 1
  for (int among = count; among > 1;) {
    const int step = (among + kLane - 1) / kLane, at = lane * step;
    const bool before = at < among && places[k + at].first_unit <= unit;
    const int skipped = (__popc(__ballot_sync(0xFFFFFFFFu, before)) - 1) * step;
    k += skipped;
    among = min(step, among - skipped);
  }
  return k;
}

// Calls visit() for the warp's tiles: the warps of the grid take the units of all slices in turn, so they work on neighboring memory.
template <class Visit>
__device__ void for_each_tile(const TableRows<Place>& places, int count, const TableRows<Plan>& plans, uint32_t units, Tile& tile, Visit visit) {
  const uint32_t step = gridDim.x * kWarps;
#pragma unroll 1
  for (uint32_t unit = blockIdx.x * kWarps + threadIdx.x / kLane; unit < units; unit += step) {
    const int k = find_place(places.data(), count, unit);
    if (threadIdx.x % kLane == 0) {
      const Place place = places.data()[k];
      find_tile(plans.data()[place.plan], place, tile, unit - place.first_unit);
    }
    __syncwarp();
    visit();
    __syncwarp();
  }
}

// n / divisor for n below 2^16, given 2^32 / divisor rounded up.
__device__ inline int quotient(int n, uint32_t inverse) { return static_cast<int>(__umulhi(static_cast<uint32_t>(n), inverse)); }
__device__ inline uint32_t inverse_of(int divisor) { return 0xFFFFFFFFu / static_cast<uint32_t>(divisor) + 1; }  // 0 for 1

__device__ inline uint4 load_vector(const char* at) { return __ldg(reinterpret_cast<const uint4*>(at)); }
__device__ inline char load_byte(const char* at) { return static_cast<char>(__ldg(reinterpret_cast<const unsigned char*>(at))); }
__device__ inline int misalignment(const char* at) { return static_cast<int>(reinterpret_cast<uintptr_t>(at) % 16); }

__device__ inline void store_vector(char* to, const uint4& value) { __stwb(reinterpret_cast<uint4*>(to), value); }

// Whether all rows of the tile are in the window, and `margin` bytes around the `span` bytes at `first` and in the other rows can be read.
__device__ inline bool all_readable(const Tile& tile, const char* first, int64_t span, int margin) {
  const int64_t to_last = (tile.rows - 1) * tile.row_in;
  return tile.rows_begin == 0 && tile.rows_end == tile.rows && first + min(int64_t{0}, to_last) - margin >= tile.low &&
         first + max(int64_t{0}, to_last) + span + margin <= tile.high;
}

// Bytes [shift, shift + 16) of the 32 bytes in `a` and `b`.
__device__ inline uint4 shifted(const uint4& a, const uint4& b, int shift) {
  // By selections in three steps, of two words, one word and bytes, because registers cannot be indexed.
  const bool skip_two = shift & 8, skip_one = shift & 4;
  const int bits = 8 * (shift & 3);
  const uint32_t v0 = skip_two ? a.z : a.x, v1 = skip_two ? a.w : a.y, v2 = skip_two ? b.x : a.z, v3 = skip_two ? b.y : a.w,
                 v4 = skip_two ? b.z : b.x, v5 = skip_two ? b.w : b.y;
  const uint32_t w0 = skip_one ? v1 : v0, w1 = skip_one ? v2 : v1, w2 = skip_one ? v3 : v2, w3 = skip_one ? v4 : v3, w4 = skip_one ? v5 : v4;
  return uint4{__funnelshift_r(w0, w1, bits), __funnelshift_r(w1, w2, bits), __funnelshift_r(w2, w3, bits), __funnelshift_r(w3, w4, bits)};
}

// Four bytes of all ones or zeros for the four lowest bits.
__device__ inline uint32_t spread(uint32_t bits) { return ((bits & 15u) * 0x00204081u & 0x01010101u) * 255u; }

// The selected bytes of `a`, the others of `b`.
__device__ inline uint4 blended(const uint4& a, const uint4& b, uint32_t bits) {
  const uint32_t x = spread(bits), y = spread(bits >> 4), z = spread(bits >> 8), w = spread(bits >> 12);
  return {(a.x & x) | (b.x & ~x), (a.y & y) | (b.y & ~y), (a.z & z) | (b.z & ~z), (a.w & w) | (b.w & ~w)};
}

// Bits for the bytes of [at, at + 16) that are within [begin, end).
__device__ inline uint32_t bits_within(int at, int begin, int end) {
  const uint32_t from = begin <= at ? 0xFFFFu : begin >= at + 16 ? 0u : 0xFFFFu << (begin - at);
  const uint32_t to = end >= at + 16 ? 0xFFFFu : end <= at ? 0u : 0xFFFFu >> (at + 16 - end);
  return from & to & 0xFFFFu;
}

__device__ inline uint4 without_lowest(const uint4& value) {
  return {__funnelshift_r(value.x, value.y, 8), __funnelshift_r(value.y, value.z, 8), __funnelshift_r(value.z, value.w, 8), value.w >> 8};
}

// The selected bytes of the 16 at `from`, which alone are read; the others are undefined. For the ends of a range, where a vector would reach outside:
// rare, so small code counts more than speed.
__device__ inline uint4 load_bytes(const char* from, uint32_t bits) {
  uint4 value{0, 0, 0, 0};
#pragma unroll 1
  for (int b = 0; b < 16; ++b) {
    value = without_lowest(value);
    if (bits >> b & 1) value.w |= static_cast<uint32_t>(static_cast<unsigned char>(load_byte(from + b))) << 24;
  }
  return value;
}

// Writes the selected bytes only: the others belong to other rows.
__device__ inline void store_bytes(char* to, uint4 value, uint32_t bits) {
#pragma unroll 1
  for (; bits != 0; bits >>= 1, ++to) {
    if (bits & 1) *to = static_cast<char>(value.x);
    value = without_lowest(value);
  }
}

}  // namespace ndd::slice_gpu
