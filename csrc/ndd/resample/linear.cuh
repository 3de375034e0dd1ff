// SPDX-License-Identifier: Apache-2.0
// Reductions with two taps per axis (linear without antialias). Only a few source columns are read, so mixing whole rows first, as tile.cuh does,
// would be three times the work. Each thread computes a pixel of eight rows and reuses its columns and their weights. 640x480 to 224x224 in uint8
// takes 40 instructions per element, where the memory bandwidth leaves time for 44, and 40 warp accesses to the L1 cache per 96 elements, where it
// leaves time for 33 (computed from the machine code, not measured).
#pragma once
#include "ndd/resample/tile.cuh"

namespace ndd::resample_gpu {

// The tile of output pixels of a block: a warp takes one row at a time, every eighth.
constexpr int kLinearRows = 64, kLinearColumns = 32;

#ifdef __CUDACC__
// Two source rows or columns and their weights, for one output row or column.
struct TwoTaps {
  int32_t first, second;
  float first_weight, second_weight;
};

// Clamps both taps into the axis; nearest neighbors (one tap) become a pair with weights 1 and 0.
__device__ inline TwoTaps two_taps(const Axis& a, int32_t output) {
  float base = 0;
  const int32_t start = clamped_start(a, first_tap(a, output, &base)), last = static_cast<int32_t>(a.in) - 1;
  const bool single = a.taps == 1;
  return {max(0, min(start, last)), max(0, min(single ? start : start + 1, last)), single ? 1.0f : 1 - base, single ? 0.0f : base};
}

// kChannels is 3, or 0 for any number.
template <class In, int kChannels, class Row = TiledSample>
__global__ void __launch_bounds__(kThreads, 4) linear_kernel(const __grid_constant__ TableRows<Row> samples, int64_t count, DType out) {
  __shared__ TwoTaps rows[kLinearRows];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  for (int64_t i = blockIdx.y; i < count; i += gridDim.y) {
    const Row& s = samples[i];
    const int channels = kChannels > 0 ? kChannels : s.channels, height = static_cast<int>(s.vertical.out),
              width = static_cast<int>(s.horizontal.out);
    const int across = (width + kLinearColumns - 1) / kLinearColumns, tiles = (height + kLinearRows - 1) / kLinearRows * across;
    const int64_t in_pitch = s.in_pitch, out_pitch = s.out_pitch;
#pragma unroll 1
    for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
      const int y = tile / across * kLinearRows, x = tile % across * kLinearColumns + thread % 32;
      // The threads may still read the rows of the previous tile.
      __syncthreads();
      if (thread < kLinearRows) {
        const TwoTaps row = two_taps(s.vertical, min(y + thread, height - 1));
        rows[thread].first = row.first;  // member by member: the CUDA emulator of the tests does not track the store of a structure
        rows[thread].second = row.second;
        rows[thread].first_weight = row.first_weight;
        rows[thread].second_weight = row.second_weight;
      }
      __syncthreads();
      // Only after the barrier, which all threads must reach.
      if (x >= width) continue;
      // A thread keeps its column down the tile; the rows come from shared memory, the same for all lanes of a warp.
      const TwoTaps taps = two_taps(s.horizontal, x);
      const int64_t left = int64_t{taps.first} * channels, right = int64_t{taps.second} * channels;
      const int end = min(height - y, kLinearRows);
#pragma unroll 1
      for (int64_t plane = blockIdx.z; plane < s.planes; plane += gridDim.z) {
        const In* const in = static_cast<const In*>(s.in) + plane * s.in_plane;
        const auto mix = [&](auto tag) {
          using Out = typename decltype(tag)::type;
          [[maybe_unused]] Out* to = static_cast<Out*>(s.out) + plane * s.out_plane + (y + warp) * out_pitch + int64_t{x} * channels;
          const int64_t step = kThreads / 32 * out_pitch;
#pragma unroll(kChannels > 0 ? 2 : 1)
          for (int r = warp; r < end; r += kThreads / 32, to += step) {
            const TwoTaps row = rows[r];
            const In *above = in + row.first * in_pitch, *below = in + row.second * in_pitch;
            const In *above_left = above + left, *above_right = above + right, *below_left = below + left, *below_right = below + right;
#pragma unroll
            for (int c = 0; c < (kChannels > 0 ? kChannels : channels); ++c) {
              const float at_left = row.first_weight * read(above_left + c) + row.second_weight * read(below_left + c);
              const float at_right = row.first_weight * read(above_right + c) + row.second_weight * read(below_right + c);
              // Rounded to the input's type before it is normalized, as if the image had been written in between.
              const Out element = saturate<Out>(taps.first_weight * at_left + taps.second_weight * at_right);
              if constexpr (is_normalized<Row>) {
                const Normalization& n = s.normalization;
                store_value(n.channel(plane, c)(static_cast<float>(element)), s.out, out,
                            plane * n.plane + int64_t{y + r} * n.row + int64_t{x} * n.pixel + c * n.color);
              } else {
                to[c] = element;
              }
            }
          }
        };
        if (is_normalized<Row> || out == DType::uint8) mix(TypeTag<uint8_t>{});
        else if (out == DType::float32) mix(TypeTag<float>{});
        else mix(TypeTag<Half>{});
      }
    }
  }
}
#endif

}  // namespace ndd::resample_gpu
