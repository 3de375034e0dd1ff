// SPDX-License-Identifier: Apache-2.0
// The color matrix of bytes, three channels to three or one, for runs that all begin at multiples of 16 bytes. A thread processes 16 neighboring
// pixels, 48 bytes. The threads of a warp load these in rows of 16 bytes each and exchange them in shared memory, both without bank conflicts. The
// kernel for all types, with 12 bytes per thread, reaches a quarter of the bandwidth of an H100: too few bytes are in flight.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ndd/color/matrix.h"
#include "ndd/cuda.h"

namespace ndd::color_matrix_detail {

constexpr int kByteThreads = 256, kByteWarps = kByteThreads / 32, kPixelsOfThread = 16;

// Byte selectors for each output word of four pixels (12 bytes): `low` selects among the first eight bytes, `high` among the result of `low` and the
// last four.
struct Selectors {
  uint32_t low[3], high[3];
};

struct ByteRun {
  const uint8_t* in;
  uint8_t* out;
  int64_t pixels;
  FixedMatrix fixed;
  int from[3];
  bool copies;
  Selectors select;
};

template <int kOut>
Selectors selectors_of(const int (&from)[3]) {
  Selectors selectors{};
  for (int word = 0; word < kOut; ++word) {
    for (int b = 0; b < 4; ++b) {
      const int place = 4 * word + b, source = place / kOut * 3 + from[place % kOut];
      selectors.low[word] |= static_cast<uint32_t>(source < 8 ? source : 0) << 4 * b;
      selectors.high[word] |= static_cast<uint32_t>(source < 8 ? b : source - 4) << 4 * b;
    }
  }
  return selectors;
}

__device__ __forceinline__ uint32_t byte_of(uint32_t word, int k) { return __byte_perm(word, 0, 0x4440 + k); }

// Processes four pixels.
template <int kOut>
__device__ __forceinline__ void map_four(const ByteRun& run, const uint32_t (&in)[3], uint32_t* out) {
  if (run.copies) {
#pragma unroll
    for (int w = 0; w < kOut; ++w) out[w] = __byte_perm(__byte_perm(in[0], in[1], run.select.low[w]), in[2], run.select.high[w]);
    return;
  }
  uint32_t level[4 * kOut];
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    int32_t rgb[3];
#pragma unroll
    for (int c = 0; c < 3; ++c) rgb[c] = static_cast<int32_t>(byte_of(in[(3 * p + c) / 4], (3 * p + c) % 4));
#pragma unroll
    for (int c = 0; c < kOut; ++c) level[p * kOut + c] = static_cast<uint32_t>(run.fixed.level(c, rgb[0], rgb[1], rgb[2]));
  }
#pragma unroll
  for (int w = 0; w < kOut; ++w) {
    const uint32_t low = __byte_perm(level[4 * w], level[4 * w + 1], 0x0040), high = __byte_perm(level[4 * w + 2], level[4 * w + 3], 0x0040);
    out[w] = __byte_perm(low, high, 0x5410);
  }
}

template <int kOut>
__global__ void __launch_bounds__(kByteThreads, 4) bytes_gpu(const ByteRun* runs, int64_t count) {
  __shared__ uint4 stages[kByteWarps][3 * 32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  uint4* const stage = stages[warp];
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const ByteRun run = runs[k];
    const int64_t groups = run.pixels / kPixelsOfThread;
    const auto* const from = reinterpret_cast<const uint4*>(run.in);
    auto* const to = reinterpret_cast<uint4*>(run.out);
    for (int64_t first = (int64_t{blockIdx.x} * kByteWarps + warp) * 32; first < groups; first += int64_t{gridDim.x} * kByteThreads) {
      const int here = static_cast<int>(min(groups - first, int64_t{32}));
      uint4 row[3] = {};
#pragma unroll
      for (int r = 0; r < 3; ++r)
        if (r * 32 + lane < 3 * here) row[r] = __ldg(from + 3 * first + r * 32 + lane);
#pragma unroll
      for (int r = 0; r < 3; ++r) stage[r * 32 + lane] = row[r];
      __syncwarp();
#pragma unroll
      for (int r = 0; r < 3; ++r) row[r] = stage[3 * lane + r];
      __syncwarp();
      const uint32_t words[4][3] = {
          {row[0].x, row[0].y, row[0].z}, {row[0].w, row[1].x, row[1].y}, {row[1].z, row[1].w, row[2].x}, {row[2].y, row[2].z, row[2].w}};
      uint32_t result[4 * kOut];
#pragma unroll
      for (int q = 0; q < 4; ++q) map_four<kOut>(run, words[q], result + q * kOut);
      if constexpr (kOut == 1) {
        if (lane < here) to[first + lane] = uint4{result[0], result[1], result[2], result[3]};
      } else {
#pragma unroll
        for (int r = 0; r < 3; ++r) stage[3 * lane + r] = uint4{result[4 * r], result[4 * r + 1], result[4 * r + 2], result[4 * r + 3]};
        __syncwarp();
#pragma unroll
        for (int r = 0; r < 3; ++r)
          if (r * 32 + lane < 3 * here) to[3 * first + r * 32 + lane] = stage[r * 32 + lane];
        __syncwarp();
      }
    }
    const int64_t last = groups * kPixelsOfThread + threadIdx.x;  // fewer than 16 pixels are left
    if (blockIdx.x == 0 && last < run.pixels) {
      const uint8_t* const pixel = run.in + 3 * last;
      uint8_t* const out = run.out + kOut * last;
      if (run.copies) {
#pragma unroll
        for (int c = 0; c < kOut; ++c) out[c] = pixel[run.from[c]];
      } else {
        run.fixed.template apply<kOut>(pixel, out);
      }
    }
  }
}

// `most` is the number of pixels of the largest run. Returns false, without launching, if the runs do not qualify.
template <int kOut>
bool launch_bytes(const std::vector<PointwiseRun<ColorMatrix>>& runs, int64_t most) {
  std::vector<ByteRun> byte_runs;
  byte_runs.reserve(runs.size());
  for (const auto& run : runs) {
    ByteRun byte_run{static_cast<const uint8_t*>(run.in), static_cast<uint8_t*>(run.out), run.count / 3, FixedMatrix(run.f), {}, false, {}};
    byte_run.copies = run.f.template copies<3, kOut>(byte_run.from);
    const bool aligned = (reinterpret_cast<uintptr_t>(run.in) | reinterpret_cast<uintptr_t>(run.out)) % sizeof(uint4) == 0;
    if (!aligned || !(byte_run.copies || byte_run.fixed)) return false;
    byte_run.select = selectors_of<kOut>(byte_run.from);
    byte_runs.push_back(byte_run);
  }
  const CudaTable<ByteRun> table(byte_runs);
  const int64_t block = int64_t{kByteThreads} * kPixelsOfThread;
  const dim3 grid = batch_grid(most, block, byte_runs.size());
  bytes_gpu<kOut><<<grid, kByteThreads, 0, current_cuda_stream()>>>(table.data(), static_cast<int64_t>(byte_runs.size()));
  return true;
}

}  // namespace ndd::color_matrix_detail
