// SPDX-License-Identifier: Apache-2.0
// uint8 to uint8 in 16-bit fixed point. Samples are taken as v - 128 (weights sum to 1, so 128 is added back at the end), weights as
// int16 * 2^-14. pmulhrsw(a, w) = round(a * w / 2^15) leaves 7 fractional bits after the vertical pass and 6 after the horizontal one.
// A tap adds a rounding error of at most 2^-8 in the first pass and 2^-7 in the second, 0.75 for kMaxTaps of both: the result is
// within 1 of the exact one, rounded.
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "ndd/resample/cpu.h"
#include "ndd/resample/table.h"

#define NDD_AVX2 __attribute__((target("avx2"))) inline
#define NDD_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) inline

namespace ndd::u8 {

constexpr int32_t kMaxTaps = 64;

// Rounds off 6 fractional bits and saturates; flipping the top bit adds the 128 back.
NDD_AVX2 __m128i to_u8(__m256i a) {
  a = _mm256_srai_epi16(_mm256_adds_epi16(a, _mm256_set1_epi16(32)), 6);
  // packs works within 128-bit lanes; the permutation restores the order.
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi16(a, a), 0xD8);
  return _mm_xor_si128(_mm256_castsi256_si128(packed), _mm_set1_epi8(-128));
}
NDD_AVX512 __m256i to_u8(__m512i a) {
  a = _mm512_srai_epi16(_mm512_adds_epi16(a, _mm512_set1_epi16(32)), 6);
  return _mm256_xor_si256(_mm512_maskz_cvtsepi16_epi8(~0u, a), _mm256_set1_epi8(-128));
}

// Transposes sixteen elements of 16 (or 2 x 16) rows to rows of 16 elements: four perfect shuffles.
NDD_AVX2 void turn_bytes(__m256i* a) {
  __m256i b[16];
  for (int stage = 0; stage < 2; ++stage) {
    for (int i = 0; i < 8; ++i) b[2 * i] = _mm256_unpacklo_epi8(a[i], a[i + 8]), b[2 * i + 1] = _mm256_unpackhi_epi8(a[i], a[i + 8]);
    for (int i = 0; i < 8; ++i) a[2 * i] = _mm256_unpacklo_epi8(b[i], b[i + 8]), a[2 * i + 1] = _mm256_unpackhi_epi8(b[i], b[i + 8]);
  }
}

// The types of both variants: int16 between the passes, bytes after the second.
struct Base {
  using Mid = int16_t;
  using Tile = uint8_t;
  static const uint8_t* row(const void* in, int64_t offset) { return static_cast<const uint8_t*>(in) + offset; }
};

// kRows values of int16 fill one register: an element of all rows of a tile.
struct Avx2 : Base {
  static constexpr int64_t kRows = 16, kStrip = 1536;
  int64_t least_row = 32;

  // Interleaving with zeros puts v into the upper byte, as v * 2^8; times w * 2^14, shifted right by 15, this is v * w with 7 fractional bits.
  NDD_AVX2 static void mix32(const uint8_t* in, int64_t stride, const uint32_t* w, int32_t taps, int16_t* out) {
    __m256i low = _mm256_setzero_si256(), high = low;
    const __m256i zero = low, flip = _mm256_set1_epi8(-128);
    for (int32_t k = 0; k < taps; ++k, in += stride) {
      const __m256i v = _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in)), flip);
      const __m256i weight = _mm256_set1_epi32(static_cast<int>(w[k]));
      low = _mm256_add_epi16(low, _mm256_mulhrs_epi16(_mm256_unpacklo_epi8(zero, v), weight));
      high = _mm256_add_epi16(high, _mm256_mulhrs_epi16(_mm256_unpackhi_epi8(zero, v), weight));
    }
    // Unpacking split each lane into low and high elements: put them back in order.
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 16), _mm256_permute2x128_si256(low, high, 0x31));
  }

  // n >= 32; the last block overlaps the one before.
  NDD_AVX2 void mix_rows(const void* in, int64_t offset, int64_t stride, const AxisTable& v, int64_t y, int16_t* out, int64_t n) const {
    const uint8_t* src = row(in, offset);
    const uint32_t* w = v.weights14(y);
    const int32_t taps = v.count[y];
    for (int64_t j = 0; j < n; j += 32) {
      const int64_t at = std::min(j, n - 32);
      mix32(src + at, stride, w, taps, out + at);
    }
  }

  // Eight elements of 16 rows at a time: lane 0 holds rows 0 to 7, lane 1 rows 8 to 15.
  NDD_AVX2 void turn_in(const int16_t* in, int64_t stride, int64_t n, int16_t* out) const {
    for (int64_t e = 0; e < n; e += 8) {
      __m256i a[8], b[8];
      for (int i = 0; i < 8; ++i)
        a[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(in + i * stride + e))),
                                       _mm_load_si128(reinterpret_cast<const __m128i*>(in + (i + 8) * stride + e)), 1);
      // Three perfect shuffles transpose 8 x 8 numbers of 16 bits in each lane.
      for (int i = 0; i < 4; ++i) b[2 * i] = _mm256_unpacklo_epi16(a[i], a[i + 4]), b[2 * i + 1] = _mm256_unpackhi_epi16(a[i], a[i + 4]);
      for (int i = 0; i < 4; ++i) a[2 * i] = _mm256_unpacklo_epi16(b[i], b[i + 4]), a[2 * i + 1] = _mm256_unpackhi_epi16(b[i], b[i + 4]);
      for (int i = 0; i < 4; ++i) b[2 * i] = _mm256_unpacklo_epi16(a[i], a[i + 4]), b[2 * i + 1] = _mm256_unpackhi_epi16(a[i], a[i + 4]);
      for (int i = 0; i < 8; ++i) _mm256_store_si256(reinterpret_cast<__m256i*>(out + (e + i) * kRows), b[i]);
    }
  }

  template <int kN>
  NDD_AVX2 static void mix_elements(const int16_t* in, int64_t stride, const uint32_t* w, int32_t taps, uint8_t* out) {
    __m256i sum[kN];
    for (int c = 0; c < kN; ++c) sum[c] = _mm256_setzero_si256();
    for (int32_t k = 0; k < taps; ++k, in += stride) {
      const __m256i weight = _mm256_set1_epi32(static_cast<int>(w[k]));
      for (int c = 0; c < kN; ++c)
        sum[c] = _mm256_add_epi16(sum[c], _mm256_mulhrs_epi16(_mm256_load_si256(reinterpret_cast<const __m256i*>(in + c * kRows)), weight));
    }
    for (int c = 0; c < kN; ++c) _mm_store_si128(reinterpret_cast<__m128i*>(out + c * kRows), to_u8(sum[c]));
  }

  NDD_AVX2 void mix_columns(const int16_t* tile, const AxisTable& h, const ColumnStrip& s, int64_t channels, uint8_t* out) const {
    for (int64_t x = s.begin; x < s.end; ++x) {
      const int16_t* in = tile + (h.start[x] - s.first) * channels * kRows;
      const uint32_t* w = h.weights14(x);
      const int32_t taps = h.count[x];
      int64_t c = 0;
      for (; c + 3 <= channels; c += 3, in += 3 * kRows, out += 3 * kRows) mix_elements<3>(in, channels * kRows, w, taps, out);
      for (; c < channels; ++c, in += kRows, out += kRows) mix_elements<1>(in, channels * kRows, w, taps, out);
    }
  }

  // Lane 0 takes elements e to e + 15, lane 1 the 16 after them.
  NDD_AVX2 void turn_out(const uint8_t* tile, int64_t n, int64_t rows, void* out, int64_t offset, int64_t stride) const {
    uint8_t* dst = static_cast<uint8_t*>(out) + offset;
    for (int64_t e = 0; e < n; e += 32) {
      __m256i a[16];
      for (int i = 0; i < 16; ++i)
        a[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(tile + (e + i) * kRows))),
                                       _mm_load_si128(reinterpret_cast<const __m128i*>(tile + (e + i + 16) * kRows)), 1);
      turn_bytes(a);
      if (e + 32 <= n) {
        for (int64_t r = 0; r < rows; ++r) _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + r * stride + e), a[r]);
      } else {
        for (int64_t r = 0; r < rows; ++r) std::memcpy(dst + r * stride + e, &a[r], n - e);
      }
    }
  }
};

// The same with twice as many rows per register.
struct Avx512 : Base {
  static constexpr int64_t kRows = 32, kStrip = 1536;
  int64_t least_row = 64;

  NDD_AVX512 static void mix64(const uint8_t* in, int64_t stride, const uint32_t* w, int32_t taps, int16_t* out) {
    __m512i low = _mm512_setzero_si512(), high = low;
    const __m512i zero = low, flip = _mm512_set1_epi8(-128);
    for (int32_t k = 0; k < taps; ++k, in += stride) {
      const __m512i v = _mm512_xor_si512(_mm512_loadu_si512(in), flip), weight = _mm512_set1_epi32(static_cast<int>(w[k]));
      low = _mm512_add_epi16(low, _mm512_mulhrs_epi16(_mm512_unpacklo_epi8(zero, v), weight));
      high = _mm512_add_epi16(high, _mm512_mulhrs_epi16(_mm512_unpackhi_epi8(zero, v), weight));
    }
    // Restores the order of lanes, as in mix32().
    const __m512i even = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), odd = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    _mm512_storeu_si512(out, _mm512_permutex2var_epi64(low, even, high));
    _mm512_storeu_si512(out + 32, _mm512_permutex2var_epi64(low, odd, high));
  }

  NDD_AVX512 void mix_rows(const void* in, int64_t offset, int64_t stride, const AxisTable& v, int64_t y, int16_t* out, int64_t n) const {
    const uint8_t* src = row(in, offset);
    const uint32_t* w = v.weights14(y);
    const int32_t taps = v.count[y];
    for (int64_t j = 0; j < n; j += 64) {
      const int64_t at = std::min(j, n - 64);
      mix64(src + at, stride, w, taps, out + at);
    }
  }

  NDD_AVX512 void turn_in(const int16_t* in, int64_t stride, int64_t n, int16_t* out) const {
    for (int64_t e = 0; e < n; e += 8) {
      __m512i a[8], b[8];
      for (int i = 0; i < 8; ++i) {
        const int16_t* p = in + i * stride + e;
        __m512i v = _mm512_castsi128_si512(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
        v = _mm512_inserti64x2(v, _mm_load_si128(reinterpret_cast<const __m128i*>(p + 8 * stride)), 1);
        v = _mm512_inserti64x2(v, _mm_load_si128(reinterpret_cast<const __m128i*>(p + 16 * stride)), 2);
        a[i] = _mm512_inserti64x2(v, _mm_load_si128(reinterpret_cast<const __m128i*>(p + 24 * stride)), 3);
      }
      for (int i = 0; i < 4; ++i) b[2 * i] = _mm512_unpacklo_epi16(a[i], a[i + 4]), b[2 * i + 1] = _mm512_unpackhi_epi16(a[i], a[i + 4]);
      for (int i = 0; i < 4; ++i) a[2 * i] = _mm512_unpacklo_epi16(b[i], b[i + 4]), a[2 * i + 1] = _mm512_unpackhi_epi16(b[i], b[i + 4]);
      for (int i = 0; i < 4; ++i) b[2 * i] = _mm512_unpacklo_epi16(a[i], a[i + 4]), b[2 * i + 1] = _mm512_unpackhi_epi16(a[i], a[i + 4]);
      for (int i = 0; i < 8; ++i) _mm512_store_si512(out + (e + i) * kRows, b[i]);
    }
  }

  template <int kN>
  NDD_AVX512 static void mix_elements(const int16_t* in, int64_t stride, const uint32_t* w, int32_t taps, uint8_t* out) {
    __m512i sum[kN];
    for (int c = 0; c < kN; ++c) sum[c] = _mm512_setzero_si512();
    for (int32_t k = 0; k < taps; ++k, in += stride) {
      const __m512i weight = _mm512_set1_epi32(static_cast<int>(w[k]));
      for (int c = 0; c < kN; ++c) sum[c] = _mm512_add_epi16(sum[c], _mm512_mulhrs_epi16(_mm512_load_si512(in + c * kRows), weight));
    }
    for (int c = 0; c < kN; ++c) _mm256_store_si256(reinterpret_cast<__m256i*>(out + c * kRows), to_u8(sum[c]));
  }

  NDD_AVX512 void mix_columns(const int16_t* tile, const AxisTable& h, const ColumnStrip& s, int64_t channels, uint8_t* out) const {
    for (int64_t x = s.begin; x < s.end; ++x) {
      const int16_t* in = tile + (h.start[x] - s.first) * channels * kRows;
      const uint32_t* w = h.weights14(x);
      const int32_t taps = h.count[x];
      int64_t c = 0;
      for (; c + 3 <= channels; c += 3, in += 3 * kRows, out += 3 * kRows) mix_elements<3>(in, channels * kRows, w, taps, out);
      for (; c < channels; ++c, in += kRows, out += kRows) mix_elements<1>(in, channels * kRows, w, taps, out);
    }
  }

  // Lane 0 holds rows 0 to 15, lane 1 rows 16 to 31.
  NDD_AVX512 void turn_out(const uint8_t* tile, int64_t n, int64_t rows, void* out, int64_t offset, int64_t stride) const {
    uint8_t* dst = static_cast<uint8_t*>(out) + offset;
    for (int64_t e = 0; e < n; e += 16) {
      __m256i a[16];
      for (int i = 0; i < 16; ++i) a[i] = _mm256_load_si256(reinterpret_cast<const __m256i*>(tile + (e + i) * kRows));
      turn_bytes(a);
      alignas(32) uint8_t line[32 * 16];
      for (int i = 0; i < 16; ++i) {
        _mm_store_si128(reinterpret_cast<__m128i*>(line + i * 16), _mm256_castsi256_si128(a[i]));
        _mm_store_si128(reinterpret_cast<__m128i*>(line + (i + 16) * 16), _mm256_extracti128_si256(a[i], 1));
      }
      if (e + 16 <= n) {
        for (int64_t r = 0; r < rows; ++r)
          _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + r * stride + e), _mm_load_si128(reinterpret_cast<const __m128i*>(line + r * 16)));
      } else {
        for (int64_t r = 0; r < rows; ++r) std::memcpy(dst + r * stride + e, line + r * 16, n - e);
      }
    }
  }
};

// --- Enlargements ---
//
// Rows with up to six taps, columns before rows. A source row is resampled once and serves every output row that mixes it.
// Neighboring output elements come from so few bytes that shuffles can fetch their taps, so nothing needs to be transposed. 640x480x3 to 960x720
// takes, on one thread with AVX2, 0.28 ms instead of 0.62 for linear and 0.35 instead of 0.70 for cubic.

constexpr int32_t kMaxUpTaps = 6;

// Elements in groups of eight, which take their taps from 16 bytes, and in blocks of two groups.
struct UpTable {
  Axis axis{};
  int64_t channels = 0;
  int32_t taps = 0;  // even; 0 if the axis does not qualify
  std::vector<int32_t> base;  // per group: the start of its 16 bytes. Taps 2 and 3 are two pixels further on, taps 4 and 5 another two
  std::vector<uint8_t> order;  // per group: the byte that becomes the upper half of each element, for tap 0; the lower half is 0
  std::vector<int16_t> weight;  // per block, tap and element

  void build(const AxisTable& h, int64_t channels_) {
    axis = h.axis;
    channels = channels_;
    taps = 0;
    // Taps are processed in pairs.
    const int32_t wanted = (std::max(h.most, 2) + 1) / 2 * 2;
    const int64_t elements = axis.out * channels, last = axis.in * channels - 16 - (wanted - 2) * channels;
    if (wanted > kMaxUpTaps || axis.in < wanted || elements < 32 || last < 0) return;
    const int64_t blocks = (elements + 15) / 16;
    base.assign(2 * blocks, 0);
    order.assign(32 * blocks, 0x80);
    weight.assign(16 * blocks * wanted, 0);
    const auto first = [&](int64_t x) { return std::min<int64_t>(h.start[x], axis.in - wanted); };
    for (int64_t g = 0; g < 2 * blocks; ++g) {
      const int64_t end = std::min(8 * g + 8, elements);
      if (8 * g >= end) break;
      int64_t lowest = last;
      for (int64_t e = 8 * g; e < end; ++e) lowest = std::min(lowest, first(e / channels) * channels + e % channels);
      base[g] = static_cast<int32_t>(lowest);
      for (int64_t e = 8 * g; e < end; ++e) {
        const int64_t x = e / channels, from = first(x), at = from * channels + e % channels - lowest;
        // The group spans more than 16 bytes: `taps` stays 0.
        if (at + channels > 15) return;
        order[16 * g + 2 * (e % 8) + 1] = static_cast<uint8_t>(at);
        for (int32_t k = 0; k < h.count[x]; ++k)
          weight[(e / 16 * wanted + h.start[x] - from + k) * 16 + e % 16] = static_cast<int16_t>(h.weights14(x)[k] & 0xffff);
      }
    }
    taps = wanted;
  }
};

// Cached per thread, like the tables of the axes.
inline const UpTable& up_table(const AxisTable& h, int64_t channels) {
  static thread_local UpTable table;
  if (table.channels != channels || !same_axis(table.axis, h.axis)) table.build(h, channels);
  return table;
}

// Resamples a source row along its width, to 16-bit values with 7 fractional bits.
template <int kTaps>
NDD_AVX2 void lengthen(const uint8_t* row, const UpTable& t, int16_t* out) {
  const __m256i flip = _mm256_set1_epi8(-128), next = _mm256_set1_epi16(static_cast<int16_t>(t.channels << 8));
  const int64_t blocks = static_cast<int64_t>(t.base.size()) / 2, step = 2 * t.channels;
  const int32_t* base = t.base.data();
  const uint8_t* order = t.order.data();
  const int16_t* weight = t.weight.data();
  for (int64_t b = 0; b < blocks; ++b, base += 2, order += 32, weight += 16 * kTaps, out += 16) {
    // The shuffle of the second tap of a pair is that of the first, one pixel further on.
    const __m256i left = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(order)), right = _mm256_add_epi8(left, next);
    __m256i sum = _mm256_setzero_si256();
    for (int k = 0; k < kTaps; k += 2) {
      const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + base[0] + k / 2 * step));
      const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + base[1] + k / 2 * step));
      const __m256i v = _mm256_xor_si256(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1), flip);
      const auto* w = reinterpret_cast<const __m256i*>(weight + 16 * k);
      sum = _mm256_add_epi16(sum, _mm256_mulhrs_epi16(_mm256_shuffle_epi8(v, left), _mm256_loadu_si256(w)));
      sum = _mm256_add_epi16(sum, _mm256_mulhrs_epi16(_mm256_shuffle_epi8(v, right), _mm256_loadu_si256(w + 1)));
    }
    _mm256_store_si256(reinterpret_cast<__m256i*>(out), sum);
  }
}

// Mixes 16 values of resampled rows, and rounds off the fractional bits.
template <int kTaps>
NDD_AVX2 __m256i mix16(const int16_t* const* rows, const __m256i* weights, int64_t at) {
  __m256i sum = _mm256_setzero_si256();
  for (int k = 0; k < kTaps; ++k)
    sum = _mm256_add_epi16(sum, _mm256_mulhrs_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[k] + at)), weights[k]));
  return _mm256_srai_epi16(_mm256_adds_epi16(sum, _mm256_set1_epi16(32)), 6);
}

// n >= 32; the last block overlaps the one before. Taps beyond a row's own have weight 0.
template <int kTaps>
NDD_AVX2 void mix_up(const int16_t* const* rows, const uint32_t* w, int32_t count, int64_t n, uint8_t* out) {
  __m256i weights[kTaps];
  for (int k = 0; k < kTaps; ++k) weights[k] = _mm256_set1_epi32(k < count ? static_cast<int>(w[k]) : 0);
  for (int64_t j = 0; j < n; j += 32) {
    const int64_t at = std::min(j, n - 32);
    const __m256i packed = _mm256_packs_epi16(mix16<kTaps>(rows, weights, at), mix16<kTaps>(rows, weights, at + 16));
    const __m256i bytes = _mm256_xor_si256(_mm256_permute4x64_epi64(packed, 0xD8), _mm256_set1_epi8(-128));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + at), bytes);
  }
}

// Returns false, without effect, if another path is faster or the job does not qualify.
inline bool resample_up(const ResampleJob& job, const AxisTable& v, const AxisTable& h) {
  if (v.most > kMaxUpTaps || h.most > kMaxUpTaps || v.axis.in > 2 * v.axis.out) return false;
  const UpTable& table = up_table(h, job.channels);
  if (table.taps == 0) return false;
  const auto lengthened = table.taps == 2 ? lengthen<2> : table.taps == 4 ? lengthen<4> : lengthen<6>;
  const auto mixed = v.most <= 2 ? mix_up<2> : v.most <= 4 ? mix_up<4> : mix_up<6>;
  constexpr int64_t kKept = 8;  // source rows kept; more than the taps of an output row
  const int64_t in_row = h.axis.in * job.channels, row = h.axis.out * job.channels, padded = static_cast<int64_t>(table.base.size()) * 8;
  int16_t* const kept = scratch<int16_t>(0, kKept * padded);
  auto* out = static_cast<uint8_t*>(job.out);
  for (int64_t o = 0; o < job.outer; ++o) {
    const auto* in = static_cast<const uint8_t*>(job.in) + o * v.axis.in * in_row;
    int64_t held[kKept];
    std::fill_n(held, kKept, -1);
    for (int64_t y = 0; y < v.axis.out; ++y, out += row) {
      const int16_t* rows[kMaxUpTaps];
      for (int32_t k = 0; k < kMaxUpTaps; ++k) {
        // Rows are kept in slots by their number; a slot is resampled only if it holds another row.
        const int64_t from = v.start[y] + std::min(k, v.count[y] - 1), slot = from % kKept;
        rows[k] = kept + slot * padded;
        if (held[slot] != from) lengthened(in + from * in_row, table, kept + slot * padded);
        held[slot] = from;
      }
      mixed(rows, v.weights14(y), v.count[y], row, out);
    }
  }
  return true;
}

}  // namespace ndd::u8
#endif
