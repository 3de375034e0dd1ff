// SPDX-License-Identifier: Apache-2.0
// CPU side of the warp driver. Maps and samplers meet in a block of coordinates: a new map costs one vectorised loop, a new element type one
// sampler, never a product of the two.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ndd/dtypes.h"
#include "ndd/simd.h"
#include "ndd/warp/warp.h"

namespace ndd {
namespace warp {

constexpr int64_t kBlock = 512;  // pixels: coordinates and positions of a block stay in the first-level cache

template <int D>
struct Coordinates {
  float at[D][kBlock];
  Point<D> point(int64_t j) const {
    Point<D> p;
    for (int d = 0; d < D; ++d) p.at[d] = at[d][j];
    return p;
  }
};

// The points of n pixels of a row, from `first` on.
template <int D>
using MapBlock = void (*)(const void* map, const Point<D>& first, int64_t n, Coordinates<D>& coords);

template <int D, class Map>
auto map_block(const Map& map, const Point<D>& first, int64_t n, Coordinates<D>& coords, int) -> decltype(map.row(first, n, coords)) {
  map.row(first, n, coords);  // the map knows a better way
}

template <int D, class Map>
void map_block(const Map& functor, const Point<D>& first, int64_t n, Coordinates<D>& coords, long) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const Map map = functor;
    const Point<D> start = first;
    float* __restrict out[D];
    for (int d = 0; d < D; ++d) out[d] = coords.at[d];
    const int32_t count = static_cast<int32_t>(n);
    for (int32_t j = 0; j < count; ++j) {
      Point<D> to = start;
      to.at[0] += static_cast<float>(j);
      const Point<D> from = map(to);
      for (int d = 0; d < D; ++d) out[d][j] = from.at[d];
    }
  });
}

// What stands for the map while one image is warped: `map.on_host(size)`, which may hold tables, or the map itself. `size` is the output's.
template <class Map>
auto host_map(const Map& map, const int64_t* size, int) -> decltype(map.on_host(size)) {
  return map.on_host(size);
}

template <class Map>
const Map& host_map(const Map& map, const int64_t*, long) {
  return map;
}

// `size` is the output's. Compiled once in cpu.cpp, whatever the map.
void warp_rows(const WarpSource<2>& src, void* out, const int64_t (&size)[2], DType in_type, DType out_type, Interp interp, const void* map,
               MapBlock<2> block);
void warp_rows(const WarpSource<3>& src, void* out, const int64_t (&size)[3], DType in_type, DType out_type, Interp interp, const void* map,
               MapBlock<3> block);

}  // namespace warp

template <int D, class Map>
void warp_cpu(const WarpItem<D, Map>& item, DType in, DType out) {
  if (item.interp == Interp::copy) {  // input and output are alike
    std::memcpy(item.out, item.src.data, item.src.stride[D - 1] * item.src.size[D - 1] * item_bytes(in));
    return;
  }
  const auto& map = warp::host_map(item.map, item.size, 0);
  using HostMap = std::decay_t<decltype(map)>;
  warp::warp_rows(item.src, item.out, item.size, in, out, item.interp, &map,
                  [](const void* host, const Point<D>& first, int64_t n, warp::Coordinates<D>& coords) {
                    warp::map_block<D>(*static_cast<const HostMap*>(host), first, n, coords, 0);
                  });
}

}  // namespace ndd
