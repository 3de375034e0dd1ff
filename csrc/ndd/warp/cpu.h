// SPDX-License-Identifier: Apache-2.0
// CPU side of the warp driver. Maps and samplers communicate through a block of coordinates: a new map costs one vectorized loop and a new element
// type one sampler, never their product.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ndd/dtypes.h"
#include "ndd/simd.h"
#include "ndd/warp/warp.h"

namespace ndd {

// The planes of an image, which are warped in the same way; an item describes the first of them. Distances are in bytes.
struct WarpPlanes {
  int64_t count = 1, in_step = 0, out_step = 0;
};

namespace warp {

constexpr int64_t kBlock = 512;  // in pixels: the coordinates and positions of a block stay in the L1 cache

// The points of a block, axis by axis, so loops over pixels vectorize.
template <int D>
struct Coordinates {
  float at[D][kBlock];
  Point<D> point(int64_t j) const {
    Point<D> p;
    for (int d = 0; d < D; ++d) p.at[d] = at[d][j];
    return p;
  }
};

// Computes the points of n pixels of a row, from `first` on.
template <int D>
using MapBlock = void (*)(const void* map, const Point<D>& first, int64_t n, Coordinates<D>& coords);

template <int D, class Map>
auto map_block(const Map& map, const Point<D>& first, int64_t n, Coordinates<D>& coords, int) -> decltype(map.row(first, n, coords)) {
  map.row(first, n, coords);  // the map has a faster way of its own
}

// The last parameters, int and long, rank the overloads: a literal 0 prefers int, if that one is viable.
template <int D, class Map>
void map_block(const Map& functor, const Point<D>& first, int64_t n, Coordinates<D>& coords, long) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    // Copies in locals: the compiler need not assume that stores change them.
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

// The object that replaces the map while an image is warped: `map.on_host(size)`, which may hold tables, or the map itself. `size` is the output's.
template <class Map>
auto host_map(const Map& map, const int64_t* size, int) -> decltype(map.on_host(size)) {
  return map.on_host(size);
}

template <class Map>
const Map& host_map(const Map& map, const int64_t*, long) {
  return map;
}

// Whether a map is affine; if so, sets `affine`.
template <class Map>
auto is_affine(const Map& map, AffineMap<2>* affine, int) -> decltype(map.affine(affine)) {
  return map.affine(affine);
}

template <class Map>
bool is_affine(const Map&, AffineMap<2>*, long) {
  return false;
}

inline bool moves_rows(const AffineMap<2>& map) { return map.m[0][0] == 1.0f && map.m[1][0] == 0.0f; }

template <class Map>
bool moves_rows(const Map&) {
  return false;
}

// `size` is the output's. `moves`: the points of a row are consecutive in a row of the source. Compiled once, in cpu.cpp, for all maps.
void warp_rows(const WarpSource<2>& src, void* out, const int64_t (&size)[2], DType in_type, DType out_type, Interp interp, const void* map,
               MapBlock<2> block, bool moves, const WarpPlanes& planes);
void warp_rows(const WarpSource<3>& src, void* out, const int64_t (&size)[3], DType in_type, DType out_type, Interp interp, const void* map,
               MapBlock<3> block, bool moves, const WarpPlanes& planes);

template <int D, class Item, class Map>
void warp_mapped(const Item& item, DType in, DType out_type, const WarpPlanes& planes, const Map& map) {
  warp_rows(
      item.src, item.out, item.size, in, out_type, item.interp, &map,
      [](const void* host, const Point<D>& first, int64_t n, Coordinates<D>& coords) {
        map_block<D>(*static_cast<const Map*>(host), first, n, coords, 0);
      },
      moves_rows(map), planes);
}

}  // namespace warp

template <int D, class Map>
void warp_cpu(const WarpItem<D, Map>& item, DType in, DType out, const WarpPlanes& planes = {}) {
  if (item.interp == Interp::copy) {  // input and output have the same layout
    const int64_t bytes = item.src.stride[D - 1] * item.src.size[D - 1] * item_bytes(in);
    for (int64_t p = 0; p < planes.count; ++p)
      std::memcpy(static_cast<char*>(item.out) + p * planes.out_step, static_cast<const char*>(item.src.data) + p * planes.in_step, bytes);
    return;
  }
  if constexpr (D == 2) {
    AffineMap<2> affine;
    // Maps that turn out to be affine, such as a perspective with a trivial last row, share one loop.
    if (warp::is_affine(item.map, &affine, 0)) return warp::warp_mapped<D>(item, in, out, planes, affine);
  }
  warp::warp_mapped<D>(item, in, out, planes, warp::host_map(item.map, item.size, 0));
}

}  // namespace ndd
