// SPDX-License-Identifier: Apache-2.0
// The width pass of two_passes.cpp for images of three or four channels, sixteen rows at a time. A strip of the rows is transposed once, so the same
// element of all rows lies side by side; then neither the taps nor the weights need shuffles: a weight is broadcast to all rows. Shuffling the neighbors
// of each pixel instead took 2.5 times as long for DINO's crops (bicubic with antialias, reductions of 1 to 4).
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ndd/resample/table.h"
#include "ndd/simd.h"
#include "ndd/vnni.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ndd {

// A task of the width pass: `rows` rows of the input, `in_row` bytes apart, to rows of the output.
struct Rows {
  const uint8_t* in;
  int64_t in_row, rows;
  uint8_t* out;
  int64_t out_row;
  const uint8_t* end;  // of the readable memory
};

#if defined(__x86_64__)

namespace row_lanes {

#define NDD_AVX2 __attribute__((target("avx2"))) inline

constexpr int64_t kRows = 16;
// Source pixels of a strip, whose transposed rows (512 kB with four channels) stay in the L2 cache. Each is read by a few neighboring outputs, so
// the L1 cache serves all but the first; strips that fit in it took 20 % longer, because every strip begins sixteen streams of memory.
constexpr int64_t kStrip = 4096;
// Output pixels whose sums are kept until they are transposed back: whole vectors of 16 bytes for any number of channels.
constexpr int64_t kBlock = 16;

// The weights of an axis in pairs of neighbors as one multiply-add takes them. Pairs begin at even source elements, so the weights of an element whose
// first neighbor is odd follow a weight of zero.
struct PairWeights {
  Axis axis{};
  int64_t stride = 0;  // pairs of an output element, of which the last ones may be zero
  std::vector<int32_t> pairs, fine;

  void build(const AxisTable& h) {
    axis = h.axis;
    stride = 1;
    for (int64_t x = 0; x < h.axis.out; ++x) stride = std::max<int64_t>(stride, (h.count[x] + (h.start[x] & 1) + 1) / 2);
    fill(h, h.weight16, pairs);
    if (h.fine()) fill(h, h.fine16, fine);
  }

 private:
  void fill(const AxisTable& h, const std::vector<int16_t>& weights, std::vector<int32_t>& to) {
    to.assign(h.axis.out * stride, 0);
    auto* const out = reinterpret_cast<int16_t*>(to.data());
    for (int64_t x = 0; x < h.axis.out; ++x) std::copy_n(weights.data() + x * h.stride, h.count[x], out + 2 * x * stride + (h.start[x] & 1));
  }
};

// Whether transposing pays. A pixel that is transposed must be mixed into several outputs: reductions by more than 8 (6 with Pillow's weights, whose two
// products cost more than the transposition saves) took up to 1.3 times as long as color_rows in two_passes.cpp, and so did few rows in whole groups.
inline bool pays(int64_t rows, const AxisTable& h) {
  if (rows < kRows || h.axis.out < kBlock || h.most < 2) return false;
  const int64_t largest = std::min<int64_t>(h.fine() ? 6 : 8, 2 * h.most), computed = (rows + kRows - 1) / kRows * kRows;
  return std::abs(h.start[h.axis.out - 1] - h.start[0]) <= largest * h.axis.out && 4 * computed <= 5 * rows;
}

// Transposes `pixels` pixels, rounded up to four, of sixteen rows: [pixel / 2][channel][row][pixel % 2], as 16-bit numbers.
template <int C>
NDD_AVX2 void turn_in(const uint8_t* in, int64_t in_row, int64_t pixels, const uint8_t* end, int16_t* tile) {
  constexpr char x = -1;  // zeroes a byte
  // For each channel two neighbors, of the first and the second two pixels.
  alignas(16) static constexpr char kPairs[2][2][16] = {
      {{0, x, 3, x, 1, x, 4, x, 2, x, 5, x, x, x, x, x}, {6, x, 9, x, 7, x, 10, x, 8, x, 11, x, x, x, x, x}},
      {{0, x, 4, x, 1, x, 5, x, 2, x, 6, x, 3, x, 7, x}, {8, x, 12, x, 9, x, 13, x, 10, x, 14, x, 11, x, 15, x}}};
  __m256i orders[2];
  for (int j = 0; j < 2; ++j) orders[j] = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(kPairs[C - 3][j])));
  alignas(32) uint8_t copy[kRows * 16];
  for (int64_t at = 0; at < pixels; at += 4, tile += 4 * C * kRows) {
    const uint8_t* from = in + at * C;
    int64_t row = in_row;
    // Near the end of the memory a 16-byte load would read outside it.
    if (from + (kRows - 1) * in_row + 16 > end) {
      for (int64_t r = 0; r < kRows; ++r) {
        const uint8_t* const source = from + r * in_row;
        std::memcpy(copy + r * 16, source, std::min<int64_t>(16, end - source));
      }
      from = copy;
      row = 16;
    }
    for (int64_t half = 0; half < kRows; half += 8) {
      __m256i a[4];
      // Rows r and r + 4 share a register, so unpacking within the 128-bit lanes leaves the rows in order.
      for (int64_t r = 0; r < 4; ++r)
        a[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + (half + r) * row))),
                                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + (half + r + 4) * row)), 1);
      for (int64_t j = 0; j < 2; ++j) {
        __m256i b[4];
        for (int r = 0; r < 4; ++r) b[r] = _mm256_shuffle_epi8(a[r], orders[j]);
        const __m256i low0 = _mm256_unpacklo_epi32(b[0], b[1]), low1 = _mm256_unpacklo_epi32(b[2], b[3]);
        const __m256i high0 = _mm256_unpackhi_epi32(b[0], b[1]), high1 = _mm256_unpackhi_epi32(b[2], b[3]);
        auto* const to = reinterpret_cast<__m256i*>(tile + j * 2 * C * kRows + 2 * half);
        _mm256_store_si256(to, _mm256_unpacklo_epi64(low0, low1));
        _mm256_store_si256(to + 2, _mm256_unpackhi_epi64(low0, low1));
        _mm256_store_si256(to + 4, _mm256_unpacklo_epi64(high0, high1));
        if (C == 4) _mm256_store_si256(to + 6, _mm256_unpackhi_epi64(high0, high1));
      }
    }
  }
}

// The sums of one output pixel for sixteen rows: [channel][row].
template <int C, bool fine>
NDD_AVX2 void mix_pixel(const int16_t* tile, const int32_t* weights, const int32_t* rest, int64_t pairs, __m256i half, int32_t* sums) {
  __m256i sum[2 * C], more[2 * C];
  for (int i = 0; i < 2 * C; ++i) sum[i] = fine ? _mm256_setzero_si256() : half, more[i] = half;
  for (int64_t k = 0; k < pairs; ++k, tile += 2 * C * kRows) {
    const __m256i w = _mm256_set1_epi32(weights[k]), v = _mm256_set1_epi32(fine ? rest[k] : 0);
    for (int i = 0; i < 2 * C; ++i) {
      const __m256i values = _mm256_load_si256(reinterpret_cast<const __m256i*>(tile) + i);
      sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(values, w));
      if (fine) more[i] = _mm256_add_epi32(more[i], _mm256_madd_epi16(values, v));
    }
  }
  for (int i = 0; i < 2 * C; ++i)
    _mm256_store_si256(reinterpret_cast<__m256i*>(sums) + i, fine ? _mm256_add_epi32(_mm256_slli_epi32(sum[i], kFineBits), more[i]) : sum[i]);
}

// Rounds sixteen elements of sixteen rows to bytes, and transposes them back: the first `count` of them are stored.
NDD_AVX2 void turn_out(const int32_t* sums, __m128i shift, int64_t count, uint8_t* out, int64_t out_row) {
  const __m256i turn = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  for (int64_t half = 0; half < kRows; half += 8, out += 8 * out_row) {
    __m256i a[4];
    for (int64_t g = 0; g < 4; ++g) {
      const auto level = [&](int64_t e) NDD_ALWAYS_INLINE __attribute__((target("avx2"))) {
        return _mm256_sra_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(sums + (4 * g + e) * kRows + half)), shift);
      };
      // Packing saturates to 16 bits and then to bytes: the clamp of rounded_level().
      const __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(level(0), level(1)), _mm256_packs_epi32(level(2), level(3)));
      a[g] = _mm256_shuffle_epi8(bytes, turn);  // four elements of each row
    }
    const __m256i low0 = _mm256_unpacklo_epi32(a[0], a[1]), low1 = _mm256_unpacklo_epi32(a[2], a[3]);
    const __m256i high0 = _mm256_unpackhi_epi32(a[0], a[1]), high1 = _mm256_unpackhi_epi32(a[2], a[3]);
    const __m256i rows[4] = {_mm256_unpacklo_epi64(low0, low1), _mm256_unpackhi_epi64(low0, low1), _mm256_unpacklo_epi64(high0, high1),
                             _mm256_unpackhi_epi64(high0, high1)};
    for (int64_t r = 0; r < 8; ++r) {
      const __m128i row = r < 4 ? _mm256_castsi256_si128(rows[r]) : _mm256_extracti128_si256(rows[r - 4], 1);
      if (count >= 16) _mm_storeu_si128(reinterpret_cast<__m128i*>(out + r * out_row), row);
      else std::memcpy(out + r * out_row, &row, count);
    }
  }
}

// The outputs [begin, end) of sixteen rows whose source pixels from `first` on, which is even, are transposed in `tile`. `out` is pixel 0 of the first row.
template <int C, bool fine>
NDD_AVX2 void mix_columns(const int16_t* tile, int64_t first, const AxisTable& h, const PairWeights& table, int64_t begin, int64_t end, uint8_t* out,
                          int64_t out_row) {
  const __m128i shift = _mm_cvtsi32_si128(h.precision);
  const __m256i half = _mm256_set1_epi32(h.precision > 0 ? 1 << (h.precision - 1) : 0);  // rounding: half a level
  alignas(32) int32_t sums[kBlock * C * kRows];
  for (int64_t x = begin; x < end; x += kBlock) {
    const int64_t count = std::min(kBlock, end - x);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t start = h.start[x + i], parity = start & 1;
      const int32_t* const weights = table.pairs.data() + (x + i) * table.stride;
      const int32_t* const rest = fine ? table.fine.data() + (x + i) * table.stride : weights;
      mix_pixel<C, fine>(tile + (start - parity - first) * C * kRows, weights, rest, (h.count[x + i] + parity + 1) / 2, half, sums + i * C * kRows);
    }
    for (int64_t e = 0; e < count * C; e += 16) turn_out(sums + e * kRows, shift, count * C - e, out + x * C + e, out_row);
  }
}

// As mix_pixel, with all rows in a register, rounded.
template <int C, bool fine>
NDD_ALWAYS_INLINE NDD_VNNI void mix_pixel_512(const int16_t* tile, const int32_t* weights, const int32_t* rest, int64_t pairs, __m512i half,
                                              __m128i shift, __m512i* levels) {
  __m512i sum[C], more[C];
  for (int c = 0; c < C; ++c) sum[c] = fine ? _mm512_setzero_si512() : half, more[c] = half;
  const auto add = [&](int64_t k) NDD_ALWAYS_INLINE __attribute__((target("avx512f,avx512bw,avx512vnni"))) {
    const __m512i w = _mm512_set1_epi32(weights[k]), v = _mm512_set1_epi32(rest[k]);
    for (int c = 0; c < C; ++c) {
      const __m512i values = _mm512_load_si512(tile + 2 * (k * C + c) * kRows);
      sum[c] = _mm512_dpwssd_epi32(sum[c], values, w);
      if (fine) more[c] = _mm512_dpwssd_epi32(more[c], values, v);
    }
  };
  int64_t k = 0;
  for (; k + 2 <= pairs; k += 2) {
    add(k);
    add(k + 1);
  }
  if (k < pairs) add(k);
  for (int c = 0; c < C; ++c) levels[c] = _mm512_sra_epi32(fine ? _mm512_add_epi32(_mm512_slli_epi32(sum[c], kFineBits), more[c]) : sum[c], shift);
}

// Stores sixteen elements of sixteen rows; each register holds four: rows 0 to 3 in its first lane, and so on. The first `count` of them are
// stored.
NDD_VNNI void store_turned(const __m512i* levels, int64_t count, uint8_t* out, int64_t out_row) {
  const __m512i low0 = _mm512_unpacklo_epi32(levels[0], levels[1]), low1 = _mm512_unpacklo_epi32(levels[2], levels[3]);
  const __m512i high0 = _mm512_unpackhi_epi32(levels[0], levels[1]), high1 = _mm512_unpackhi_epi32(levels[2], levels[3]);
  const __m512i rows[4] = {_mm512_unpacklo_epi64(low0, low1), _mm512_unpackhi_epi64(low0, low1), _mm512_unpacklo_epi64(high0, high1),
                           _mm512_unpackhi_epi64(high0, high1)};
  const auto store = [=](int64_t r, __m128i row) NDD_ALWAYS_INLINE __attribute__((target("avx2"))) {
    if (count >= 16) _mm_storeu_si128(reinterpret_cast<__m128i*>(out + r * out_row), row);
    else std::memcpy(out + r * out_row, &row, count);  // masks took longer
  };
  for (int64_t r = 0; r < 4; ++r) {
    store(r, _mm512_castsi512_si128(rows[r]));
    store(r + 4, _mm512_extracti32x4_epi32(rows[r], 1));
    store(r + 8, _mm512_extracti32x4_epi32(rows[r], 2));
    store(r + 12, _mm512_extracti32x4_epi32(rows[r], 3));
  }
}

// As mix_columns. All pixels take as many pairs, since the end of a loop whose length varies is mispredicted: sums go on into pixels of weight zero.
template <int C, bool fine>
NDD_VNNI void mix_columns_512(const int16_t* tile, int64_t first, const AxisTable& h, const PairWeights& table, int64_t begin, int64_t end,
                              uint8_t* out, int64_t out_row) {
  const __m128i shift = _mm_cvtsi32_si128(h.precision);
  const __m512i half = _mm512_set1_epi32(h.precision > 0 ? 1 << (h.precision - 1) : 0);
  const __m512i turn = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  const int32_t *const starts = h.start.data(), *const pairs = table.pairs.data(), *const rests = fine ? table.fine.data() : pairs;
  const int64_t stride = table.stride;
  for (int64_t x = begin; x < end; x += kBlock) {
    const int64_t count = std::min(kBlock, end - x) * C;
    __m512i levels[kBlock / 4 * C];
    for (int64_t i = 0; i < kBlock; i += 4) {
      __m512i sums[4 * C];
#pragma GCC unroll 4
      for (int64_t k = 0; k < 4; ++k) {
        const int64_t at = std::min(x + i + k, end - 1);
        mix_pixel_512<C, fine>(tile + ((starts[at] & ~1) - first) * C * kRows, pairs + at * stride, rests + at * stride, stride, half, shift,
                               sums + k * C);
      }
      // Packing saturates to 16 bits and then to bytes: the clamp of rounded_level().
      for (int g = 0; g < C; ++g) {
        const __m512i words = _mm512_packs_epi32(sums[4 * g], sums[4 * g + 1]), more = _mm512_packs_epi32(sums[4 * g + 2], sums[4 * g + 3]);
        levels[i / 4 * C + g] = _mm512_shuffle_epi8(_mm512_packus_epi16(words, more), turn);
      }
    }
    for (int64_t e = 0; e < count; e += 16) store_turned(levels + e / 4, count - e, out + x * C + e, out_row);
  }
}

// Transposes the source pixels [first, last) of sixteen rows that begin at `in`; `most` more may be read.
inline int16_t* turned_rows(const uint8_t* in, int64_t in_row, int64_t channels, int64_t first, int64_t last, const uint8_t* end, int64_t most) {
  int16_t* const tile = scratch<int16_t>(0, ((last - first + most + 3) / 4 + 1) * 4 * channels * kRows);
  (channels == 3 ? turn_in<3> : turn_in<4>)(in + first * channels, in_row, last - first, end, tile);
  return tile;
}

inline void mix_turned(const int16_t* tile, int64_t channels, int64_t first, const AxisTable& h, const PairWeights& table, int64_t begin, int64_t end,
                       uint8_t* out, int64_t out_row) {
  auto mix = channels == 3 ? (h.fine() ? mix_columns<3, true> : mix_columns<3, false>) : (h.fine() ? mix_columns<4, true> : mix_columns<4, false>);
  if (has_vnni())
    mix = channels == 3 ? (h.fine() ? mix_columns_512<3, true> : mix_columns_512<3, false>)
                        : (h.fine() ? mix_columns_512<4, true> : mix_columns_512<4, false>);
  mix(tile, first, h, table, begin, end, out, out_row);
}

inline void along_width(const Rows& p, const AxisTable& h, int64_t channels) {
  static thread_local PairWeights table;  // cached, like the table of the axis
  if (!same_axis(h.axis, table.axis)) table.build(h);
  for (int64_t begin = 0; begin < h.axis.out;) {
    const ColumnStrip s = next_strip(h, begin, kStrip, 0);
    const int64_t first = s.first & ~int64_t{1};
    for (int64_t next = 0; next < p.rows; next += kRows) {
      const int64_t r = std::min(next, p.rows - kRows);  // the last group overlaps the one before
      const int16_t* const tile = turned_rows(p.in + r * p.in_row, p.in_row, channels, first, s.last, p.end, 2 * table.stride);
      mix_turned(tile, channels, first, h, table, s.begin, s.end, p.out + r * p.out_row, p.out_row);
    }
    begin = s.end;
  }
}

#undef NDD_AVX2

}  // namespace row_lanes

#endif

}  // namespace ndd
