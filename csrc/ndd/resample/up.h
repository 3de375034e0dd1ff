// SPDX-License-Identifier: Apache-2.0
// Enlarging rows of uint8 with up to six taps, columns before rows. A source row is resampled once and serves every output row that mixes it.
// Neighboring output elements come from so few bytes that shuffles can fetch their taps, so nothing needs to be transposed. Arithmetic and error
// bounds are those of u8.h. 640x480x3 to 960x720 takes, on one thread with AVX2, 0.28 ms instead of 0.62 for linear and 0.35 instead of 0.70 for
// cubic.
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "ndd/resample/cpu.h"
#include "ndd/resample/u8.h"

namespace ndd::u8 {

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
