// SPDX-License-Identifier: Apache-2.0
// CUDA warp of images of uint8, float16 or float32 with filters of 4 x 4 and 6 x 6 neighbors, one pixel per thread. The filters cost so much that
// neither border checks nor single stores matter: a channel of the cubic takes 16 loads and 20 multiplications.
#pragma once

#include <cstdint>

#include "ndd/warp/taps.cuh"

namespace ndd::warp {

constexpr int kWideWidth = 16, kWideHeight = 16;  // of a block; a warp has 16 x 2 pixels as in tile.cuh

template <class Map>
int64_t wide_blocks(const WarpItem<2, Map>& item) {
  return (item.size[0] + kWideWidth - 1) / kWideWidth * ((item.size[1] + kWideHeight - 1) / kWideHeight);
}

template <Interp interp, class In, class Out, class Map>
__device__ void make_wide_pixel(const WarpItem<2, Map>& item, int32_t x, int32_t y) {
  constexpr int K = kTaps<interp>;
  const WarpSource<2>& src = item.src;
  const Point<2> from = source_point(item.map, x, y, {static_cast<float>(x) + 0.5f, static_cast<float>(y) + 0.5f}, 0);
  const auto taps = wide_taps<interp, int32_t>(src, from);
  // The sign bit is set if any neighbor shows the fill value.
  int32_t outside = 0;
#pragma unroll
  for (int k = 0; k < K; ++k) outside |= taps.offset[0][k] | taps.offset[1][k];
  const In* const data = static_cast<const In*>(src.data);
  const int32_t channels = static_cast<int32_t>(src.channels);
  Out* const to = static_cast<Out*>(item.out) + (y * static_cast<int32_t>(item.size[0]) + x) * channels;
#pragma unroll 1
  for (int32_t c = 0; c < channels; ++c) {
    if (outside < 0) {
      const float fill = static_cast<float>(saturate<In>(static_cast<float>(saturate<Out>(src.fill_of(c)))));
      to[c] = saturate<Out>(blend(taps, c, fill, [&](int32_t offset) { return static_cast<float>(load_global(data + offset)); }));
      continue;
    }
    float sum = 0.0f;
#pragma unroll
    for (int r = 0; r < K; ++r) {
      const In* const row = data + (taps.offset[1][r] + c);
      float line = 0.0f;
#pragma unroll
      for (int k = 0; k < K; ++k) line += taps.weight[0][k] * static_cast<float>(load_global(row + taps.offset[0][k]));
      sum += taps.weight[1][r] * line;
    }
    to[c] = saturate<Out>(sum);
  }
}

template <class In, class Out, class Map>
__global__ void __launch_bounds__(kWideWidth* kWideHeight) wide_kernel(const WarpItem<2, Map>* items, int32_t count) {
  for (int32_t n = blockIdx.y; n < count; n += gridDim.y) {
    const WarpItem<2, Map>& item = items[n];
    if (item.size[0] == 0) continue;
    const int32_t columns = (static_cast<int32_t>(item.size[0]) + kWideWidth - 1) / kWideWidth, line = static_cast<int32_t>(blockIdx.x) / columns;
    const int32_t x = (static_cast<int32_t>(blockIdx.x) - line * columns) * kWideWidth + static_cast<int32_t>(threadIdx.x);
    const int32_t y = line * kWideHeight + static_cast<int32_t>(threadIdx.y);
    if (x >= item.size[0] || y >= item.size[1]) continue;
    if (item.interp == Interp::cubic) make_wide_pixel<Interp::cubic, In, Out>(item, x, y);
    else make_wide_pixel<Interp::lanczos3, In, Out>(item, x, y);
  }
}

}  // namespace ndd::warp
