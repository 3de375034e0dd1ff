// SPDX-License-Identifier: Apache-2.0
// The integer arithmetic of torch and Pillow, whose results are reproduced exactly. AVX2 multiplies pairs of 16-bit numbers; the portable loops give
// the same sums, since integer addition is associative.
#include "ndd/resample/two_passes.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "ndd/resample/row_lanes.h"
#include "ndd/simd.h"
#include "ndd/vnni.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ndd {
namespace {

// The reference that all vector paths agree with; also used where their loads would pass the end of the memory.
void one_pixel(const Rows& p, const AxisTable& h, int64_t channels, int64_t x, int64_t r) {
  const int64_t at = x * h.stride;
  const uint8_t* from = p.in + r * p.in_row + h.start[x] * channels;
  for (int64_t c = 0; c < channels; ++c) {
    int32_t sum = h.precision > 0 ? 1 << (h.precision - 1) : 0;
    for (int32_t k = 0; k < h.count[x]; ++k) sum += h.whole_weight(at + k) * from[k * channels + c];
    p.out[r * p.out_row + x * channels + c] = rounded_level(sum, h.precision);
  }
}

#if defined(__x86_64__)

// Sums of pairs of products. Pillow's weights have a second part of kFineBits.
template <bool fine>
__attribute__((target("avx2"))) NDD_ALWAYS_INLINE inline __m256i pair_products(__m256i values, __m256i weights, __m256i rest) {
  const __m256i sums = _mm256_madd_epi16(values, weights);
  return fine ? _mm256_add_epi32(_mm256_slli_epi32(sums, kFineBits), _mm256_madd_epi16(values, rest)) : sums;
}

__attribute__((target("avx2"))) NDD_ALWAYS_INLINE inline __m256i pair_of(const int16_t* weights) {
  int32_t pair;
  std::memcpy(&pair, weights, 4);
  return _mm256_set1_epi32(pair);
}

// Two rows side by side in one register.
__attribute__((target("avx2"))) inline __m256i load_rows(const uint8_t* upper, const uint8_t* lower) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(upper))),
                                 _mm_loadu_si128(reinterpret_cast<const __m128i*>(lower)), 1);
}

// Processes four neighbors of three or four channels at a time, for four rows, which share the weights: pairs of bytes are widened to pairs of 16-bit
// numbers. A three-byte pixel is stored as four bytes, the last of which is overwritten by the next pixel.
template <int C, bool fine>
__attribute__((target("avx2"))) void color_rows(const Rows& p, const AxisTable& h) {
  // x zeroes a byte: together with the byte before it, it forms a 16-bit number.
  constexpr char x = -1;
  // By channels, three or four: where the bytes of neighbors 0 and 1 go, and those of 2 and 3. Each pair of one channel lies side by side, for
  // madd.
  alignas(16) static constexpr char kFirst[2][16] = {{0, x, 3, x, 1, x, 4, x, 2, x, 5, x, x, x, x, x},
                                                     {0, x, 4, x, 1, x, 5, x, 2, x, 6, x, 3, x, 7, x}};
  alignas(16) static constexpr char kSecond[2][16] = {{6, x, 9, x, 7, x, 10, x, 8, x, 11, x, x, x, x, x},
                                                      {8, x, 12, x, 9, x, 13, x, 10, x, 14, x, 11, x, 15, x}};
  const __m256i first = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(kFirst[C - 3])));
  const __m256i second = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(kSecond[C - 3])));
  // Rounding: half a level is added before the shift.
  const __m128i shift = _mm_cvtsi32_si128(h.precision);
  const __m256i half = _mm256_set1_epi32(h.precision > 0 ? 1 << (h.precision - 1) : 0);
  const int64_t width = h.axis.out, in_row = p.in_row, out_row = p.out_row, stride = h.stride;
  const int32_t* const starts = h.start.data();
  const int32_t* const counts = h.count.data();
  const uint8_t* const end = p.end;
  for (int64_t next = 0; next < p.rows; next += 4) {
    const int64_t r = std::min(next, p.rows - 4);  // the last group overlaps the one before
    const uint8_t* const from = p.in + r * in_row;
    uint8_t* to = p.out + r * out_row;
    for (int64_t x = 0; x < width; ++x, to += C) {
      const int16_t *weights = h.weight16.data() + x * stride, *rest = fine ? h.fine16.data() + x * stride : weights;
      // Weights after the last one are zero, so the taps may be rounded up to whole steps.
      const int32_t steps = (counts[x] + 3) / 4;
      const uint8_t* at = from + int64_t{starts[x]} * C;
      // Near the end of the memory a 16-byte load would read outside it.
      if (at + 3 * in_row + (steps - 1) * 4 * C + 16 > end) {
        for (int64_t k = 0; k < 4; ++k) one_pixel(p, h, C, x, r + k);
        continue;
      }
      __m256i upper = half, lower = half;
      for (int32_t s = 0; s < steps; ++s, at += 4 * C) {
        const __m256i a = pair_of(weights + 4 * s), b = pair_of(weights + 4 * s + 2);
        const __m256i c = fine ? pair_of(rest + 4 * s) : a, d = fine ? pair_of(rest + 4 * s + 2) : b;
        const __m256i over = load_rows(at, at + in_row), under = load_rows(at + 2 * in_row, at + 3 * in_row);
        upper = _mm256_add_epi32(upper, _mm256_add_epi32(pair_products<fine>(_mm256_shuffle_epi8(over, first), a, c),
                                                         pair_products<fine>(_mm256_shuffle_epi8(over, second), b, d)));
        lower = _mm256_add_epi32(lower, _mm256_add_epi32(pair_products<fine>(_mm256_shuffle_epi8(under, first), a, c),
                                                         pair_products<fine>(_mm256_shuffle_epi8(under, second), b, d)));
      }
      // Packing saturates to 16 bits and then to bytes: the clamp of rounded_level().
      const __m256i words = _mm256_packs_epi32(_mm256_sra_epi32(upper, shift), _mm256_sra_epi32(lower, shift));
      const __m256i packed = _mm256_packus_epi16(words, words);
      const __m128i even = _mm256_castsi256_si128(packed), odd = _mm256_extracti128_si256(packed, 1);
      const auto store = [&](int64_t row, int32_t pixel) NDD_ALWAYS_INLINE {
        // The last three-byte pixel of a row must not be stored as four bytes: the next row, or other memory, follows.
        if (C == 4 || x + 1 < width) std::memcpy(to + row, &pixel, 4);
        else std::memcpy(to + row, &pixel, C);
      };
      store(0, _mm_cvtsi128_si32(even));
      store(out_row, _mm_cvtsi128_si32(odd));
      store(2 * out_row, _mm_extract_epi32(even, 1));
      store(3 * out_row, _mm_extract_epi32(odd, 1));
    }
  }
}

// If the neighbors (at most eight) of each of four single-channel pixels lie within 16 bytes, which they do unless an image shrinks a lot: the
// shuffles that collect the neighbors of one pixel, or up to four each of two pixels, as 16-bit numbers, and their weights.
struct PixelGroups {
  struct Group {
    alignas(16) int8_t order[4][16];
    alignas(16) int16_t weights[4][8], rest[4][8];
    int32_t start;
  };
  Axis axis{};
  std::vector<Group> groups;
  int32_t taps = 0;  // per pixel, 4 or 8; 0 if there are no groups

  void build(const AxisTable& h) {
    axis = h.axis;
    const int64_t count = h.axis.out / 4;
    taps = h.most <= 4 ? 4 : h.most <= 8 ? 8 : 0;
    groups.resize(taps > 0 ? count : 0);
    for (int64_t g = 0; g < static_cast<int64_t>(groups.size()); ++g) {
      Group& group = groups[g];
      int32_t low = h.start[4 * g], high = low;
      for (int64_t x = 4 * g; x < 4 * g + 4; ++x) {
        low = std::min(low, h.start[x]);
        high = std::max(high, h.start[x] + h.count[x]);
      }
      // One group that is too wide rules out the method for the whole axis.
      if (high - low > 16) {
        groups.clear();
        taps = 0;
        return;
      }
      group.start = low;
      for (int32_t k = 0; k < 4 * taps; ++k) {
        const int64_t x = 4 * g + k / taps;
        const int32_t tap = k % taps;
        const bool used = tap < h.count[x];
        group.order[k / 8][k % 8 * 2] = static_cast<int8_t>(used ? h.start[x] - low + tap : -1);
        group.order[k / 8][k % 8 * 2 + 1] = -1;
        group.weights[k / 8][k % 8] = used ? h.weight16[x * h.stride + tap] : int16_t{0};
        group.rest[k / 8][k % 8] = used && h.fine() ? h.fine16[x * h.stride + tap] : int16_t{0};
      }
    }
  }
};

// Cached per thread, like the table.
const PixelGroups& pixel_groups(const AxisTable& h) {
  static thread_local PixelGroups groups;
  // Images of a batch often have one size.
  if (!same_axis(h.axis, groups.axis)) groups.build(h);
  return groups;
}

// Adds pairs of neighbors, in both halves.
template <bool fine>
__attribute__((target("avx2"))) inline __m256i pair_sums(__m256i bytes, const PixelGroups::Group& group, int k) {
  const __m256i order = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(group.order[k])));
  const __m256i weights = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(group.weights[k])));
  const __m256i rest = fine ? _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(group.rest[k]))) : weights;
  return pair_products<fine>(_mm256_shuffle_epi8(bytes, order), weights, rest);
}

// Four pixels of two rows at a time; returns how many pixels of each row are finished.
template <int taps, bool fine>
__attribute__((target("avx2"))) int64_t grouped_rows(const PixelGroups& table, const AxisTable& h, const uint8_t* upper, const uint8_t* lower,
                                                     uint8_t* to_upper, uint8_t* to_lower, const uint8_t* end) {
  const __m128i shift = _mm_cvtsi32_si128(h.precision);
  const __m256i half = _mm256_set1_epi32(h.precision > 0 ? 1 << (h.precision - 1) : 0);
  const auto count = static_cast<int64_t>(table.groups.size());
  int64_t g = 0;
  for (; g < count; ++g) {
    const PixelGroups::Group& group = table.groups[g];
    // The caller computes the remaining pixels one by one.
    if (lower + group.start + 16 > end) break;
    const __m256i bytes = load_rows(upper + group.start, lower + group.start);
    // Horizontal additions join the pairs of a pixel.
    __m256i sums = _mm256_hadd_epi32(pair_sums<fine>(bytes, group, 0), pair_sums<fine>(bytes, group, 1));
    if (taps == 8) sums = _mm256_hadd_epi32(sums, _mm256_hadd_epi32(pair_sums<fine>(bytes, group, 2), pair_sums<fine>(bytes, group, 3)));
    const __m256i levels = _mm256_sra_epi32(_mm256_add_epi32(sums, half), shift), words = _mm256_packs_epi32(levels, levels);
    const __m256i packed = _mm256_packus_epi16(words, words);
    const int32_t above = _mm_cvtsi128_si32(_mm256_castsi256_si128(packed)), below = _mm_cvtsi128_si32(_mm256_extracti128_si256(packed, 1));
    std::memcpy(to_upper + 4 * g, &above, 4);
    std::memcpy(to_lower + 4 * g, &below, 4);
  }
  return 4 * g;
}

// Eight neighbors of a single channel at a time, for four rows.
template <bool fine>
__attribute__((target("avx2"))) void gray_rows(const Rows& p, const AxisTable& h) {
  const PixelGroups& table = pixel_groups(h);
  if (table.taps > 0) {
    for (int64_t r = 0; r < p.rows; r += 2) {
      // With an odd number of rows the last one is computed twice.
      const int64_t other = std::min(r + 1, p.rows - 1);
      const auto rows = table.taps == 4 ? grouped_rows<4, fine> : grouped_rows<8, fine>;
      const int64_t done = rows(table, h, p.in + r * p.in_row, p.in + other * p.in_row, p.out + r * p.out_row, p.out + other * p.out_row, p.end);
      for (int64_t x = done; x < h.axis.out; ++x) {
        one_pixel(p, h, 1, x, r);
        one_pixel(p, h, 1, x, other);
      }
    }
    return;
  }
  const __m128i shift = _mm_cvtsi32_si128(h.precision), half = _mm_set1_epi32(h.precision > 0 ? 1 << (h.precision - 1) : 0);
  for (int64_t r = 0; r < p.rows; r += 4) {
    const int64_t count = std::min<int64_t>(4, p.rows - r);
    const uint8_t* from[4];
    // Rows beyond the last one repeat it; their results are not stored.
    for (int64_t k = 0; k < 4; ++k) from[k] = p.in + (r + std::min(k, count - 1)) * p.in_row;
    uint8_t* const to = p.out + r * p.out_row;
    for (int64_t x = 0; x < h.axis.out; ++x) {
      const int32_t steps = (h.count[x] + 7) / 8;
      const int64_t at = h.start[x];
      if (from[3] + at + steps * 8 > p.end) {
        for (int64_t k = 0; k < count; ++k) one_pixel(p, h, 1, x, r + k);
        continue;
      }
      const int16_t *weights = h.weight16.data() + x * h.stride, *rest = fine ? h.fine16.data() + x * h.stride : weights;
      __m128i sum[4] = {};
      for (int32_t s = 0; s < steps; ++s) {
        const __m128i w = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights + 8 * s));
        const __m128i more = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rest + 8 * s));
        for (int k = 0; k < 4; ++k) {
          const __m128i values = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from[k] + at + 8 * s)));
          __m128i products = _mm_madd_epi16(values, w);
          if (fine) products = _mm_add_epi32(_mm_slli_epi32(products, kFineBits), _mm_madd_epi16(values, more));
          sum[k] = _mm_add_epi32(sum[k], products);
        }
      }
      const __m128i all = _mm_hadd_epi32(_mm_hadd_epi32(sum[0], sum[1]), _mm_hadd_epi32(sum[2], sum[3]));
      const __m128i level = _mm_sra_epi32(_mm_add_epi32(all, half), shift), words = _mm_packs_epi32(level, level);
      const auto packed = static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_packus_epi16(words, words)));
      for (int64_t k = 0; k < count; ++k) to[k * p.out_row + x] = static_cast<uint8_t>(packed >> (8 * k));
    }
  }
}

// Mixes rows, 32 bytes at a time, two rows per step.
template <bool fine>
__attribute__((target("avx2"))) int64_t mix_rows_wide(const uint8_t* in, int64_t in_row, const int16_t* w, const int16_t* fine_w, int32_t count,
                                                      int32_t precision, int64_t n, uint8_t* out) {
  const __m128i shift = _mm_cvtsi32_si128(precision);
  const __m256i half = _mm256_set1_epi32(precision > 0 ? 1 << (precision - 1) : 0), zero = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m256i sum[4] = {half, half, half, half};
    for (int32_t k = 0; k < count; k += 2) {
      const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + k * in_row + i));
      const __m256i b = k + 1 < count ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + (k + 1) * in_row + i)) : zero;
      const __m256i weights = pair_of(w + k), rest = fine ? pair_of(fine_w + k) : weights;  // the weight after the last one is 0
      // Bytes of two rows side by side, widened to 16 bits, so one multiply-add serves both.
      const __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
      sum[0] = _mm256_add_epi32(sum[0], pair_products<fine>(_mm256_unpacklo_epi8(low, zero), weights, rest));
      sum[1] = _mm256_add_epi32(sum[1], pair_products<fine>(_mm256_unpackhi_epi8(low, zero), weights, rest));
      sum[2] = _mm256_add_epi32(sum[2], pair_products<fine>(_mm256_unpacklo_epi8(high, zero), weights, rest));
      sum[3] = _mm256_add_epi32(sum[3], pair_products<fine>(_mm256_unpackhi_epi8(high, zero), weights, rest));
    }
    for (__m256i& s : sum) s = _mm256_sra_epi32(s, shift);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        _mm256_packus_epi16(_mm256_packs_epi32(sum[0], sum[1]), _mm256_packs_epi32(sum[2], sum[3])));
  }
  return i;
}

// The weights of an output row as sums of signed bytes, times 1, 256 and 65,536; one multiply-add takes four bytes.
// vpdpbusd multiplies unsigned bytes by signed ones, so a weight of up to 24 bits is written in the base 256 with digits from -128 to 127, and
// each digit has a sum of its own.
struct ByteWeights {
  std::vector<int32_t> quads[3];
  int parts = 2;  // 16-bit weights above 32,639 need three bytes, and Pillow's do

  NDD_VNNI void split(const AxisTable& v, int64_t y) {
    parts = 2;
    for (std::vector<int32_t>& part : quads) part.resize(v.stride / 4);
    for (int64_t k = 0; k < v.stride; k += 8) {
      const int64_t at = y * v.stride + k;
      const auto load = [&](const std::vector<int16_t>& weights) NDD_ALWAYS_INLINE
          __attribute__((target("avx2"))) { return _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weights.data() + at))); };
      __m256i rest = load(v.weight16);
      if (v.fine()) rest = _mm256_add_epi32(_mm256_slli_epi32(rest, kFineBits), load(v.fine16));
      for (std::vector<int32_t>& part : quads) {
        if (&part == &quads[2] && _mm256_test_epi32_mask(rest, rest) != 0) parts = 3;
        // The lowest digit, with its sign; what is left is a multiple of 256.
        const __m256i low = _mm256_srai_epi32(_mm256_slli_epi32(rest, 24), 24);
        _mm_storel_epi64(reinterpret_cast<__m128i*>(part.data() + k / 4), _mm256_cvtepi32_epi8(low));
        rest = _mm256_srai_epi32(_mm256_sub_epi32(rest, low), 8);
      }
    }
  }
};

// Mixes rows, 64 bytes at a time, four rows per step: a third of the instructions of mix_rows_wide and four fifths of its time, since shuffles and
// multiply-adds share ports. n >= 64; the last block overlaps its predecessor.
template <int kParts>
NDD_VNNI void mix_rows_of_bytes(const uint8_t* in, int64_t in_row, const ByteWeights& weights, int64_t count, int32_t precision, int64_t n,
                                uint8_t* out) {
  const __m128i shift = _mm_cvtsi32_si128(precision);
  const __m512i half = _mm512_set1_epi32(precision > 0 ? 1 << (precision - 1) : 0);
  const int64_t quads = (count + 3) / 4;
  const int32_t* const parts[3] = {weights.quads[0].data(), weights.quads[1].data(), weights.quads[2].data()};
  // Rows beyond the end, whose weights are zero, repeat the last row.
  const int64_t last = count - 4 * quads + 3, second = std::min<int64_t>(1, last) * in_row, third = std::min<int64_t>(2, last) * in_row,
                fourth = last * in_row;
  for (int64_t next = 0; next < n; next += 64) {
    const int64_t i = std::min(next, n - 64);
    __m512i sums[kParts][4];
    for (int k = 0; k < 4; ++k) {
      sums[0][k] = half;
      for (int p = 1; p < kParts; ++p) sums[p][k] = _mm512_setzero_si512();
    }
    const uint8_t* row = in + i;
    const auto add = [&](int64_t q, int64_t r1, int64_t r2, int64_t r3) NDD_ALWAYS_INLINE __attribute__((target("avx512f,avx512bw,avx512vnni"))) {
      const __m512i a = _mm512_loadu_si512(row), b = _mm512_loadu_si512(row + r1), c = _mm512_loadu_si512(row + r2), d = _mm512_loadu_si512(row + r3);
      const __m512i upper[2] = {_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b)};
      const __m512i lower[2] = {_mm512_unpacklo_epi8(c, d), _mm512_unpackhi_epi8(c, d)};
      const __m512i bytes[4] = {_mm512_unpacklo_epi16(upper[0], lower[0]), _mm512_unpackhi_epi16(upper[0], lower[0]),
                                _mm512_unpacklo_epi16(upper[1], lower[1]), _mm512_unpackhi_epi16(upper[1], lower[1])};
      for (int p = 0; p < kParts; ++p) {
        const __m512i weight = _mm512_set1_epi32(parts[p][q]);
        for (int k = 0; k < 4; ++k) sums[p][k] = _mm512_dpbusd_epi32(sums[p][k], bytes[k], weight);
      }
    };
    for (int64_t q = 0; q + 1 < quads; ++q, row += 4 * in_row) add(q, in_row, 2 * in_row, 3 * in_row);
    add(quads - 1, second, third, fourth);
    for (int k = 0; k < 4; ++k) {
      for (int p = 1; p < kParts; ++p) sums[0][k] = _mm512_add_epi32(sums[0][k], _mm512_slli_epi32(sums[p][k], 8 * p));
      sums[0][k] = _mm512_sra_epi32(sums[0][k], shift);
    }
    _mm512_storeu_si512(out + i, _mm512_packus_epi16(_mm512_packs_epi32(sums[0][0], sums[0][1]), _mm512_packs_epi32(sums[0][2], sums[0][3])));
  }
}

#endif

void along_width(const Rows& p, const AxisTable& h, int64_t channels) {
#if defined(__x86_64__)
  if (cpu_isa() != Isa::base) {
    if (channels == 1) return h.fine() ? gray_rows<true>(p, h) : gray_rows<false>(p, h);
    if ((channels == 3 || channels == 4) && row_lanes::pays(p.rows, h)) return row_lanes::along_width(p, h, channels);
    if (channels == 3 && p.rows >= 4) return h.fine() ? color_rows<3, true>(p, h) : color_rows<3, false>(p, h);
    if (channels == 4 && p.rows >= 4) return h.fine() ? color_rows<4, true>(p, h) : color_rows<4, false>(p, h);
  }
#endif
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t x = 0; x < h.axis.out; ++x) one_pixel(p, h, channels, x, r);
}

}  // namespace

void mix_height(const uint8_t* in, int64_t first, int64_t in_row, int64_t row, const AxisTable& v, int64_t begin, int64_t end, uint8_t* out,
                int64_t out_row) {
  for (int64_t y = begin; y < end; ++y, out += out_row) {
    const int64_t at = y * v.stride;
    const uint8_t* from = in + (v.start[y] - first) * in_row;
    int64_t i = 0;
#if defined(__x86_64__)
    const int16_t* const w = v.weight16.data() + at;
    if (row >= 64 && has_vnni()) {
      static thread_local ByteWeights bytes;
      bytes.split(v, y);
      (bytes.parts == 2 ? mix_rows_of_bytes<2> : mix_rows_of_bytes<3>)(from, in_row, bytes, v.count[y], v.precision, row, out);
      i = row;
    } else if (cpu_isa() != Isa::base) {
      i = v.fine() ? mix_rows_wide<true>(from, in_row, w, v.fine16.data() + at, v.count[y], v.precision, row, out)
                   : mix_rows_wide<false>(from, in_row, w, nullptr, v.count[y], v.precision, row, out);
    }
#endif
    for (; i < row; ++i) {
      int32_t sum = v.precision > 0 ? 1 << (v.precision - 1) : 0;
      for (int32_t k = 0; k < v.count[y]; ++k) sum += v.whole_weight(at + k) * from[k * in_row + i];
      out[i] = rounded_level(sum, v.precision);
    }
  }
}

namespace {

// One tap per element: its weight is 1.
bool copies(const AxisTable& table) { return table.most == 1; }

// Between the passes, rows are as long as in the source, but only the columns that the second pass reads are computed.
void height_then_width(const ResampleJob& job, const AxisTable& v, const AxisTable& h) {
  const int64_t channels = job.channels, in_row = h.axis.in * channels, row = h.axis.out * channels, plane = v.axis.in * in_row;
  const AxisSpan columns(h);
  const int64_t skipped = columns.first * channels, bytes = v.axis.out * in_row;
  uint8_t* const mixed = scratch<uint8_t>(4, bytes);
  const auto* in = static_cast<const uint8_t*>(job.in);
  auto* out = static_cast<uint8_t*>(job.out);
  for (int64_t o = 0; o < job.outer; ++o, in += plane, out += v.axis.out * row) {
    mix_height(in + skipped, 0, in_row, (columns.last - columns.first) * channels, v, 0, v.axis.out, mixed + skipped, in_row);
    along_width({mixed, in_row, v.axis.out, out, row, mixed + bytes}, h, channels);
  }
}

}  // namespace

void resample_in_two_passes(const ResampleJob& job, const AxisTable& v, const AxisTable& h) {
  const int64_t channels = job.channels, in_row = h.axis.in * channels, row = h.axis.out * channels, plane = v.axis.in * in_row;
  const auto* in = static_cast<const uint8_t*>(job.in);
  auto* out = static_cast<uint8_t*>(job.out);
  const uint8_t* const end = in + job.outer * plane;
  // Only these rows need the first pass; a crop or an extreme reduction may read few of them.
  const AxisSpan rows(v);
  // If the width does not change, the first pass is skipped.
  const bool whole_rows = copies(h) && h.axis.out == h.axis.in && h.start[0] == 0 && h.start[h.axis.out - 1] == h.axis.in - 1;
  if (!whole_rows && height_first(v, h)) return height_then_width(job, v, h);
  uint8_t* const mixed = whole_rows ? nullptr : scratch<uint8_t>(4, (rows.last - rows.first) * row);
  for (int64_t o = 0; o < job.outer; ++o, in += plane, out += v.axis.out * row) {
    if (whole_rows) {
      mix_height(in, 0, row, row, v, 0, v.axis.out, out, row);
      continue;
    }
    along_width({in + rows.first * in_row, in_row, rows.last - rows.first, mixed, row, end}, h, channels);
    // A crop, or nearest neighbors: rows are copied.
    if (copies(v)) {
      for (int64_t y = 0; y < v.axis.out; ++y) std::memcpy(out + y * row, mixed + (v.start[y] - rows.first) * row, row);
    } else {
      mix_height(mixed, rows.first, row, row, v, 0, v.axis.out, out, row);
    }
  }
}

}  // namespace ndd
