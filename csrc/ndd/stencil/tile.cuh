// SPDX-License-Identifier: Apache-2.0
// Tiles of an image in shared memory, for filters whose windows overlap. Every element is read from global memory once, and borders are resolved
// while the tile is staged, so the loops over windows are free of them. Rows consist of elements: with interleaved channels, neighboring pixels
// of a channel are `inner` elements apart.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ndd/dtypes.h"
#include "ndd/hd.h"
#include "ndd/stencil/stencil.h"

namespace ndd::stencil {

constexpr int kTileThreads = 192;  // six warps share the 12 pieces of a tile of 192 elements and 32 rows evenly
constexpr int kTileRows = 32;  // one row per lane where warps go along rows
constexpr int kPiece = 16;  // outputs per thread in a row or column: each loaded value serves up to 16 of them
constexpr int64_t kMaxTileBytes = 96 << 10;  // of shared memory: from compute capability 8.0 on, a block may have at least 99 KB
constexpr int64_t kGoodTileBytes = 72 << 10;  // up to this size, three blocks share a multiprocessor of compute capability 9.0

// The extent of a window along an axis: a Reach in 32 bits, to be kept in shared memory.
struct Span {
  int32_t size, before;
};

// An image from which tiles are staged.
struct Plane {
  const char* in;
  int64_t height, width, inner;
  NDD_HD int64_t row() const { return width * inner; }
};

// The elements from one row of a tile to the next. An odd number of words, so lanes that go down a column use different banks.
NDD_HD int64_t tile_pitch(int64_t columns, int64_t bytes) {
  const int64_t in_word = bytes < 4 ? 4 / bytes : 1;
  return (((columns + in_word - 1) / in_word) | 1) * in_word;
}

#ifdef __CUDACC__
__device__ inline int warp_index() { return static_cast<int>(threadIdx.x) / 32; }
__device__ inline int lane_index() { return static_cast<int>(threadIdx.x) % 32; }
__device__ inline int warp_count() { return static_cast<int>(blockDim.x) / 32; }

// Calls f(group, piece) for all of groups x pieces, distributed over the warps, without the 20 instructions of a division by a run-time number.
template <class F>
__device__ void for_warp_tasks(int groups, int pieces, F f) {
  for (int group = warp_index(), piece = 0;; group += warp_count()) {
    for (; group >= groups; group -= groups) ++piece;
    if (piece >= pieces) return;
    f(group, piece);
  }
}

// Finds the addresses of `count` rows from `first` on; null for rows of a constant border.
__device__ inline void locate_rows(const char** rows, int count, const Plane& plane, int64_t first, Border border, int64_t element_bytes) {
  for (int r = static_cast<int>(threadIdx.x); r < count; r += static_cast<int>(blockDim.x)) {
    const int64_t y = border_index(border, first + r, plane.height);
    rows[r] = y < 0 ? nullptr : plane.in + y * plane.row() * element_bytes;
  }
}

// The element of a row that represents element x; -1 for a constant border.
__device__ inline int64_t column_of(Border border, int64_t x, const Plane& plane) {
  if (x >= 0 && x < plane.row()) return x;
  // Rounded down, for negative x too.
  const int64_t pixel = x >= 0 ? x / plane.inner : -((plane.inner - 1 - x) / plane.inner);
  const int64_t stands = border_index(border, pixel, plane.width);
  return stands < 0 ? -1 : stands * plane.inner + (x - pixel * plane.inner);
}

// Loads through the read-only path: no kernel writes its input, and the compiler cannot tell that pointers kept in shared memory point to global
// memory.
template <class T>
__device__ T load_global(const T* from) {
  // __ldg() exists for integers of each size, but not for all element types.
  using Short = std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>;
  using Word = std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, Short>>;
  const Word word = __ldg(reinterpret_cast<const Word*>(from));
  T value;
  memcpy(&value, &word, sizeof(T));
  return value;
}

// Rows of an image that are staged together, `columns` elements of each from element x on. If none of them is constant, they are not tested
// individually.
struct StagedRows {
  const char* const* rows;
  int count, columns;
  bool no_constants;
  int64_t x;
  Border border;
};

__device__ inline bool rows_inside(const Plane& plane, int64_t first, int count) { return first >= 0 && first + count <= plane.height; }

// tile[r * pitch + i] = make(element x + i of row r), or `fill`. A warp takes 32 columns and 16 rows: a column's position is computed once, and 16
// loads of a thread are in flight together.
template <class T, class S, class Make>
__device__ void stage_elements(S* tile, int pitch, const StagedRows& from, const Plane& plane, S fill, Make make) {
  for_warp_tasks((from.columns + 31) / 32, (from.count + kPiece - 1) / kPiece, [&](int group, int piece) {
    const int i = group * 32 + lane_index(), first = piece * kPiece, left = from.count - first;
    if (i >= from.columns) return;
    const int64_t column = column_of(from.border, from.x + i, plane);
    S* to = tile + first * pitch + i;
    if (from.no_constants && column >= 0 && left >= kPiece) {
      S values[kPiece];
#pragma unroll
      for (int u = 0; u < kPiece; ++u) values[u] = make(load_global(reinterpret_cast<const T*>(from.rows[first + u]) + column));
#pragma unroll
      for (int u = 0; u < kPiece; ++u, to += pitch) *to = values[u];
    } else {
#pragma unroll 4
      for (int u = 0; u < (left < kPiece ? left : kPiece); ++u, to += pitch) {
        const char* const row = from.rows[first + u];
        *to = row && column >= 0 ? make(load_global(reinterpret_cast<const T*>(row) + column)) : fill;
      }
    }
  });
}

// The same for bytes, xored with `flip`: in words inside the image, and in single bytes at its sides. Rows may start at any byte, so a word of the
// tile is assembled from two aligned words, the second of which is in the L1 cache.
__device__ inline void stage_bytes(uint8_t* tile, int pitch, const StagedRows& from, const Plane& plane, uint8_t fill, uint8_t flip) {
  const int words = (from.columns + 3) / 4, pieces = (from.count + kPiece - 1) / kPiece;
  // Whether word w of the tile, and the aligned words that it overlaps, lie inside the row.
  const auto inside = [&](int w) { return from.no_constants && from.x + 4 * w >= 3 && from.x + 4 * w + 8 <= plane.row(); };
  for_warp_tasks((words + 31) / 32, pieces, [&](int group, int piece) {
    const int w = group * 32 + lane_index(), first = piece * kPiece;
    if (w >= words || !inside(w)) return;
    const int64_t at = from.x + 4 * w;
    const auto load = [&](int r) {
      const auto address = reinterpret_cast<uintptr_t>(from.rows[r] + at);
      const auto* aligned = reinterpret_cast<const uint32_t*>(address & ~uintptr_t{3});
      const uint64_t both = load_global(aligned) | static_cast<uint64_t>(load_global(aligned + 1)) << 32;
      return static_cast<uint32_t>(both >> (static_cast<unsigned int>(address & 3) * 8)) ^ (flip * 0x01010101u);
    };
    uint32_t* to = reinterpret_cast<uint32_t*>(tile) + first * (pitch / 4) + w;
    const int left = from.count - first;
    if (left >= kPiece) {
      uint32_t word[kPiece];
#pragma unroll
      for (int u = 0; u < kPiece; ++u) word[u] = load(first + u);
#pragma unroll
      for (int u = 0; u < kPiece; ++u, to += pitch / 4) *to = word[u];
    } else {
#pragma unroll 4
      for (int u = 0; u < left; ++u, to += pitch / 4) *to = load(first + u);
    }
  });
  // The sides, byte by byte: all words in between were staged above.
  if (inside(0) && inside(words - 1)) return;
  for_warp_tasks((from.columns + 31) / 32, pieces, [&](int group, int piece) {
    const int i = group * 32 + lane_index(), first = piece * kPiece;
    if (i >= from.columns || inside(i / 4)) return;
    const int64_t column = column_of(from.border, from.x + i, plane);
    uint8_t* to = tile + first * pitch + i;
#pragma unroll 8
    for (int u = 0; u < (from.count - first < kPiece ? from.count - first : kPiece); ++u, to += pitch) {
      const char* const row = from.rows[first + u];
      *to = row && column >= 0 ? static_cast<uint8_t>(load_global(reinterpret_cast<const uint8_t*>(row) + column) ^ flip) : fill;
    }
  });
}
#endif

}  // namespace ndd::stencil
