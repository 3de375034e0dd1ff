// SPDX-License-Identifier: Apache-2.0
// CUDA side of the warp driver: one launch for all images of a ragged batch. tile.cuh and wide.cuh handle the common types and channels. The kernel
// here handles everything else, one pixel per thread with 64-bit indices: volumes, other types, other numbers of channels, images of a gigabyte.
#pragma once

#include <cstdint>

#include "ndd/elementwise/elements.cuh"
#include "ndd/warp/tile.cuh"
#include "ndd/warp/warp.h"
#include "ndd/warp/wide.cuh"

namespace ndd {
namespace warp {

// A block's pixels are compact, so a rotated tile still reads a compact part of the source.
constexpr int kTileWidth = 32, kTileHeight = 8;

template <int D, class Map>
NDD_HD int64_t tile_count(const WarpItem<D, Map>& item) {
  const int64_t columns = (item.size[0] + kTileWidth - 1) / kTileWidth, rows = (item.size[1] + kTileHeight - 1) / kTileHeight;
  return columns * rows * (D == 3 ? item.size[D - 1] : 1);
}

// The border blends into the fill value: taps outside count as nothing, and their weight is that of the fill value.
template <int D>
NDD_HD void faded_pixel(const WarpSource<D>& src, const LinearTaps<D>& taps, DType in, DType out, void* dst, int64_t first) {
  float inside = 0.0f;
  for (int t = 0; t < 1 << D; ++t) inside += taps.offset[t] < 0 ? 0.0f : taps.weight[t];
  for (int64_t c = 0; c < src.channels; ++c) {
    const float value = blend(taps, c, 0.0f, [&](int64_t offset) { return load_element(src.data, in, offset); });
    store_element(faded(value, inside, src.fill_of(c)), dst, out, first + c);
  }
}

template <int D, class Taps>
NDD_HD void blend_pixel(const WarpSource<D>& src, const Taps& taps, DType in, DType out, void* dst, int64_t first) {
  for (int64_t c = 0; c < src.channels; ++c) {
    // The fill value takes part in the interpolation as a pixel of the input would.
    const float fill = as_stored(as_stored(src.fill_of(c), out), in);
    store_element(blend(taps, c, fill, [&](int64_t offset) { return load_element(src.data, in, offset); }), dst, out, first + c);
  }
}

// `wide`: includes filters of more than two taps, whose register usage would slow the others down.
template <int D, bool wide>
NDD_HD void sample_pixel(const WarpSource<D>& src, const Point<D>& from, Interp interp, DType in, DType out, void* dst, int64_t first) {
  if constexpr (wide) {
    if (interp == Interp::cubic) return blend_pixel(src, wide_taps<Interp::cubic>(src, from), in, out, dst, first);
    if (interp == Interp::lanczos3) return blend_pixel(src, wide_taps<Interp::lanczos3>(src, from), in, out, dst, first);
  }
  if (interp == Interp::linear && src.fades) return faded_pixel(src, linear_taps(src, from), in, out, dst, first);
  if (interp == Interp::linear) return blend_pixel(src, linear_taps(src, from), in, out, dst, first);
  const int64_t offset = nearest_tap(src, from);
  for (int64_t c = 0; c < src.channels; ++c) {
    // Nearest pixels: moved without arithmetic if the types agree.
    if (offset < 0) store_element(src.fill_of(c), dst, out, first + c);
    else if (in == out) copy_element(src.data, offset + c, dst, first + c, in);
    else store_element(load_element(src.data, in, offset + c), dst, out, first + c);
  }
}

// The pixel of thread (tx, ty) of a tile.
template <int D, bool wide, class Map>
NDD_HD void warp_pixel(const WarpItem<D, Map>& item, int64_t tile, int tx, int ty, DType in, DType out) {
  const int64_t columns = (item.size[0] + kTileWidth - 1) / kTileWidth, rows = (item.size[1] + kTileHeight - 1) / kTileHeight;
  const int64_t x = tile % columns * kTileWidth + tx, y = tile / columns % rows * kTileHeight + ty, z = tile / columns / rows;
  if (x >= item.size[0] || y >= item.size[1]) return;
  Point<D> to;
  to.at[0] = static_cast<float>(x) + 0.5f;
  to.at[1] = static_cast<float>(y) + 0.5f;
  if (D == 3) to.at[D - 1] = static_cast<float>(z) + 0.5f;
  const int64_t pixel = (z * item.size[1] + y) * item.size[0] + x;
  sample_pixel<D, wide>(item.src, item.interp == Interp::copy ? to : item.map(to), item.interp, in, out, item.out, pixel * item.src.channels);
}

template <int D, bool wide, class Map>
__global__ void __launch_bounds__(kTileWidth* kTileHeight)
    warp_kernel(const __grid_constant__ TableRows<WarpItem<D, Map>> items, int64_t count, DType in, DType out) {
  for (int64_t n = blockIdx.y; n < count; n += gridDim.y) {
    const WarpItem<D, Map>& item = items[n];
    const int64_t tiles = tile_count(item);
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x)
      warp_pixel<D, wide>(item, tile, static_cast<int>(threadIdx.x), static_cast<int>(threadIdx.y), in, out);
  }
}

}  // namespace warp

// Visits the type tags of an image that specialized kernels exist for; false if there are none.
template <class Map, class Visit>
bool for_warp_types(DType in, DType out, Visit visit) {
  const auto pair = [&](auto in_tag, auto out_tag) {
    visit(in_tag, out_tag);
    return true;
  };
  if (in == out) {
    if (in == DType::uint8) return pair(TypeTag<uint8_t>{}, TypeTag<uint8_t>{});
    if (in == DType::float16) return pair(TypeTag<Half>{}, TypeTag<Half>{});
    if (in == DType::float32) return pair(TypeTag<float>{}, TypeTag<float>{});
  }
  if constexpr (std::is_same_v<Map, AffineMap<2>>) {  // only warp_affine and rotate convert
    if (in == DType::uint8 && out == DType::float32) return pair(TypeTag<uint8_t>{}, TypeTag<float>{});
    if (in == DType::float16 && out == DType::float32) return pair(TypeTag<Half>{}, TypeTag<float>{});
  }
  return false;
}

// Returns whether it has launched one of the image kernels of tile.cuh and wide.cuh.
template <bool wide, class Map>
bool launch_warp_images(const TableRows<WarpItem<2, Map>>& items, const WarpItem<2, Map>* host_items, int64_t count, DType in, DType out,
                        cudaStream_t stream) {
  bool needs_wide = false;
  int64_t tiles = 0, blocks = 0;
  for (int64_t n = 0; n < count; ++n) {
    const WarpItem<2, Map>& item = host_items[n];
    // One image that is too large sends the whole batch to the general kernel.
    if (!warp::fits_32_bits(item, item_bytes(in), item_bytes(out))) return false;
    needs_wide = needs_wide || item.interp == Interp::cubic || item.interp == Interp::lanczos3;
    if (wide && needs_wide) blocks = std::max(blocks, warp::wide_blocks(item));
    else tiles = std::max<int64_t>(tiles, warp::tiles_of_segments(item, static_cast<int32_t>(item.src.channels * item_bytes(out))));
  }
  const unsigned rows = static_cast<unsigned>(count < 65535 ? count : 65535);
  const int32_t images = static_cast<int32_t>(count);
  if (needs_wide) {
    if constexpr (wide)
      return for_warp_types<Map>(in, out, [&](auto in_tag, auto out_tag) {
        const dim3 grid(static_cast<unsigned>(blocks), rows), block(warp::kWideWidth, warp::kWideHeight);
        warp::wide_kernel<typename decltype(in_tag)::type, typename decltype(out_tag)::type, Map><<<grid, block, 0, stream>>>(items, images);
      });
    return false;
  }
  return for_warp_types<Map>(in, out, [&](auto in_tag, auto out_tag) {
    const dim3 grid(static_cast<unsigned>(tiles), rows);
    warp::tile_kernel<typename decltype(in_tag)::type, typename decltype(out_tag)::type, Map><<<grid, warp::kWarps * 32, 0, stream>>>(items, images);
  });
}

// `host_items` are the same as `items`, except for maps that come from device memory. `tiles` is the largest tile_count of an item.
template <int D, bool wide, class Map>
void launch_warp(const TableRows<WarpItem<D, Map>>& items, const WarpItem<D, Map>* host_items, int64_t count, int64_t tiles, DType in, DType out,
                 cudaStream_t stream) {
  if (count == 0 || tiles == 0) return;
  // The general kernel also takes what the image kernels decline.
  if constexpr (D == 2)
    if (launch_warp_images<wide>(items, host_items, count, in, out, stream)) return;
  warp::warp_kernel<D, wide, Map><<<batch_grid(tiles, 1, count), dim3(warp::kTileWidth, warp::kTileHeight), 0, stream>>>(items, count, in, out);
}

// Instantiated in warp_affine.cu, for rotate as well.
extern template void launch_warp<2, false>(const TableRows<WarpItem<2, AffineMap<2>>>&, const WarpItem<2, AffineMap<2>>*, int64_t, int64_t, DType,
                                           DType, cudaStream_t);
extern template void launch_warp<3, false>(const TableRows<WarpItem<3, AffineMap<3>>>&, const WarpItem<3, AffineMap<3>>*, int64_t, int64_t, DType,
                                           DType, cudaStream_t);

}  // namespace ndd
