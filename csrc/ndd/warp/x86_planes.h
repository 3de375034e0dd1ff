// SPDX-License-Identifier: Apache-2.0
// Samples single-channel planes with AVX2, eight pixels at a time: nearest pixels of four bytes, and linearly interpolated bytes and float32. The
// points of a row are the same for all planes of an image, so positions are computed once.
#pragma once

#include <cstdint>
#include <cstring>

#include "ndd/simd.h"
#include "ndd/warp/warp.h"

#if defined(__x86_64__) && !defined(__CUDACC__)
#include <immintrin.h>
#endif

namespace ndd::warp {

struct PlaneShape {
  bool usable = false;  // this CPU and these planes qualify for the fast path
  int32_t width = 0, height = 0;
  Border border = Border::constant;
};

// Of bytes or float32.
struct SampledPlane {
  const char* data;
  char* out;
  float fill;
};

inline PlaneShape linear_shape(int64_t width, int64_t height, Border border) {
  PlaneShape shape{false, static_cast<int32_t>(width), static_cast<int32_t>(height), border};
#if defined(__x86_64__) && !defined(__CUDACC__)
  // Positions are 32 bits wide, and two rows of four pixels are read together.
  shape.usable = cpu_isa() != Isa::base && width >= 4 && height >= 2 && width * height < INT32_MAX;
#endif
  return shape;
}

#if defined(__x86_64__) && !defined(__CUDACC__)

inline bool gathers_pixels() { return cpu_isa() != Isa::base; }

// Without fma, into which gcc would contract a product and a sum: results must equal those of the general path.
#define NDD_AVX2 __attribute__((target("avx2")))

// Copies pixels of four bytes; `fill` where the index is negative.
NDD_AVX2 inline void gather_pixels(const char* data, const int32_t* pixels, int64_t n, const char* fill, char* out) {
  int32_t value;
  std::memcpy(&value, fill, sizeof(value));
  const __m256i outside = _mm256_set1_epi32(value);
  int64_t j = 0;
  for (; j + 8 <= n; j += 8) {
    const __m256i at = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(pixels + j));
    const __m256i mask = _mm256_cmpgt_epi32(at, _mm256_set1_epi32(-1));
    const __m256i found = _mm256_mask_i32gather_epi32(outside, reinterpret_cast<const int*>(data), at, mask, 4);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 4 * j), found);
  }
  for (; j < n; ++j) std::memcpy(out + 4 * j, pixels[j] < 0 ? fill : data + 4 * int64_t{pixels[j]}, 4);
}

struct Corners {
  __m256 value[4];  // upper left, upper right, lower left, lower right
};

// Loads pairs of neighbors: a gather of eight elements takes as long as eight loads, and four gathers would be needed.
NDD_AVX2 inline __m256 load_pairs(const float* data, const int32_t* at) {
  const auto two = [&](int32_t first, int32_t second) __attribute__((always_inline, target("avx2"))) {
    const __m128 low = _mm_loadl_pi(_mm_setzero_ps(), reinterpret_cast<const __m64*>(data + first));
    return _mm_loadh_pi(low, reinterpret_cast<const __m64*>(data + second));
  };
  return _mm256_insertf128_ps(_mm256_castps128_ps256(two(at[0], at[1])), two(at[4], at[5]), 1);
}

NDD_AVX2 inline Corners gather_corners(const float* data, int32_t width, __m256i offset) {
  alignas(32) int32_t at[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(at), offset);
  const __m256 a = load_pairs(data, at), b = load_pairs(data, at + 2), c = load_pairs(data + width, at), d = load_pairs(data + width, at + 2);
  // Even elements are the left neighbors, odd ones the right.
  return {{_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd), _mm256_shuffle_ps(c, d, 0x88), _mm256_shuffle_ps(c, d, 0xdd)}};
}

// Both neighbors in a row are among the four bytes from the left one on.
NDD_AVX2 inline Corners gather_corners(const uint8_t* data, int32_t width, __m256i offset) {
  const __m256i byte = _mm256_set1_epi32(255), top = _mm256_i32gather_epi32(reinterpret_cast<const int*>(data), offset, 1);
  const __m256i bottom = _mm256_i32gather_epi32(reinterpret_cast<const int*>(data + width), offset, 1);
  return {{_mm256_cvtepi32_ps(_mm256_and_si256(top, byte)), _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(top, 8), byte)),
           _mm256_cvtepi32_ps(_mm256_and_si256(bottom, byte)), _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(bottom, 8), byte))}};
}

NDD_AVX2 inline void store8(__m256 values, float* out) { _mm256_storeu_ps(out, values); }
NDD_AVX2 inline void store8(__m256 values, uint8_t* out) {  // rounded half to even, as torch does
  const __m256i levels = _mm256_cvtps_epi32(values);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(levels), _mm256_extracti128_si256(levels, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out), _mm_packus_epi16(words, words));
}

// The same with AVX-512, sixteen pixels at a time. n >= 16.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // raised inside gcc 12's own AVX-512 header
#define NDD_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2")))

struct WideCorners {
  __m512 value[4];
};

NDD_AVX512 inline __m512 widened(__m512i bytes) { return _mm512_cvtepi32_ps(_mm512_and_si512(bytes, _mm512_set1_epi32(255))); }

NDD_AVX512 inline WideCorners gather_wide(const uint8_t* data, int32_t width, __m512i offset) {
  const __m512i top = _mm512_i32gather_epi32(offset, data, 1), bottom = _mm512_i32gather_epi32(offset, data + width, 1);
  return {{widened(top), widened(_mm512_srli_epi32(top, 8)), widened(bottom), widened(_mm512_srli_epi32(bottom, 8))}};
}

// Both neighbors of a row in one access: a gather takes as long as that many loads.
NDD_AVX512 inline WideCorners gather_wide(const float* data, int32_t width, __m512i offset) {
  const __m256i first = _mm512_castsi512_si256(offset), second = _mm512_extracti64x4_epi64(offset, 1);
  // A pair of floats is gathered as one double; then even elements are the left neighbors, odd ones the right.
  const __m512i left = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
                right = _mm512_add_epi32(left, _mm512_set1_epi32(1));
  const __m512 a = _mm512_castpd_ps(_mm512_i32gather_pd(first, data, 4)), b = _mm512_castpd_ps(_mm512_i32gather_pd(second, data, 4));
  const __m512 c = _mm512_castpd_ps(_mm512_i32gather_pd(first, data + width, 4)), d = _mm512_castpd_ps(_mm512_i32gather_pd(second, data + width, 4));
  return {{_mm512_permutex2var_ps(a, left, b), _mm512_permutex2var_ps(a, right, b), _mm512_permutex2var_ps(c, left, d),
           _mm512_permutex2var_ps(c, right, d)}};
}

NDD_AVX512 inline void store16(__m512 values, float* out) { _mm512_storeu_ps(out, values); }
NDD_AVX512 inline void store16(__m512 values, uint8_t* out) {
  const __m512i levels = _mm512_max_epi32(_mm512_cvtps_epi32(values), _mm512_setzero_si512());
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtusepi32_epi8(levels));
}

template <class T, class Slow>
NDD_AVX512 void linear_planes_wide(const PlaneShape& shape, const float* xs, const float* ys, int64_t n, const SampledPlane* planes, int64_t count,
                                   Slow slow) {
  const __m512 half = _mm512_set1_ps(0.5f), zero = _mm512_setzero_ps(), one = _mm512_set1_ps(1.0f), minus = _mm512_set1_ps(-1.0f);
  const __m512 last_x = _mm512_set1_ps(static_cast<float>(shape.width - 1)), last_y = _mm512_set1_ps(static_cast<float>(shape.height - 1));
  const __m512i max_x = _mm512_set1_epi32(shape.width - 2), max_y = _mm512_set1_epi32(shape.height - 2), row = _mm512_set1_epi32(shape.width);
  // The last offset from which the access of the lower neighbors stays inside the plane.
  const __m512i max_offset = _mm512_set1_epi32(shape.width * (shape.height - 1) - (sizeof(T) == 1 ? 4 : 2));
  const auto within = [&](__m512 low, __m512 high, __m512 v) __attribute__((always_inline, target("avx512f,avx512bw,avx512dq,avx512vl,avx2"))) {
    return static_cast<uint32_t>(_mm512_cmp_ps_mask(v, low, _CMP_GE_OQ) & _mm512_cmp_ps_mask(v, high, _CMP_LE_OQ));
  };
  const bool clamps = shape.border == Border::clamp, fills = shape.border == Border::constant;

  // The last step overlaps the one before if n is not a multiple of 16.
  for (int64_t j = 0; j < n; j = j + 32 <= n || j + 16 == n ? j + 16 : n - 16) {
    __m512 x = _mm512_sub_ps(_mm512_loadu_ps(xs + j), half), y = _mm512_sub_ps(_mm512_loadu_ps(ys + j), half);
    // `there`: lanes inside; `others`: lanes for slow(). With a constant border, lanes that do not even touch the image show the fill value.
    uint32_t there = 0xffff, others = 0;
    if (!clamps) {
      there = within(zero, last_x, x) & within(zero, last_y, y);
      others = ~there & 0xffff;
      if (others != 0 && fills) others &= within(minus, _mm512_add_ps(last_x, one), x) & within(minus, _mm512_add_ps(last_y, one), y);
    }
    if (there == 0) {
      for (int64_t p = 0; p < count; ++p) store16(_mm512_set1_ps(planes[p].fill), reinterpret_cast<T*>(planes[p].out) + j);
    } else {
      x = _mm512_min_ps(_mm512_max_ps(x, zero), last_x);  // for NaN, max returns its second operand
      y = _mm512_min_ps(_mm512_max_ps(y, zero), last_y);
      // The left neighbor is at most the second-to-last pixel, so a right neighbor exists; its weight is then 1.
      const __m512i ix = _mm512_min_epi32(_mm512_cvttps_epi32(x), max_x), iy = _mm512_min_epi32(_mm512_cvttps_epi32(y), max_y);
      const __m512i wanted = _mm512_add_epi32(_mm512_mullo_epi32(iy, row), ix), offset = _mm512_min_epi32(wanted, max_offset);
      // Pixels whose four bytes would pass the end of the plane.
      if (sizeof(T) == 1) others |= there & _mm512_cmpgt_epi32_mask(wanted, max_offset);
      const __m512 wx = _mm512_sub_ps(x, _mm512_cvtepi32_ps(ix)), wy = _mm512_sub_ps(y, _mm512_cvtepi32_ps(iy));
      for (int64_t p = 0; p < count; ++p) {
        const WideCorners c = gather_wide(reinterpret_cast<const T*>(planes[p].data), shape.width, offset);
        const __m512 above = _mm512_add_ps(c.value[0], _mm512_mul_ps(_mm512_sub_ps(c.value[1], c.value[0]), wx));
        const __m512 below = _mm512_add_ps(c.value[2], _mm512_mul_ps(_mm512_sub_ps(c.value[3], c.value[2]), wx));
        const __m512 value = _mm512_add_ps(above, _mm512_mul_ps(_mm512_sub_ps(below, above), wy));
        const __m512 shown = _mm512_mask_mov_ps(_mm512_set1_ps(planes[p].fill), static_cast<__mmask16>(there), value);
        store16(shown, reinterpret_cast<T*>(planes[p].out) + j);
      }
    }
    for (; others != 0; others &= others - 1) slow(j + __builtin_ctz(others));
  }
}

// Samples the pixels [0, n) of `count` planes; slow(j) computes pixel j of all planes if its neighbors straddle the border. n >= 8.
template <class T, class Slow>
NDD_AVX2 void linear_planes(const PlaneShape& shape, const float* xs, const float* ys, int64_t n, const SampledPlane* planes, int64_t count,
                            Slow slow) {
  if (n >= 16 && cpu_isa() == Isa::avx512) return linear_planes_wide<T>(shape, xs, ys, n, planes, count, slow);
  const __m256 half = _mm256_set1_ps(0.5f), zero = _mm256_setzero_ps(), one = _mm256_set1_ps(1.0f), minus = _mm256_set1_ps(-1.0f);
  const __m256 last_x = _mm256_set1_ps(static_cast<float>(shape.width - 1)), last_y = _mm256_set1_ps(static_cast<float>(shape.height - 1));
  const __m256i max_x = _mm256_set1_epi32(shape.width - 2), max_y = _mm256_set1_epi32(shape.height - 2), row = _mm256_set1_epi32(shape.width);
  // The last offset from which four bytes still lie inside the plane.
  const __m256i max_offset = _mm256_set1_epi32(shape.width * (shape.height - 1) - (sizeof(T) == 1 ? 4 : 2));
  const auto within = [&](__m256 low, __m256 high, __m256 v) __attribute__((always_inline, target("avx2"))) {
    return _mm256_and_ps(_mm256_cmp_ps(v, low, _CMP_GE_OQ), _mm256_cmp_ps(v, high, _CMP_LE_OQ));
  };
  const bool clamps = shape.border == Border::clamp, fills = shape.border == Border::constant;

  // The last step overlaps the one before if n is not a multiple of 8.
  for (int64_t j = 0; j < n; j = j + 16 <= n || j + 8 == n ? j + 8 : n - 8) {
    __m256 x = _mm256_sub_ps(_mm256_loadu_ps(xs + j), half), y = _mm256_sub_ps(_mm256_loadu_ps(ys + j), half), inside = zero;
    int there = 0xff, others = 0;
    if (!clamps) {
      inside = _mm256_and_ps(within(zero, last_x, x), within(zero, last_y, y));
      there = _mm256_movemask_ps(inside);
      others = ~there & 0xff;
      if (others != 0 && fills)
        others &= _mm256_movemask_ps(_mm256_and_ps(within(minus, _mm256_add_ps(last_x, one), x), within(minus, _mm256_add_ps(last_y, one), y)));
    }
    if (there == 0) {
      for (int64_t p = 0; p < count; ++p) store8(_mm256_set1_ps(planes[p].fill), reinterpret_cast<T*>(planes[p].out) + j);
    } else {
      x = _mm256_min_ps(_mm256_max_ps(x, zero), last_x);  // for NaN, max returns its second operand
      y = _mm256_min_ps(_mm256_max_ps(y, zero), last_y);
      // The left neighbor is at most the second-to-last pixel, so a right neighbor exists; its weight is then 1.
      const __m256i ix = _mm256_min_epi32(_mm256_cvttps_epi32(x), max_x), iy = _mm256_min_epi32(_mm256_cvttps_epi32(y), max_y);
      const __m256i wanted = _mm256_add_epi32(_mm256_mullo_epi32(iy, row), ix), offset = _mm256_min_epi32(wanted, max_offset);
      if (sizeof(T) == 1) others |= there & _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(wanted, max_offset)));
      const __m256 wx = _mm256_sub_ps(x, _mm256_cvtepi32_ps(ix)), wy = _mm256_sub_ps(y, _mm256_cvtepi32_ps(iy));
      for (int64_t p = 0; p < count; ++p) {
        const Corners c = gather_corners(reinterpret_cast<const T*>(planes[p].data), shape.width, offset);
        const __m256 above = _mm256_add_ps(c.value[0], _mm256_mul_ps(_mm256_sub_ps(c.value[1], c.value[0]), wx));
        const __m256 below = _mm256_add_ps(c.value[2], _mm256_mul_ps(_mm256_sub_ps(c.value[3], c.value[2]), wx));
        __m256 value = _mm256_add_ps(above, _mm256_mul_ps(_mm256_sub_ps(below, above), wy));
        if (there != 0xff) value = _mm256_blendv_ps(_mm256_set1_ps(planes[p].fill), value, inside);
        store8(value, reinterpret_cast<T*>(planes[p].out) + j);
      }
    }
    for (; others != 0; others &= others - 1) slow(j + __builtin_ctz(others));
  }
}

#undef NDD_AVX512
#pragma GCC diagnostic pop
#undef NDD_AVX2

#else

inline bool gathers_pixels() { return false; }
inline void gather_pixels(const char*, const int32_t*, int64_t, const char*, char*) {}

template <class T, class Slow>
void linear_planes(const PlaneShape&, const float*, const float*, int64_t, const SampledPlane*, int64_t, Slow) {}

#endif

}  // namespace ndd::warp
