// SPDX-License-Identifier: Apache-2.0
// Transposes planes of items: out[c][r] = in[r][c]. 16-byte vectors are shuffled in registers, in blocks from 16 x 16 items of one byte to 2 x 2 of
// eight. Pixels of three bytes, the most common case, have shuffles of their own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "ndd/simd.h"

namespace ndd::transpose {

constexpr int64_t kVector = 16;

template <class T>
using Vector __attribute__((vector_size(16))) = T;

// Item (r, c) is at src + r * in_step + c * bytes in the input and at dst + c * out_step + r * bytes in the output.
struct Plane {
  const char* src;
  int64_t in_step;
  char* dst;
  int64_t out_step, rows, cols;
};

template <int bytes>
NDD_ALWAYS_INLINE inline void move_item(const Plane& p, int64_t r, int64_t c) {
  std::memcpy(p.dst + c * p.out_step + r * bytes, p.src + r * p.in_step + c * bytes, bytes);
}

template <int bytes>
NDD_ALWAYS_INLINE inline void move_part(const Plane& p, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  for (int64_t c = c0; c < c1; ++c)
    for (int64_t r = r0; r < r1; ++r) move_item<bytes>(p, r, c);
}

// Calls block(r, c) for all blocks of n x n items, in tiles. The prefetcher recognizes neither the rows of the next tiles nor the lines that those
// write, so both are prefetched three tiles ahead. Transposing 16 VGA images on one thread takes 1.9 ms for items of 3 bytes, 1.3 for 4 and 2.7 for
// 8; one tile ahead 2.3, 1.7 and 5.0; without prefetching 5.4, 3.2 and 5.5, and for 3 bytes 3.1 or more with any tile size.
template <int bytes, int64_t n, class Block>
NDD_ALWAYS_INLINE inline void for_blocks(const Plane& p, Block block) {
  // A tile's columns are about a cache line of the input, and its rows one or two of the output.
  constexpr int64_t tile_rows = bytes < 6 ? 96 / bytes : 16, tile_cols = bytes == 3 ? 16 : 64 / bytes, ahead = 3;
  const int64_t across = (p.cols + tile_cols - 1) / tile_cols, tiles = (p.rows + tile_rows - 1) / tile_rows * across;
  // Prefetches from the last byte backwards, so the line that holds a row's end is always included.
  const auto fetch = [&](int64_t tile) NDD_ALWAYS_INLINE {
    if (tile >= tiles) return;
    const int64_t r0 = tile / across * tile_rows, r1 = std::min(r0 + tile_rows, p.rows);
    const int64_t c0 = tile % across * tile_cols, c1 = std::min(c0 + tile_cols, p.cols);
    for (int64_t r = r0; r < r1; ++r)
      for (int64_t b = c1 * bytes - 1; b >= c0 * bytes; b -= 64) __builtin_prefetch(p.src + r * p.in_step + b);
    for (int64_t c = c0; c < c1; ++c)
      for (int64_t b = r1 * bytes - 1; b >= r0 * bytes; b -= 64) __builtin_prefetch(p.dst + c * p.out_step + b, 1);
  };
  for (int64_t t = 0; t < ahead; ++t) fetch(t);
  int64_t tile = 0;
  for (int64_t r0 = 0; r0 < p.rows; r0 += tile_rows) {
    for (int64_t c0 = 0; c0 < p.cols; c0 += tile_cols, ++tile) {
      fetch(tile + ahead);
      for (int64_t c = c0; c < std::min(c0 + tile_cols, p.cols); c += n)
        for (int64_t r = r0; r < std::min(r0 + tile_rows, p.rows); r += n) block(r, c);
    }
  }
}

// The two halves of a perfect shuffle: elements of a and b alternate. log2(n) rounds of these transpose n vectors.
template <class T, int... k>
NDD_ALWAYS_INLINE inline Vector<T> low_halves(Vector<T> a, Vector<T> b, std::integer_sequence<int, k...>) {
  return __builtin_shufflevector(a, b, (k / 2 + k % 2 * static_cast<int>(sizeof...(k)))...);
}

template <class T, int... k>
NDD_ALWAYS_INLINE inline Vector<T> high_halves(Vector<T> a, Vector<T> b, std::integer_sequence<int, k...>) {
  constexpr int n = sizeof...(k);
  return __builtin_shufflevector(a, b, (n / 2 + k / 2 + k % 2 * n)...);
}

// A square block: every step is a perfect shuffle of all its elements.
// After log2(n) rounds vector i has element i of each: a round moves one bit of the vector's number into the place within it.
template <class T>
NDD_ALWAYS_INLINE inline void turn(Vector<T> (&v)[kVector / sizeof(T)]) {
  constexpr int n = kVector / sizeof(T);
  constexpr auto places = std::make_integer_sequence<int, n>();
  for (int step = 1; step < n; step *= 2) {
    Vector<T> w[n];
    for (int i = 0; i < n / 2; ++i) {
      w[2 * i] = low_halves<T>(v[i], v[i + n / 2], places);
      w[2 * i + 1] = high_halves<T>(v[i], v[i + n / 2], places);
    }
    for (int i = 0; i < n; ++i) v[i] = w[i];
  }
}

// Transposes n x n items at (r, c), or fewer rows or columns. Vectors are read and written whole, so both sides need room for them.
template <class T>
NDD_ALWAYS_INLINE inline void move_block(const Plane& p, int64_t r, int64_t c, int64_t rows, int64_t cols) {
  constexpr int n = kVector / sizeof(T);
  Vector<T> v[n];
  for (int i = 0; i < n; ++i) {
    // Rows that are not there are zeros, which move_block does not store.
    if (i < rows) std::memcpy(&v[i], p.src + (r + i) * p.in_step + c * sizeof(T), kVector);
    else v[i] = Vector<T>{};
  }
  turn<T>(v);
  for (int i = 0; i < n; ++i)
    if (i < cols) std::memcpy(p.dst + (c + i) * p.out_step + r * sizeof(T), &v[i], kVector);
}

// The last block of a row or column overlaps the one before.
template <class T>
void move_blocks(const Plane& plane) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    constexpr int64_t n = kVector / sizeof(T);
    const Plane p = plane;
    for_blocks<sizeof(T), n>(
        p, [&](int64_t r, int64_t c) NDD_ALWAYS_INLINE { move_block<T>(p, std::min(r, p.rows - n), std::min(c, p.cols - n), n, n); });
  });
}

// Fewer columns than a vector has items, in adjacent rows: a vector then also holds the beginning of the next row.
template <class T>
void split_columns(const Plane& plane) {
  int64_t done = 0;
  with_simd([&]() NDD_ALWAYS_INLINE {
    constexpr int64_t n = kVector / sizeof(T);
    const Plane p = plane;
    int64_t r = 0;
    // As long as the vector of the last row stays inside the plane.
    for (; (r + n - 1) * p.in_step + kVector <= p.rows * p.in_step; r += n) move_block<T>(p, r, 0, n, p.cols);
    done = r;
  });
  move_part<sizeof(T)>(plane, done, plane.rows, 0, plane.cols);
}

// Fewer rows than a vector has items: what a vector writes beyond an output row is overwritten by the next one.
template <class T>
void join_rows(const Plane& plane) {
  int64_t done = 0;
  with_simd([&]() NDD_ALWAYS_INLINE {
    constexpr int64_t n = kVector / sizeof(T);
    const Plane p = plane;
    int64_t c = 0;
    for (; c + n <= p.cols && (c + n - 1) * p.out_step + kVector <= p.cols * p.out_step; c += n) move_block<T>(p, 0, c, p.rows, n);
    done = c;
  });
  move_part<sizeof(T)>(plane, 0, plane.rows, done, plane.cols);
}

// 48 bytes are 16 pixels. For each plane, two blends collect its bytes in one register, in an order that a shuffle then corrects.
using Bytes = Vector<uint8_t>;

// clang-format off
NDD_ALWAYS_INLINE inline void split_48(const Bytes a, const Bytes b, const Bytes c, Bytes (&plane)[3]) {
  const Bytes x1 = __builtin_shufflevector(a, b, 0, 17, 18, 3, 20, 21, 6, 23, 24, 9, 26, 27, 12, 29, 30, 15), x2 = __builtin_shufflevector(x1, c, 0, 17, 2, 3, 20, 5, 6, 23, 8, 9, 26, 11, 12, 29, 14, 15);
  plane[0] = __builtin_shufflevector(x2, x2, 0, 3, 6, 9, 12, 15, 2, 5, 8, 11, 14, 1, 4, 7, 10, 13);
  const Bytes y1 = __builtin_shufflevector(a, b, 16, 1, 18, 19, 4, 21, 22, 7, 24, 25, 10, 27, 28, 13, 30, 31), y2 = __builtin_shufflevector(y1, c, 0, 1, 18, 3, 4, 21, 6, 7, 24, 9, 10, 27, 12, 13, 30, 15);
  plane[1] = __builtin_shufflevector(y2, y2, 1, 4, 7, 10, 13, 0, 3, 6, 9, 12, 15, 2, 5, 8, 11, 14);
  const Bytes z1 = __builtin_shufflevector(a, b, 16, 17, 2, 19, 20, 5, 22, 23, 8, 25, 26, 11, 28, 29, 14, 31), z2 = __builtin_shufflevector(z1, c, 16, 1, 2, 19, 4, 5, 22, 7, 8, 25, 10, 11, 28, 13, 14, 31);
  plane[2] = __builtin_shufflevector(z2, z2, 2, 5, 8, 11, 14, 1, 4, 7, 10, 13, 0, 3, 6, 9, 12, 15);
}

NDD_ALWAYS_INLINE inline void join_48(const Bytes x, const Bytes y, const Bytes z, Bytes (&pixels)[3]) {
  const Bytes a = __builtin_shufflevector(x, x, 0, 11, 6, 1, 12, 7, 2, 13, 8, 3, 14, 9, 4, 15, 10, 5);
  const Bytes b = __builtin_shufflevector(y, y, 5, 0, 11, 6, 1, 12, 7, 2, 13, 8, 3, 14, 9, 4, 15, 10);
  const Bytes c = __builtin_shufflevector(z, z, 10, 5, 0, 11, 6, 1, 12, 7, 2, 13, 8, 3, 14, 9, 4, 15);
  const Bytes ab0 = __builtin_shufflevector(a, b, 0, 17, 18, 3, 20, 21, 6, 23, 24, 9, 26, 27, 12, 29, 30, 15);
  pixels[0] = __builtin_shufflevector(ab0, c, 0, 1, 18, 3, 4, 21, 6, 7, 24, 9, 10, 27, 12, 13, 30, 15);
  const Bytes ab1 = __builtin_shufflevector(a, b, 16, 17, 2, 19, 20, 5, 22, 23, 8, 25, 26, 11, 28, 29, 14, 31);
  pixels[1] = __builtin_shufflevector(ab1, c, 0, 17, 2, 3, 20, 5, 6, 23, 8, 9, 26, 11, 12, 29, 14, 15);
  const Bytes ab2 = __builtin_shufflevector(a, b, 16, 1, 18, 19, 4, 21, 22, 7, 24, 25, 10, 27, 28, 13, 30, 31);
  pixels[2] = __builtin_shufflevector(ab2, c, 16, 1, 2, 19, 4, 5, 22, 7, 8, 25, 10, 11, 28, 13, 14, 31);
}
// clang-format on

inline void split_pixels(const Plane& plane) {
  int64_t done = 0;
  with_simd([&]() NDD_ALWAYS_INLINE {
    const Plane p = plane;
    int64_t r = 0;
    for (; r + kVector <= p.rows; r += kVector) {
      Bytes v[3], w[3];
      for (int k = 0; k < 3; ++k) std::memcpy(&v[k], p.src + 3 * r + k * kVector, kVector);
      split_48(v[0], v[1], v[2], w);
      for (int c = 0; c < 3; ++c) std::memcpy(p.dst + c * p.out_step + r, &w[c], kVector);
    }
    done = r;
  });
  move_part<1>(plane, done, plane.rows, 0, 3);
}

inline void join_pixels(const Plane& plane) {
  int64_t done = 0;
  with_simd([&]() NDD_ALWAYS_INLINE {
    const Plane p = plane;
    int64_t c = 0;
    for (; c + kVector <= p.cols; c += kVector) {
      Bytes v[3], w[3];
      for (int r = 0; r < 3; ++r) std::memcpy(&v[r], p.src + r * p.in_step + c, kVector);
      join_48(v[0], v[1], v[2], w);
      for (int k = 0; k < 3; ++k) std::memcpy(p.dst + 3 * c + k * kVector, &w[k], kVector);  // a single copy of all would go through the stack
    }
    done = c;
  });
  move_part<1>(plane, 0, 3, done, plane.cols);
}

// Planes that are too narrow for square blocks still use vectors if their rows are adjacent, as with interleaved channels.
template <class T>
void move_numbers(const Plane& p) {
  constexpr int64_t bytes = sizeof(T), n = kVector / bytes;
  if (p.rows >= n && p.cols >= n) return move_blocks<T>(p);
  if (p.rows >= n && p.in_step == p.cols * bytes) return bytes == 1 && p.cols == 3 ? split_pixels(p) : split_columns<T>(p);
  if (p.cols >= n && p.out_step == p.rows * bytes) return bytes == 1 && p.rows == 3 ? join_pixels(p) : join_rows<T>(p);
  move_part<bytes>(p, 0, p.rows, 0, p.cols);
}

// 4 x 4 pixels of three bytes, widened to four while they are transposed. The last pixels of a row are read and written without what follows them.
NDD_ALWAYS_INLINE inline void turn_pixels(const Plane& p, int64_t r, int64_t c) {
  Bytes v[4]{};
  Vector<uint32_t> w[4];
  // A load of 16 bytes reaches into the sixth pixel.
  const bool ends = c + 6 > p.cols;
  for (int i = 0; i < 4; ++i) {
    const char* src = p.src + (r + i) * p.in_step + 3 * c;
    if (ends) std::memcpy(&v[i], src, 12);
    else std::memcpy(&v[i], src, 16);
    w[i] = reinterpret_cast<Vector<uint32_t>>(__builtin_shufflevector(v[i], v[i], 0, 1, 2, 15, 3, 4, 5, 15, 6, 7, 8, 15, 9, 10, 11, 15));
  }
  turn<uint32_t>(w);
  for (int i = 0; i < 4; ++i) {
    const Bytes packed = reinterpret_cast<Bytes>(w[i]);
    const Bytes out = __builtin_shufflevector(packed, packed, 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 15, 15, 15, 15);
    char* dst = p.dst + (c + i) * p.out_step + 3 * r;
    std::memcpy(dst, &out, 12);
  }
}

inline void move_rgb(const Plane& plane) {
  const int64_t rows = plane.rows / 4 * 4, cols = plane.cols / 4 * 4;
  with_simd([&]() NDD_ALWAYS_INLINE {
    const Plane p = plane;
    for_blocks<3, 4>({p.src, p.in_step, p.dst, p.out_step, rows, cols}, [&](int64_t r, int64_t c) NDD_ALWAYS_INLINE { turn_pixels(p, r, c); });
  });
  move_part<3>(plane, rows, plane.rows, 0, plane.cols);
  move_part<3>(plane, 0, rows, cols, plane.cols);
}

// Items that are not numbers: pixels.
template <int bytes>
void move_pixels(const Plane& p) {
  for_blocks<bytes, 1>(p, [&](int64_t r, int64_t c) NDD_ALWAYS_INLINE { move_item<bytes>(p, r, c); });
}

inline bool has_items_of(int64_t bytes) { return bytes <= 4 || bytes == 6 || bytes == 8 || bytes == 12 || bytes == 16; }

inline void move_plane(const Plane& p, int64_t bytes) {
  switch (bytes) {
    case 1: return move_numbers<uint8_t>(p);
    case 2: return move_numbers<uint16_t>(p);
    case 3: return move_rgb(p);
    case 4: return move_numbers<uint32_t>(p);
    case 6: return move_pixels<6>(p);
    case 8: return move_numbers<uint64_t>(p);
    case 12: return move_pixels<12>(p);
    case 16: return move_pixels<16>(p);
  }
}

}  // namespace ndd::transpose
