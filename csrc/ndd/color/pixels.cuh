// SPDX-License-Identifier: Apache-2.0
// Pixels of bytes on CUDA: out = f(in) for pixels of 1, 3 or 4 interleaved channels to 1, 3 or 4, or to none if f only looks at them.
//
// A thread has 16 neighboring pixels, 48 bytes of three channels in three loads. The threads of a warp load them in rows of 16 bytes each and exchange
// them in shared memory, both without bank conflicts. A color matrix reaches 0.86 to 0.91 of the copy bandwidth of an H100 that way; with a pixel or 12
// bytes a thread it was a quarter, because too few bytes are in flight.
//
// The functor has `void operator()(int64_t pixel, const uint32_t (&in)[kIn], uint32_t (&out)[kOut]) const` for four pixels, whose bytes lie in words as in
// memory; `pixel` is the number of the first one. map_each() makes that of a function of a single pixel. A functor to no channels has one unused word as
// `out`, and `void look_at(const uint8_t* in) const` for a single pixel. With `static constexpr bool kLong = true` its code
// stands in the kernel twice instead of five times, for an additional instruction per byte.
//
// Use it on CUDA where pixels of bytes pass through more than a matrix or a table; the run also has the number of pixels before the first
// aligned word (align_runs). Images that it refuses, of other types, counts of channels or alignments, need a kernel of an element a thread
// beside it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/elementwise/batch_tiles.cuh"
#include "ndd/hd.h"

namespace ndd::pixels {

constexpr int kThreads = 256, kWarps = kThreads / 32, kPixelsOfThread = 16, kTile = kThreads * kPixelsOfThread;
constexpr int kResident = 4;  // blocks of a multiprocessor: 64 registers for a thread, 48 KB of three channels in flight
constexpr int kStage = 3 * 32;  // rows of 16 bytes that a warp exchanges

template <class F>
struct PixelRun {
  const uint8_t* in;
  uint8_t* out;
  int64_t pixels;
  F f;
  int32_t head = 0;  // pixels before both sides are at multiples of 16 bytes
};

// Sets `head`; false if the sides are never aligned at the same pixel. Those of batches are, also where samples of any size follow each other.
template <int kIn, int kOut, class F>
bool align_run(PixelRun<F>& run) {
  const auto in = reinterpret_cast<uintptr_t>(run.in), out = kOut > 0 ? reinterpret_cast<uintptr_t>(run.out) : 0;
  for (int p = 0; p < kPixelsOfThread; ++p)
    if ((in + p * kIn) % sizeof(uint4) == 0 && (out + p * kOut) % sizeof(uint4) == 0) {
      run.head = static_cast<int32_t>(std::min<int64_t>(p, run.pixels));
      return true;
    }
  return false;
}

template <int kIn, int kOut, class F>
bool align_runs(std::vector<PixelRun<F>>& runs) {
  return std::all_of(runs.begin(), runs.end(), [](PixelRun<F>& run) { return align_run<kIn, kOut>(run); });
}

// Merges adjacent runs that have the same functor.
template <int kIn, int kOut, class F>
std::vector<PixelRun<F>> join_pixels(const std::vector<PixelRun<F>>& runs) {
  return join_runs(runs, [](PixelRun<F>& last, const PixelRun<F>& next) {
    const bool follows = last.in + kIn * last.pixels == next.in && last.out + kOut * last.pixels == next.out;
    if (!follows || !(std::is_empty_v<F> || std::memcmp(&last.f, &next.f, sizeof(F)) == 0)) return false;
    last.pixels += next.pixels;
    return true;
  });
}

template <class F>
int64_t most_pixels(const std::vector<PixelRun<F>>& runs) {
  int64_t most = 0;
  for (const auto& run : runs) most = std::max(most, run.pixels);
  return most;
}

#ifdef __CUDACC__
__device__ __forceinline__ uint32_t byte_of(uint32_t word, int k) { return __byte_perm(word, 0, 0x4440 + k); }

// A word of four levels from 0 to 255.
__device__ __forceinline__ uint32_t pack(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

// Four pixels by a function f(const uint32_t (&levels)[kIn], uint32_t (&out)[kOut]) of one.
template <int kIn, int kOut, class F>
__device__ __forceinline__ void map_each(const uint32_t (&in)[kIn], uint32_t (&out)[kOut], F f) {
  uint32_t mapped[4 * kOut];
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    uint32_t levels[kIn], pixel[kOut];
#pragma unroll
    for (int c = 0; c < kIn; ++c) levels[c] = byte_of(in[(kIn * p + c) / 4], (kIn * p + c) % 4);
    f(levels, pixel);
#pragma unroll
    for (int c = 0; c < kOut; ++c) mapped[p * kOut + c] = pixel[c];
  }
#pragma unroll
  for (int w = 0; w < kOut; ++w) out[w] = pack(mapped[4 * w], mapped[4 * w + 1], mapped[4 * w + 2], mapped[4 * w + 3]);
}

template <class F, class = void>
inline constexpr bool is_long = false;
template <class F>
inline constexpr bool is_long<F, std::void_t<decltype(F::kLong)>> = F::kLong;

// Four groups of four pixels.
template <int kIn, int kOut, class F>
__device__ __forceinline__ void map_sixteen(const F& f, int64_t pixel, uint32_t (&words)[4 * kIn], uint32_t (&mapped)[kOut > 0 ? 4 * kOut : 1]) {
  const auto map_first = [&](int q, const uint32_t* from, uint32_t* to) {
    uint32_t in[kIn], out[kOut > 0 ? kOut : 1];
#pragma unroll
    for (int c = 0; c < kIn; ++c) in[c] = from[c];
    f(pixel + 4 * q, in, out);
#pragma unroll
    for (int c = 0; c < kOut; ++c) to[c] = out[c];
  };
  if constexpr (is_long<F>) {  // the groups rotate through the first words, because registers cannot be indexed
#pragma unroll 1
    for (int q = 0; q < 4; ++q) {
      uint32_t result[kOut > 0 ? kOut : 1];
      map_first(q, words, result);
#pragma unroll
      for (int k = 0; k < 3 * kIn; ++k) words[k] = words[k + kIn];
#pragma unroll
      for (int k = 0; k < 3 * kOut; ++k) mapped[k] = mapped[k + kOut];
#pragma unroll
      for (int c = 0; c < kOut; ++c) mapped[3 * kOut + c] = result[c];
    }
  } else {
#pragma unroll
    for (int q = 0; q < 4; ++q) map_first(q, words + q * kIn, mapped + q * kOut);
  }
}

// Maps the pixels of tile `tile`, of kTile pixels, and of every `across`-th one after it. `stages` is shared memory of kWarps * kStage rows.
template <int kIn, int kOut, class F>
__device__ __forceinline__ void map_pixels(const uint8_t* in, uint8_t* out, int64_t pixels, int32_t head, uint32_t tile, uint32_t across,
                                           uint4* stages, const F& f) {
  static_assert(kIn <= 3 ? kOut <= 3 : kOut == 4);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  uint4* const stage = stages + warp * kStage;
  const int64_t groups = (pixels - head) / kPixelsOfThread;
  const auto* const from = reinterpret_cast<const uint4*>(in + kIn * head);
  auto* const to = reinterpret_cast<uint4*>(out + kOut * head);
#pragma unroll 1
  for (int64_t first = (int64_t{tile} * kWarps + warp) * 32; first < groups; first += int64_t{across} * kThreads) {
    const int here = static_cast<int>(min(groups - first, int64_t{32}));
    uint4 row[kIn] = {};
#pragma unroll
    for (int r = 0; r < kIn; ++r)
      if (r * 32 + lane < kIn * here) row[r] = __ldg(from + kIn * first + r * 32 + lane);
    if constexpr (kIn == 4) {  // each row is four pixels: nothing is exchanged
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const uint32_t words[4] = {row[r].x, row[r].y, row[r].z, row[r].w};
        uint32_t mapped[4];
        f(head + first * kPixelsOfThread + (r * 32 + lane) * 4, words, mapped);
        if (r * 32 + lane < 4 * here) to[4 * first + r * 32 + lane] = uint4{mapped[0], mapped[1], mapped[2], mapped[3]};
      }
    } else {
      if constexpr (kIn == 3) {
#pragma unroll
        for (int r = 0; r < 3; ++r) stage[r * 32 + lane] = row[r];
        __syncwarp();
#pragma unroll
        for (int r = 0; r < 3; ++r) row[r] = stage[3 * lane + r];
        __syncwarp();
      }
      uint32_t words[4 * kIn], mapped[kOut > 0 ? 4 * kOut : 1] = {};
#pragma unroll
      for (int r = 0; r < kIn; ++r) {
        words[4 * r] = row[r].x;
        words[4 * r + 1] = row[r].y;
        words[4 * r + 2] = row[r].z;
        words[4 * r + 3] = row[r].w;
      }
      if (kOut > 0 || lane < here) map_sixteen<kIn, kOut>(f, head + (first + lane) * kPixelsOfThread, words, mapped);
      if constexpr (kOut == 1) {
        if (lane < here) to[first + lane] = uint4{mapped[0], mapped[1], mapped[2], mapped[3]};
      } else if constexpr (kOut == 3) {
#pragma unroll
        for (int r = 0; r < 3; ++r) stage[3 * lane + r] = uint4{mapped[4 * r], mapped[4 * r + 1], mapped[4 * r + 2], mapped[4 * r + 3]};
        __syncwarp();
#pragma unroll
        for (int r = 0; r < 3; ++r)
          if (r * 32 + lane < 3 * here) to[3 * first + r * 32 + lane] = stage[r * 32 + lane];
        __syncwarp();
      }
    }
  }
  // Fewer than 16 pixels are left at each end. They are mapped as the first of four, whose others are black.
  const auto rest = static_cast<int>(pixels - groups * kPixelsOfThread);
  if (tile > 0 || static_cast<int>(threadIdx.x) >= rest) return;
  const int64_t p = static_cast<int>(threadIdx.x) < head ? threadIdx.x : groups * kPixelsOfThread + threadIdx.x;
  if constexpr (kOut == 0) {
    f.look_at(in + kIn * p);
  } else {
    uint32_t words[kIn] = {}, mapped[kOut] = {};
#pragma unroll
    for (int c = 0; c < kIn; ++c) words[0] |= uint32_t{__ldg(in + kIn * p + c)} << 8 * c;
    f(p, words, mapped);
#pragma unroll
    for (int c = 0; c < kOut; ++c) out[kOut * p + c] = static_cast<uint8_t>(mapped[0] >> 8 * c);
  }
}

template <int kIn, int kOut, class F>
__global__ void __launch_bounds__(kThreads, kResident) map_gpu(const __grid_constant__ TableRows<PixelRun<F>> runs, BatchTiles batch) {
  __shared__ uint4 stages[kWarps * kStage];
  for_each_tile(batch, [&](uint32_t k, uint32_t tile) {
    const PixelRun<F> run = runs[k];
    assume_global(run.in, run.out);
    map_pixels<kIn, kOut>(run.in, run.out, run.pixels, run.head, tile, batch.across.value, stages, run.f);
  });
}

// Launches once for all runs. Returns false, without launching, if a run is never aligned.
template <int kIn, int kOut, class F>
bool launch(const std::vector<PixelRun<F>>& all_runs) {
  auto runs = join_pixels<kIn, kOut>(all_runs);
  if (!align_runs<kIn, kOut>(runs)) return false;
  const int64_t most = most_pixels(runs);
  if (most == 0) return true;
  const KernelTable<PixelRun<F>> table(runs);
  const BatchTiles batch = batch_tiles(most, kTile, static_cast<int64_t>(runs.size()));
  map_gpu<kIn, kOut, F><<<resident_blocks(batch, kResident), kThreads, 0, current_cuda_stream()>>>(table.rows(), batch);
  return true;
}
#endif

}  // namespace ndd::pixels
