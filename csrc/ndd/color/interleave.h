// SPDX-License-Identifier: Apache-2.0
// Interleaves three rows, one per channel, into pixels, and separates pixels into rows.
#pragma once

#include <cstdint>

#include "ndd/elementwise/lut_x86.h"
#include "ndd/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ndd {

namespace interleave_detail {

#if defined(__x86_64__)
// A byte shuffle takes its 16 sources from one register, so each output register is made of three shuffles, one per channel, combined by OR.
// For each of the 48 bytes of 16 pixels, the byte of channel c that goes there; -1 where another channel's byte goes.
struct Shuffles {
  alignas(16) int8_t order[3][3][16];
  constexpr Shuffles() : order() {
    for (int part = 0; part < 3; ++part)
      for (int c = 0; c < 3; ++c)
        for (int b = 0; b < 16; ++b) order[part][c][b] = static_cast<int8_t>((part * 16 + b) % 3 == c ? (part * 16 + b) / 3 : -1);
  }
};
inline constexpr Shuffles kShuffles;

// For each of 192 output bytes, the source among 128 bytes (64 of the first and 64 of the second row), or in the third row where `third` has a bit
// set.
struct WideShuffles {
  alignas(64) uint8_t of_two[3][64], of_third[3][64];
  uint64_t third[3];
  constexpr WideShuffles() : of_two(), of_third(), third() {
    for (int part = 0; part < 3; ++part)
      for (int b = 0; b < 64; ++b) {
        const int at = part * 64 + b;
        of_two[part][b] = static_cast<uint8_t>(at / 3 + (at % 3 == 1 ? 64 : 0));
        of_third[part][b] = static_cast<uint8_t>(at / 3);
        third[part] |= uint64_t{at % 3 == 2} << b;
      }
  }
};
inline constexpr WideShuffles kWideShuffles;

// A VGA image takes 12 us in the caches; 16 bytes at a time it takes 22.
NDD_VBMI inline int64_t interleave_wide(const uint8_t* a, const uint8_t* b, const uint8_t* c, int64_t n, uint8_t* out) {
  __m512i two[3], third[3];
  for (int part = 0; part < 3; ++part) {
    two[part] = _mm512_load_si512(kWideShuffles.of_two[part]);
    third[part] = _mm512_load_si512(kWideShuffles.of_third[part]);
  }
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const __m512i x = _mm512_loadu_si512(a + i), y = _mm512_loadu_si512(b + i), z = _mm512_loadu_si512(c + i);
    for (int part = 0; part < 3; ++part)
      _mm512_storeu_si512(out + 3 * i + 64 * part,
                          _mm512_mask_permutexvar_epi8(_mm512_permutex2var_epi8(x, two[part], y), kWideShuffles.third[part], third[part], z));
  }
  return i;
}

__attribute__((target("avx2"))) inline int64_t interleave_bytes(const uint8_t* a, const uint8_t* b, const uint8_t* c, int64_t n, uint8_t* out) {
  const uint8_t* const rows[3] = {a, b, c};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m128i in[3];
    for (int k = 0; k < 3; ++k) in[k] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[k] + i));
    for (int part = 0; part < 3; ++part) {
      __m128i pixels = _mm_setzero_si128();
      for (int k = 0; k < 3; ++k)
        pixels = _mm_or_si128(pixels, _mm_shuffle_epi8(in[k], _mm_load_si128(reinterpret_cast<const __m128i*>(kShuffles.order[part][k]))));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 3 * i + 16 * part), pixels);
    }
  }
  return i;
}

// The inverses: where the 16 or 64 bytes of channel c lie in as many pixels, in three vectors.
struct Separations {
  alignas(16) int8_t order[3][3][16];
  constexpr Separations() : order() {
    for (int c = 0; c < 3; ++c)
      for (int part = 0; part < 3; ++part)
        for (int b = 0; b < 16; ++b) order[c][part][b] = static_cast<int8_t>((3 * b + c) / 16 == part ? (3 * b + c) % 16 : -1);
  }
};
inline constexpr Separations kSeparations;

struct WideSeparations {
  alignas(64) uint8_t of_two[3][64], of_third[3][64];
  uint64_t third[3];
  constexpr WideSeparations() : of_two(), of_third(), third() {
    for (int c = 0; c < 3; ++c)
      for (int b = 0; b < 64; ++b) {
        const int from = 3 * b + c;
        of_two[c][b] = static_cast<uint8_t>(from % 128);
        of_third[c][b] = static_cast<uint8_t>(from % 64);
        third[c] |= uint64_t{from >= 128} << b;
      }
  }
};
inline constexpr WideSeparations kWideSeparations;

// A permutation of bytes selects from two registers, so the bytes of the third one are blended in by a mask.
NDD_VBMI inline int64_t separate_wide(const uint8_t* in, int64_t n, uint8_t* const* rows) {
  __m512i two[3], third[3];
  for (int c = 0; c < 3; ++c) {
    two[c] = _mm512_load_si512(kWideSeparations.of_two[c]);
    third[c] = _mm512_load_si512(kWideSeparations.of_third[c]);
  }
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const __m512i x = _mm512_loadu_si512(in + 3 * i), y = _mm512_loadu_si512(in + 3 * i + 64), z = _mm512_loadu_si512(in + 3 * i + 128);
    for (int c = 0; c < 3; ++c)
      _mm512_storeu_si512(rows[c] + i, _mm512_mask_permutexvar_epi8(_mm512_permutex2var_epi8(x, two[c], y), kWideSeparations.third[c], third[c], z));
  }
  return i;
}

// Goes on at pixel i; as in interleave_bytes(), three shuffles for each register of output.
__attribute__((target("avx2"))) inline int64_t separate_bytes(const uint8_t* in, int64_t n, uint8_t* const* rows, int64_t i) {
  for (; i + 16 <= n; i += 16) {
    __m128i parts[3];
    for (int k = 0; k < 3; ++k) parts[k] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 3 * i + 16 * k));
    for (int c = 0; c < 3; ++c) {
      __m128i row = _mm_setzero_si128();
      for (int k = 0; k < 3; ++k)
        row = _mm_or_si128(row, _mm_shuffle_epi8(parts[k], _mm_load_si128(reinterpret_cast<const __m128i*>(kSeparations.order[c][k]))));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(rows[c] + i), row);
    }
  }
  return i;
}
#endif

}  // namespace interleave_detail

template <class T>
void interleave(const T* a, const T* b, const T* c, int64_t n, T* out) {
  int64_t i = 0;
#if defined(__x86_64__)
  if constexpr (sizeof(T) == 1) {
    // The wide loop first; the narrow one continues when fewer than 64 pixels are left.
    if (has_vbmi()) i = interleave_detail::interleave_wide(a, b, c, n, out);
    if (cpu_isa() != Isa::base) i += interleave_detail::interleave_bytes(a + i, b + i, c + i, n - i, out + 3 * i);
  }
#endif
  for (; i < n; ++i) out[3 * i] = a[i], out[3 * i + 1] = b[i], out[3 * i + 2] = c[i];
}

// Separates n pixels of three channels into a row for each.
template <class T>
void separate(const T* in, int64_t n, T* const* rows) {
  int64_t begin = 0;
#if defined(__x86_64__)
  if constexpr (sizeof(T) == 1) {
    // As for interleave().
    if (has_vbmi()) begin = interleave_detail::separate_wide(in, n, rows);
    if (cpu_isa() != Isa::base) begin = interleave_detail::separate_bytes(in, n, rows, begin);
  }
#endif
  with_simd([&]() NDD_ALWAYS_INLINE {
    const T* __restrict from = in;
    T* __restrict a = rows[0], * __restrict b = rows[1], * __restrict c = rows[2];
    const int64_t end = n;
    for (int64_t i = begin; i < end; ++i) a[i] = from[3 * i], b[i] = from[3 * i + 1], c[i] = from[3 * i + 2];
  });
}

}  // namespace ndd
