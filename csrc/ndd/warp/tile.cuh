// SPDX-License-Identifier: Apache-2.0
// CUDA warp of images (D = 2) of uint8, float16 or float32 with 1, 3 or 4 channels, in one launch for a ragged batch. warp.cuh handles everything
// else.
//
// A warp of threads computes 32 x 4 pixels at a time, 16 x 2 in each of four steps, because every cache line that a load of a warp touches may take a
// turn in the L1 cache: 16 x 2 uint8 pixels of three channels lie in about 3 lines when upright and 13 when rotated by 45 degrees (32 x 1: 2 and 23;
// 8 x 4: 5 and 9). The pixels are collected in shared memory and stored from there 16 bytes at a time.
//
// Computed from the machine code for sm_90, not measured: a linear pixel of three channels takes 87 instructions in uint8 and 85 in float32, a
// nearest one 42 and 46. An H200 moves its bytes in the time of 37, 147, 37 and 147 instructions, so linear uint8 reaches 0.42 of the bandwidth.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ndd/warp/taps.cuh"

namespace ndd::warp {

constexpr int kLanesAcross = 16, kLanesDown = 2, kSteps = 4;
constexpr int kSegment = 32, kSegments = 4;  // of a warp: pixels per row, and rows
constexpr int kWarps = 4, kPasses = 2, kTileRows = kSegments * kWarps * kPasses;
static_assert(kSegment * kSegments == kSteps * kLanesAcross * kLanesDown);

// The pitch of a segment in shared memory: two rows that are written together lie in different halves of the 32 banks.
constexpr int staged_pitch(int pixel_bytes) { return (8 * pixel_bytes + 15) / 32 * 128 + 64; }

// Segments of 32 pixels start at multiples of 16 bytes, so the first segment of a row may start up to 15 pixels before it. For an address, this is
// the number of pixels behind the last such multiple; pixels have `bytes` bytes, 1 or 3 times a power of two.
NDD_HD int32_t power_of_two_in(int32_t bytes) { return (bytes & -bytes) < 16 ? bytes & -bytes : 16; }
NDD_HD int32_t pixels_behind(uintptr_t address, int32_t bytes) {
  // With p pixels of 3 units after the multiple, the address is 3 p units modulo 16 bytes.
  const int32_t unit = power_of_two_in(bytes), inverse = bytes == unit ? 1 : 11;  // 3 * 11 = 33, which is 1 modulo 16, 8, 4 and 2
  return static_cast<int32_t>(address % 16) / unit * inverse & (16 / unit - 1);
}

// Then all rows start at multiples of 16 bytes, and segments need no shift.
NDD_HD bool rows_are_aligned(const void* out, int32_t row_bytes) {
  return (reinterpret_cast<uintptr_t>(out) | static_cast<uint32_t>(row_bytes)) % 16 == 0;
}
NDD_HD int32_t segments(const void* out, int32_t width, int32_t pixel_bytes) {
  return (width + (rows_are_aligned(out, width * pixel_bytes) ? 0 : 16 / power_of_two_in(pixel_bytes) - 1) + kSegment - 1) / kSegment;
}

template <class Map>
NDD_HD int32_t tiles_of_segments(const WarpItem<2, Map>& item, int32_t pixel_bytes) {
  const int32_t width = static_cast<int32_t>(item.size[0]), height = static_cast<int32_t>(item.size[1]);
  return segments(item.out, width, pixel_bytes) * ((height + kTileRows - 1) / kTileRows);
}

// Whether an image is computed in tiles of staged pixels. Four channels are a single access, but misaligned after a sample with another number of
// channels.
template <class In, class Map>
__device__ bool is_staged(const WarpItem<2, Map>& item) {
  const int64_t channels = item.src.channels;
  return channels == 1 || channels == 3 || (channels == 4 && reinterpret_cast<uintptr_t>(item.src.data) % (4 * sizeof(In)) == 0);
}

// top + (bottom - top) * down, for rows that are left + (right - left) * across, as on the CPU. Every path rounds in the same way, because an image's
// address decides which path a pixel takes.
__device__ inline float lerp(float a, float b, float weight) { return fmaf(b - a, weight, a); }

// For bytes to bytes: a row's sum of two products with 15-bit weights is a single instruction, and is placed in the mantissa of a float as it is,
// with half a level added. Converting, mixing and rounding a channel takes 8 instructions instead of 18, and the result is within 0.01 of a level.
constexpr uint32_t kByteOne = 0x4B000000;  // 2^23
__device__ inline uint32_t byte_weights(float right) {  // the right pixel's weight above the left one's
  return __float_as_uint(right * 32768.0f + 8388608.0f) * 65535u + (32768u - kByteOne * 65535u);
}
__device__ inline float byte_row(uint32_t weights, uint32_t pairs, bool upper_pair) {
  return __int_as_float(static_cast<int>(upper_pair ? __dp2a_hi(weights, pairs, kByteOne + 16384u) : __dp2a_lo(weights, pairs, kByteOne + 16384u)));
}
__device__ inline uint8_t byte_between(float top, float bottom, float down) {
  return static_cast<uint8_t>(__float_as_uint(lerp(top, bottom, down)) >> 15);
}

template <class In, class Out>
constexpr bool kBytes = std::is_same_v<In, uint8_t> && std::is_same_v<Out, uint8_t>;

template <class In, class Out, int C>
__device__ void store_lerp(const RowTaps<In, C, 2> (&rows)[2], const float (&right)[2], Out* to) {
  if constexpr (kBytes<In, Out>) {
    const uint32_t weights = byte_weights(right[0]);
#pragma unroll
    for (int c = 0; c < C; ++c)
      to[c] = byte_between(byte_row(weights, rows[0].pairs(c / 2), c % 2 != 0), byte_row(weights, rows[1].pairs(c / 2), c % 2 != 0), right[1]);
  } else {
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const float top = lerp(rows[0].value(0, c), rows[0].value(1, c), right[0]), bottom = lerp(rows[1].value(0, c), rows[1].value(1, c), right[0]);
      to[c] = saturate<Out>(lerp(top, bottom, right[1]));
    }
  }
}

template <class In, class Out>
__device__ Out converted(In value) {
  if constexpr (std::is_same_v<In, Out>) return value;
  else return saturate<Out>(static_cast<float>(value));
}

// A single pixel, with a border check for each neighbor.
template <Interp interp, class In, class Out>
__device__ void careful_pixel(const WarpSource<2>& src, const Point<2>& from, Out* to) {
  constexpr int K = kTaps<interp>;
  const In* const data = static_cast<const In*>(src.data);
  const int32_t channels = static_cast<int32_t>(src.channels);
  float right[2];
  int32_t offset[2][K];
  bool empty = false;
#pragma unroll
  for (int d = 0; d < 2; ++d) {
    const int32_t size = static_cast<int32_t>(src.size[d]);
    float c = K > 1 ? from.at[d] - 0.5f : from.at[d], low;
    if (src.border == Border::clamp && size >= K) {  // as in AxisTaps
      c = fminf(fmaxf(c, 0.0f), static_cast<float>(size - 1));
      low = fminf(floorf(c), static_cast<float>(size - K));
    } else {
      c = limited(c, size, src.border);
      low = floorf(c);
    }
    right[d] = c - low;
    bool any = false;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int32_t i = border_index_of<int32_t>(src.border, static_cast<int32_t>(low) + k, size);
      any |= i >= 0;
      offset[d][k] = i < 0 ? -1 : i * static_cast<int32_t>(src.stride[d]);
    }
    empty |= !any;
  }
#pragma unroll 1
  for (int32_t c = 0; c < channels; ++c) {
    const Out shown = saturate<Out>(src.fill_of(c));
    // The fill value is first rounded to the output's type, which a pixel outside shows, and mixed with pixels as that.
    const In fill = saturate<In>(static_cast<float>(shown));
    const auto value = [&](int r, int k) { return (offset[0][k] | offset[1][r]) < 0 ? fill : load_global(data + (offset[0][k] + offset[1][r] + c)); };
    if (empty) {
      to[c] = shown;
    } else if constexpr (K == 1) {
      to[c] = converted<In, Out>(value(0, 0));
    } else if (src.fades) {
      float sum = 0.0f, inside = 0.0f;
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        if ((offset[0][t % 2] | offset[1][t / 2]) < 0) continue;
        const float weight = (t % 2 ? right[0] : 1.0f - right[0]) * (t / 2 ? right[1] : 1.0f - right[1]);
        sum += weight * static_cast<float>(value(t / 2, t % 2));
        inside += weight;
      }
      to[c] = saturate<Out>(faded(sum, inside, src.fill_of(c)));
    } else if constexpr (kBytes<In, Out>) {
      const uint32_t weights = byte_weights(right[0]);
      const auto row = [&](int r) { return byte_row(weights, static_cast<uint32_t>(value(r, 0)) | static_cast<uint32_t>(value(r, 1)) << 8, false); };
      to[c] = byte_between(row(0), row(1), right[1]);
    } else {
      const auto row = [&](int r) { return lerp(static_cast<float>(value(r, 0)), static_cast<float>(value(r, 1)), right[0]); };
      to[c] = saturate<Out>(lerp(row(0), row(1), right[1]));
    }
  }
}

// The start of a thread's pixels: two in row y and two in row y + 2, 16 apart. They may lie outside the image.
struct Quad {
  int32_t upper_x, lower_x, y;
  __device__ int32_t first(int step) const { return step < 2 ? upper_x : lower_x; }
  __device__ int32_t column(int step) const { return first(step) + step % 2 * kLanesAcross; }
  __device__ int32_t row(int step) const { return y + step / 2 * kLanesDown; }
};

// `staged` is the position of the first pixel.
template <class In, class Out, int C, Interp interp, class Map>
__device__ void make_pixels(const WarpItem<2, Map>& item, const TapReader<In, C, kTaps<interp>>& reader, const Map& map, bool copies,
                            const Quad& quad, Out* staged) {
  constexpr int K = kTaps<interp>;
  using Row = RowTaps<In, C, K>;
  using Axis = AxisTaps<K>;
  constexpr int kBatch = K * Row::kRegisters <= 6 ? 4 : 2;  // as many as keep a thread below 64 registers
  constexpr int kStagedRows = kLanesDown * staged_pitch(C * static_cast<int>(sizeof(Out))) / static_cast<int>(sizeof(Out));
  const auto staged_pixel = [&](int step) { return staged + step / 2 * kStagedRows + step % 2 * kLanesAcross * C; };
  const auto point = [&](int step) {
    const Point<2> to{static_cast<float>(quad.first(step)) + (0.5f + static_cast<float>(step % 2 * kLanesAcross)),
                      static_cast<float>(quad.row(step)) + 0.5f};
    return copies ? to : source_point(map, quad.column(step), quad.row(step), to, 0);
  };
  // First all pixels whose neighbors lie inside, without branches; the others below, one by one.
  bool complete = reader.usable();
  if (reader.usable()) {
#pragma unroll
    for (int begin = 0; begin < kSteps; begin += kBatch) {
      float right[kBatch][2], low[kBatch][2];
      uint32_t at[kBatch];
      bool any = false;
#pragma unroll
      for (int e = 0; e < kBatch; ++e) {
        const Point<2> from = point(begin + e);
        for (int d = 0; d < 2; ++d) right[e][d] = K > 1 ? from.at[d] - 0.5f : from.at[d];
      }
      if (reader.keeps_inside) {
#pragma unroll
        for (int e = 0; e < kBatch; ++e) {
          right[e][0] = fminf(fmaxf(right[e][0], 0.0f), reader.across.most);
          right[e][1] = fminf(fmaxf(right[e][1], 0.0f), reader.down.most);
          low[e][0] = fminf(__fadd_rd(right[e][0], kFloorBias), reader.across.highest);
          low[e][1] = fminf(__fadd_rd(right[e][1], kFloorBias), reader.down.highest);
        }
      } else {
#pragma unroll
        for (int e = 0; e < kBatch; ++e)
          for (int d = 0; d < 2; ++d) low[e][d] = __fadd_rd(right[e][d], kFloorBias);
      }
#pragma unroll
      for (int e = 0; e < kBatch; ++e) {
        for (int d = 0; d < 2; ++d) right[e][d] -= low[e][d] - kFloorBias;
        const bool inside = reader.locate(Axis::first(low[e][0]), Axis::first(low[e][1]), at[e]);
        any |= inside;
        complete &= inside;
      }
      if (!any) continue;
      Row rows[kBatch][K];
#pragma unroll
      for (int e = 0; e < kBatch; ++e)
#pragma unroll
        for (int r = 0; r < K; ++r) reader.load(rows[e][r], at[e] + r * reader.pitch);
#pragma unroll
      for (int e = 0; e < kBatch; ++e) {
        if constexpr (K == 1) {
#pragma unroll
          for (int c = 0; c < C; ++c) staged_pixel(begin + e)[c] = converted<In, Out>(rows[e][0].first(c));
        } else {
          store_lerp<In, Out, C>(rows[e], right[e], staged_pixel(begin + e));
        }
      }
    }
  }
  // All four pixels were inside: no thread of most warps goes on.
  if (complete) return;
#pragma unroll 1
  for (int step = 0; step < kSteps; ++step) {
    if (quad.column(step) < 0 || quad.column(step) >= static_cast<int32_t>(item.size[0])) continue;
    const Point<2> from = point(step);
    if (reader.usable() && !reader.keeps_inside) {
      int32_t at[2];
      for (int d = 0; d < 2; ++d) at[d] = Axis::first(__fadd_rd(K > 1 ? from.at[d] - 0.5f : from.at[d], kFloorBias));
      uint32_t unused;
      // Already computed by the fast path.
      if (reader.locate(at[0], at[1], unused)) continue;
    }
    careful_pixel<interp, In>(item.src, from, staged_pixel(step));
  }
}

// The number of pixels by which a row's segments start before the row.
template <int kPixel>
__device__ int32_t row_shift(const char* out, int32_t width, int32_t y) {
  return pixels_behind(reinterpret_cast<uintptr_t>(out) + static_cast<uint32_t>(y * width * kPixel), kPixel);
}

// Stores the segments of a warp from shared memory: those of row y and the following rows, at column x less the row's shift.
template <class Out, int C>
__device__ void store_segments(const char* staged, char* out, int32_t width, int32_t height, bool aligned, int32_t x, int32_t y, uint32_t lane) {
  constexpr int kPixel = C * static_cast<int>(sizeof(Out)), kVectors = kSegment * kPixel / 16,
                kAtOnce = 32 / kVectors < kSegments ? 32 / kVectors : kSegments;
  // With three channels, one lane in four idles: finding other rows for them would cost more than they are worth.
  if (lane >= kAtOnce * kVectors) return;
  const int32_t row_bytes = width * kPixel, at = static_cast<int32_t>(lane % kVectors * 16), row = static_cast<int32_t>(lane / kVectors);
  const char* from = staged + row * staged_pitch(kPixel) + at;
  y += row;
  char* line = out + static_cast<uint32_t>(y * row_bytes);
  if (aligned && x + kSegment <= width && y - row + kSegments <= height) {  // nothing is cut off
    char* to = line + (x * kPixel + at);
#pragma unroll
    for (int r = 0; r < kSegments; r += kAtOnce)
      __stcg(reinterpret_cast<uint4*>(to + static_cast<uint32_t>(r * row_bytes)), *reinterpret_cast<const uint4*>(from + r * staged_pitch(kPixel)));
    return;
  }
#pragma unroll 1
  for (int r = 0; r < kSegments && y + r < height; r += kAtOnce, line += kAtOnce * row_bytes, from += kAtOnce * staged_pitch(kPixel)) {
    const int32_t first = (x - pixels_behind(reinterpret_cast<uintptr_t>(line), kPixel)) * kPixel + at;
    // The ends of a row, element by element.
    if (first >= 0 && first + 16 <= row_bytes && (kPixel % 16 == 0 || reinterpret_cast<uintptr_t>(line + first) % 16 == 0)) {
      __stcg(reinterpret_cast<uint4*>(line + first), *reinterpret_cast<const uint4*>(from));
    } else {
#pragma unroll 1
      for (int32_t b = 0; b < 16; b += sizeof(Out))
        if (first + b >= 0 && first + b < row_bytes) *reinterpret_cast<Out*>(line + first + b) = *reinterpret_cast<const Out*>(from + b);
    }
  }
}

template <class In, class Out, int C, Interp interp, class Map>
__device__ void make_tile(const WarpItem<2, Map>& item, bool copies, int32_t tile, char* staged) {
  constexpr int kPixel = C * static_cast<int>(sizeof(Out));
  const int32_t width = static_cast<int32_t>(item.size[0]), height = static_cast<int32_t>(item.size[1]);
  const int32_t columns = segments(item.out, width, kPixel), line = tile / columns, x = (tile - line * columns) * kSegment;
  const bool aligned = rows_are_aligned(item.out, width * kPixel);
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  char* const out = static_cast<char*>(item.out);
  const TapReader<In, C, kTaps<interp>> reader(item.src);
  const Map map = item.map;
  const int32_t lane_x = static_cast<int32_t>(lane % kLanesAcross), lane_y = static_cast<int32_t>(lane / kLanesAcross);
  staged += warp * kSegments * staged_pitch(kPixel);
  Out* const own = reinterpret_cast<Out*>(staged + lane_y * staged_pitch(kPixel)) + lane_x * C;
#pragma unroll 1
  for (int32_t top = line * kTileRows; top < min(height, (line + 1) * kTileRows); top += kWarps * kSegments) {
    const int32_t y = top + static_cast<int32_t>(warp) * kSegments;
    if (y < height) {
      Quad quad{x + lane_x, x + lane_x, y + lane_y};
      if (!aligned) {
        quad.upper_x -= row_shift<kPixel>(out, width, quad.y);
        quad.lower_x -= row_shift<kPixel>(out, width, quad.y + kLanesDown);
      }
      make_pixels<In, Out, C, interp>(item, reader, map, copies, quad, own);
    }
    __syncthreads();  // a __syncwarp() would suffice
    store_segments<Out, C>(staged, out, width, height, aligned, x, y, lane);
    __syncthreads();
  }
}

template <class In, class Out, int C, class Map>
__device__ void make_tile(const WarpItem<2, Map>& item, int32_t tile, char* staged) {
  if (item.interp == Interp::linear) return make_tile<In, Out, C, Interp::linear>(item, false, tile, staged);
  make_tile<In, Out, C, Interp::nearest>(item, item.interp == Interp::copy, tile, staged);
}

// The pixels of a tile one by one, for other numbers of channels.
template <class In, class Out, class Map>
__device__ void make_plain_tile(const WarpItem<2, Map>& item, int32_t columns, int32_t tile) {
  const int32_t width = static_cast<int32_t>(item.size[0]), height = static_cast<int32_t>(item.size[1]), line = tile / columns;
  const int32_t x = (tile - line * columns) * kSegment + static_cast<int32_t>(threadIdx.x % 32), bottom = min(height, (line + 1) * kTileRows);
  if (x >= width) return;
  for (int32_t y = line * kTileRows + static_cast<int32_t>(threadIdx.x / 32); y < bottom; y += kWarps) {
    const Point<2> to{static_cast<float>(x) + 0.5f, static_cast<float>(y) + 0.5f};
    const Point<2> from = item.interp == Interp::copy ? to : source_point(item.map, x, y, to, 0);
    Out* const out = static_cast<Out*>(item.out) + (y * width + x) * static_cast<int32_t>(item.src.channels);
    if (item.interp == Interp::linear) careful_pixel<Interp::linear, In>(item.src, from, out);
    else careful_pixel<Interp::nearest, In>(item.src, from, out);
  }
}

template <class In, class Out, class Map>
__global__ void __launch_bounds__(kWarps * 32, 8) tile_kernel(const __grid_constant__ TableRows<WarpItem<2, Map>> items, int32_t count) {
  // Room for four channels; fewer use a part of it.
  __shared__ uint4 staged[kWarps * kSegments * staged_pitch(4 * static_cast<int>(sizeof(Out))) / 16];
  char* const bytes = reinterpret_cast<char*>(staged);
  for (int32_t n = blockIdx.y; n < count; n += gridDim.y) {
    const WarpItem<2, Map>& item = items[n];
    const auto channels = static_cast<int32_t>(item.src.channels), pixel_bytes = channels * static_cast<int32_t>(sizeof(Out));
    const auto tile = static_cast<int32_t>(blockIdx.x);
    if (tile >= tiles_of_segments(item, pixel_bytes)) continue;
    if (!is_staged<In>(item)) make_plain_tile<In, Out>(item, segments(item.out, static_cast<int32_t>(item.size[0]), pixel_bytes), tile);
    else if (channels == 1) make_tile<In, Out, 1>(item, tile, bytes);
    else if (channels == 3) make_tile<In, Out, 3>(item, tile, bytes);
    else make_tile<In, Out, 4>(item, tile, bytes);
  }
}

}  // namespace ndd::warp
