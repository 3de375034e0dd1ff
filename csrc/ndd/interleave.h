// SPDX-License-Identifier: Apache-2.0
// Three rows of a channel each, put together to pixels.
#pragma once

#include <cstdint>

#include "ndd/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ndd {

namespace interleave_detail {

#if defined(__x86_64__)
// Which byte of channel c goes to byte b of the 48 that 16 pixels have; -1 where another channel's goes.
struct Shuffles {
  alignas(16) int8_t order[3][3][16];
  constexpr Shuffles() : order() {
    for (int part = 0; part < 3; ++part)
      for (int c = 0; c < 3; ++c)
        for (int b = 0; b < 16; ++b) order[part][c][b] = static_cast<int8_t>((part * 16 + b) % 3 == c ? (part * 16 + b) / 3 : -1);
  }
};
inline constexpr Shuffles kShuffles;

__attribute__((target("avx2"))) inline int64_t interleave_bytes(const uint8_t* a, const uint8_t* b, const uint8_t* c, int64_t n, uint8_t* out) {
  const uint8_t* const rows[3] = {a, b, c};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m128i in[3];
    for (int k = 0; k < 3; ++k) in[k] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[k] + i));
    for (int part = 0; part < 3; ++part) {
      __m128i made = _mm_setzero_si128();
      for (int k = 0; k < 3; ++k)
        made = _mm_or_si128(made, _mm_shuffle_epi8(in[k], _mm_load_si128(reinterpret_cast<const __m128i*>(kShuffles.order[part][k]))));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 3 * i + 16 * part), made);
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
    if (cpu_isa() != Isa::base) i = interleave_detail::interleave_bytes(a, b, c, n, out);
  }
#endif
  for (; i < n; ++i) out[3 * i] = a[i], out[3 * i + 1] = b[i], out[3 * i + 2] = c[i];
}

}  // namespace ndd
