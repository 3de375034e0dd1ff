// SPDX-License-Identifier: Apache-2.0
#include "ndd/resample/two_passes.h"

#include <algorithm>
#include <cstring>

#include "ndd/resample/plane.h"
#include "ndd/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ndd {
namespace {

struct Rows {
  const uint8_t* in;
  int64_t in_row, rows;
  uint8_t* out;
  int64_t out_row;
  const uint8_t* end;  // of the memory that may be read
};

void one_pixel(const Rows& p, const AxisTable& h, int64_t channels, int64_t x, int64_t r) {
  const int16_t* w = h.weight16.data() + x * h.stride;
  const uint8_t* from = p.in + r * p.in_row + h.start[x] * channels;
  for (int64_t c = 0; c < channels; ++c) {
    int32_t sum = h.precision > 0 ? 1 << (h.precision - 1) : 0;
    for (int32_t k = 0; k < h.count[x]; ++k) sum += w[k] * from[k * channels + c];
    p.out[r * p.out_row + x * channels + c] = rounded_level(sum, h.precision);
  }
}

#if defined(__x86_64__)

// Four neighbours of three or four channels a step, of two rows side by side: pairs of bytes become pairs of 16-bit numbers.
template <int C>
__attribute__((target("avx2"))) void color_rows(const Rows& p, const AxisTable& h) {
  constexpr char x = -1;
  alignas(16) static constexpr char kFirst[2][16] = {{0, x, 3, x, 1, x, 4, x, 2, x, 5, x, x, x, x, x},
                                                     {0, x, 4, x, 1, x, 5, x, 2, x, 6, x, 3, x, 7, x}};
  alignas(16) static constexpr char kSecond[2][16] = {{6, x, 9, x, 7, x, 10, x, 8, x, 11, x, x, x, x, x},
                                                      {8, x, 12, x, 9, x, 13, x, 10, x, 14, x, 11, x, 15, x}};
  const __m256i first = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(kFirst[C - 3])));
  const __m256i second = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(kSecond[C - 3])));
  const __m128i shift = _mm_cvtsi32_si128(h.precision);
  const __m256i half = _mm256_set1_epi32(h.precision > 0 ? 1 << (h.precision - 1) : 0);
  for (int64_t r = 0; r < p.rows; r += 2) {
    const bool two = r + 1 < p.rows;
    const uint8_t *upper = p.in + r * p.in_row, *lower = two ? upper + p.in_row : upper;
    uint8_t* const to = p.out + r * p.out_row;
    for (int64_t x = 0; x < h.axis.out; ++x) {
      const int32_t steps = (h.count[x] + 3) / 4;
      const int64_t at = int64_t{h.start[x]} * C;
      if (lower + at + (steps - 1) * 4 * C + 16 > p.end) {
        one_pixel(p, h, C, x, r);
        if (two) one_pixel(p, h, C, x, r + 1);
        continue;
      }
      const auto* weights = reinterpret_cast<const int64_t*>(h.weight16.data() + x * h.stride);
      __m256i sum = half;
      for (int32_t s = 0; s < steps; ++s) {
        const __m256i bytes =
            _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(upper + at + s * 4 * C))),
                                    _mm_loadu_si128(reinterpret_cast<const __m128i*>(lower + at + s * 4 * C)), 1);
        int64_t four;
        std::memcpy(&four, weights + s, 8);
        const __m256i w = _mm256_set1_epi64x(four);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_shuffle_epi8(bytes, first), _mm256_shuffle_epi32(w, 0x00)));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_shuffle_epi8(bytes, second), _mm256_shuffle_epi32(w, 0x55)));
      }
      const __m256i level = _mm256_sra_epi32(sum, shift), words = _mm256_packs_epi32(level, level), packed = _mm256_packus_epi16(words, words);
      const int32_t a = _mm256_extract_epi32(packed, 0), b = _mm256_extract_epi32(packed, 4);
      std::memcpy(to + x * C, &a, C);
      if (two) std::memcpy(to + p.out_row + x * C, &b, C);
    }
  }
}

// Eight neighbours of one channel a step, of four rows.
__attribute__((target("avx2"))) void gray_rows(const Rows& p, const AxisTable& h) {
  const __m128i shift = _mm_cvtsi32_si128(h.precision), half = _mm_set1_epi32(h.precision > 0 ? 1 << (h.precision - 1) : 0);
  for (int64_t r = 0; r < p.rows; r += 4) {
    const int64_t count = std::min<int64_t>(4, p.rows - r);
    const uint8_t* from[4];
    for (int64_t k = 0; k < 4; ++k) from[k] = p.in + (r + std::min(k, count - 1)) * p.in_row;
    uint8_t* const to = p.out + r * p.out_row;
    for (int64_t x = 0; x < h.axis.out; ++x) {
      const int32_t steps = (h.count[x] + 7) / 8;
      const int64_t at = h.start[x];
      if (from[3] + at + steps * 8 > p.end) {
        for (int64_t k = 0; k < count; ++k) one_pixel(p, h, 1, x, r + k);
        continue;
      }
      const int16_t* weights = h.weight16.data() + x * h.stride;
      __m128i sum[4] = {};
      for (int32_t s = 0; s < steps; ++s) {
        const __m128i w = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights + 8 * s));
        for (int k = 0; k < 4; ++k)
          sum[k] =
              _mm_add_epi32(sum[k], _mm_madd_epi16(_mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from[k] + at + 8 * s))), w));
      }
      const __m128i all = _mm_hadd_epi32(_mm_hadd_epi32(sum[0], sum[1]), _mm_hadd_epi32(sum[2], sum[3]));
      const __m128i level = _mm_sra_epi32(_mm_add_epi32(all, half), shift), words = _mm_packs_epi32(level, level);
      const auto packed = static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_packus_epi16(words, words)));
      for (int64_t k = 0; k < count; ++k) to[k * p.out_row + x] = static_cast<uint8_t>(packed >> (8 * k));
    }
  }
}

// Rows mixed, 32 bytes at a time, two rows a step.
__attribute__((target("avx2"))) int64_t mix_rows_wide(const uint8_t* in, int64_t in_row, const int16_t* w, int32_t count, int32_t precision,
                                                      int64_t n, uint8_t* out) {
  const __m128i shift = _mm_cvtsi32_si128(precision);
  const __m256i half = _mm256_set1_epi32(precision > 0 ? 1 << (precision - 1) : 0), zero = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m256i sum[4] = {half, half, half, half};
    for (int32_t k = 0; k < count; k += 2) {
      const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + k * in_row + i));
      const __m256i b = k + 1 < count ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + (k + 1) * in_row + i)) : zero;
      int32_t pair;
      std::memcpy(&pair, w + k, 4);  // a weight behind the last one is 0
      const __m256i weights = _mm256_set1_epi32(pair), low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
      sum[0] = _mm256_add_epi32(sum[0], _mm256_madd_epi16(_mm256_unpacklo_epi8(low, zero), weights));
      sum[1] = _mm256_add_epi32(sum[1], _mm256_madd_epi16(_mm256_unpackhi_epi8(low, zero), weights));
      sum[2] = _mm256_add_epi32(sum[2], _mm256_madd_epi16(_mm256_unpacklo_epi8(high, zero), weights));
      sum[3] = _mm256_add_epi32(sum[3], _mm256_madd_epi16(_mm256_unpackhi_epi8(high, zero), weights));
    }
    for (__m256i& s : sum) s = _mm256_sra_epi32(s, shift);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        _mm256_packus_epi16(_mm256_packs_epi32(sum[0], sum[1]), _mm256_packs_epi32(sum[2], sum[3])));
  }
  return i;
}

#endif

void along_width(const Rows& p, const AxisTable& h, int64_t channels) {
#if defined(__x86_64__)
  if (cpu_isa() != Isa::base) {
    if (channels == 1) return gray_rows(p, h);
    if (channels == 3) return color_rows<3>(p, h);
    if (channels == 4) return color_rows<4>(p, h);
  }
#endif
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t x = 0; x < h.axis.out; ++x) one_pixel(p, h, channels, x, r);
}

// Row `first` of the source is at `in`.
void along_height(const uint8_t* in, int64_t first, int64_t row, const AxisTable& v, uint8_t* out) {
  for (int64_t y = 0; y < v.axis.out; ++y, out += row) {
    const int16_t* w = v.weight16.data() + y * v.stride;
    const uint8_t* from = in + (v.start[y] - first) * row;
    int64_t i = 0;
#if defined(__x86_64__)
    if (cpu_isa() != Isa::base) i = mix_rows_wide(from, row, w, v.count[y], v.precision, row, out);
#endif
    for (; i < row; ++i) {
      int32_t sum = v.precision > 0 ? 1 << (v.precision - 1) : 0;
      for (int32_t k = 0; k < v.count[y]; ++k) sum += w[k] * from[k * row + i];
      out[i] = rounded_level(sum, v.precision);
    }
  }
}

bool copies(const AxisTable& table) { return table.most == 1; }

}  // namespace

void resample_in_two_passes(const ResampleJob& job, const AxisTable& v, const AxisTable& h) {
  const int64_t channels = job.channels, in_row = h.axis.in * channels, row = h.axis.out * channels, plane = v.axis.in * in_row;
  const auto* in = static_cast<const uint8_t*>(job.in);
  auto* out = static_cast<uint8_t*>(job.out);
  const uint8_t* const end = in + job.outer * plane;
  // The rows that the second pass reads.
  int64_t first = v.axis.in, last = 0;
  for (int64_t y = 0; y < v.axis.out; ++y) {
    first = std::min<int64_t>(first, v.start[y]);
    last = std::max<int64_t>(last, v.start[y] + v.count[y]);
  }
  const bool whole_rows = copies(h) && h.axis.out == h.axis.in && h.start[0] == 0 && h.start[h.axis.out - 1] == h.axis.in - 1;
  uint8_t* const mixed = whole_rows ? nullptr : scratch<uint8_t>(4, (last - first) * row);
  for (int64_t o = 0; o < job.outer; ++o, in += plane, out += v.axis.out * row) {
    if (whole_rows) {
      along_height(in, 0, row, v, out);
      continue;
    }
    along_width({in + first * in_row, in_row, last - first, mixed, row, end}, h, channels);
    if (copies(v)) {
      for (int64_t y = 0; y < v.axis.out; ++y) std::memcpy(out + y * row, mixed + (v.start[y] - first) * row, row);
    } else {
      along_height(mixed, first, row, v, out);
    }
  }
}

}  // namespace ndd
