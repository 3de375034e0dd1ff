// SPDX-License-Identifier: Apache-2.0
// Rows to lanes and back: tile[i * lanes + l] is element i of row l.
#pragma once

#include <algorithm>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ndd::audio {

// The floats of a 512-bit vector. Narrower vectors take two or four of them for each operation.
constexpr int kMaxLanes = 16;

// `rows` has `lanes` pointers.
inline void rows_to_lanes(const float* const* rows, int64_t lanes, int64_t n, float* tile) {
  int64_t done = 0;
#if defined(__x86_64__)
  if (lanes % 4 == 0) {
    for (int64_t l = 0; l < lanes; l += 4) {
      for (int64_t i = 0; i + 4 <= n; i += 4) {
        __m128 a = _mm_loadu_ps(rows[l] + i), b = _mm_loadu_ps(rows[l + 1] + i), c = _mm_loadu_ps(rows[l + 2] + i), d = _mm_loadu_ps(rows[l + 3] + i);
        _MM_TRANSPOSE4_PS(a, b, c, d);
        float* to = tile + i * lanes + l;
        _mm_storeu_ps(to, a);
        _mm_storeu_ps(to + lanes, b);
        _mm_storeu_ps(to + 2 * lanes, c);
        _mm_storeu_ps(to + 3 * lanes, d);
      }
    }
    done = n / 4 * 4;
  }
#endif
  for (int64_t i = done; i < n; ++i)
    for (int64_t l = 0; l < lanes; ++l) tile[i * lanes + l] = rows[l][i];
}

// Of the first `count` lanes.
inline void lanes_to_rows(const float* tile, int64_t lanes, int64_t count, int64_t n, float* const* rows) {
  int64_t l = 0;
#if defined(__x86_64__)
  for (; l + 4 <= count; l += 4) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
      const float* from = tile + i * lanes + l;
      __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + lanes), c = _mm_loadu_ps(from + 2 * lanes), d = _mm_loadu_ps(from + 3 * lanes);
      _MM_TRANSPOSE4_PS(a, b, c, d);
      _mm_storeu_ps(rows[l] + i, a);
      _mm_storeu_ps(rows[l + 1] + i, b);
      _mm_storeu_ps(rows[l + 2] + i, c);
      _mm_storeu_ps(rows[l + 3] + i, d);
    }
    for (; i < n; ++i)
      for (int64_t j = l; j < l + 4; ++j) rows[j][i] = tile[i * lanes + j];
  }
#endif
  for (; l < count; ++l)
    for (int64_t i = 0; i < n; ++i) rows[l][i] = tile[i * lanes + l];
}

}  // namespace ndd::audio
