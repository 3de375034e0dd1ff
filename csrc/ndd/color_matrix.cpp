// SPDX-License-Identifier: Apache-2.0
#include "ndd/color_matrix.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ndd::color_matrix_detail {
namespace {

#if defined(__x86_64__)

// Four uint8 pixels in each quarter of a register: a byte shuffle that fills up with zeros takes a channel apart and widens it to 32 bits at once;
// saturating packs and one more shuffle put the pixels together again. Both return how many pixels are done; some are left over because more bytes
// are read and written than they have.
constexpr char x = -1;  // a zero byte
alignas(16) constexpr char kChannel[3][16] = {
    {0, x, x, x, 3, x, x, x, 6, x, x, x, 9, x, x, x},
    {1, x, x, x, 4, x, x, x, 7, x, x, x, 10, x, x, x},
    {2, x, x, x, 5, x, x, x, 8, x, x, x, 11, x, x, x},
};
alignas(16) constexpr char kTogether[16] = {0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11, x, x, x, x};
constexpr float kHalf = 0.49999997f, kMost = 255.0f;  // as in saturate<uint8_t>; values below 0 become 0 when they are packed

inline __m128i load16(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }

__attribute__((target("avx2,fma"))) int64_t transform_avx2(const ColorMatrix& matrix, int64_t pixels, const uint8_t* src, uint8_t* dst) {
  __m256i channel[3];
  __m256 m[3][4];
  for (int c = 0; c < 3; ++c) {
    channel[c] = _mm256_broadcastsi128_si256(load16(kChannel[c]));
    for (int k = 0; k < 4; ++k) m[c][k] = _mm256_set1_ps(matrix.m[c][k]);
  }
  const __m256i together = _mm256_broadcastsi128_si256(load16(kTogether));
  const __m256 half = _mm256_set1_ps(kHalf), most = _mm256_set1_ps(kMost);
  int64_t i = 0;
  for (; i + 10 <= pixels; i += 8, src += 24, dst += 24) {
    const __m256i bytes = _mm256_inserti128_si256(_mm256_castsi128_si256(load16(src)), load16(src + 12), 1);
    const __m256 r = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(bytes, channel[0])), g = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(bytes, channel[1])),
                 b = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(bytes, channel[2]));
    __m256i out[3];
    for (int c = 0; c < 3; ++c) {
      const __m256 v = _mm256_fmadd_ps(m[c][0], r, _mm256_fmadd_ps(m[c][1], g, _mm256_fmadd_ps(m[c][2], b, m[c][3])));
      out[c] = _mm256_cvttps_epi32(_mm256_min_ps(most, _mm256_add_ps(v, half)));
    }
    const __m256i packed = _mm256_packus_epi16(_mm256_packs_epi32(out[0], out[1]), _mm256_packs_epi32(out[2], out[2]));
    const __m256i result = _mm256_shuffle_epi8(packed, together);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst), _mm256_castsi256_si128(result));  // its last 4 bytes are overwritten
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + 12), _mm256_extracti128_si256(result, 1));
  }
  return i;
}

__attribute__((target("avx512f,avx512bw"))) int64_t transform_avx512(const ColorMatrix& matrix, int64_t pixels, const uint8_t* src, uint8_t* dst) {
  __m512i channel[3];
  __m512 m[3][4];
  for (int c = 0; c < 3; ++c) {
    channel[c] = _mm512_maskz_broadcast_i32x4(0xffff, load16(kChannel[c]));
    for (int k = 0; k < 4; ++k) m[c][k] = _mm512_set1_ps(matrix.m[c][k]);
  }
  const __m512i together = _mm512_maskz_broadcast_i32x4(0xffff, load16(kTogether));
  const __m512i apart = _mm512_setr_epi32(0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 12), 
                joined = _mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 3, 3, 3);
  const __m512 half = _mm512_set1_ps(kHalf), most = _mm512_set1_ps(kMost);
  int64_t i = 0;
  for (; i + 22 <= pixels; i += 16, src += 48, dst += 48) {
    const __m512i bytes = _mm512_maskz_permutexvar_epi32(0xffff, apart, _mm512_loadu_si512(src));
    const __m512 r = _mm512_maskz_cvtepi32_ps(0xffff, _mm512_shuffle_epi8(bytes, channel[0])), g = _mm512_maskz_cvtepi32_ps(0xffff, _mm512_shuffle_epi8(bytes, channel[1])),
                 b = _mm512_maskz_cvtepi32_ps(0xffff, _mm512_shuffle_epi8(bytes, channel[2]));
    __m512i out[3];
    for (int c = 0; c < 3; ++c) {
      const __m512 v = _mm512_fmadd_ps(m[c][0], r, _mm512_fmadd_ps(m[c][1], g, _mm512_fmadd_ps(m[c][2], b, m[c][3])));
      out[c] = _mm512_maskz_cvttps_epi32(0xffff, _mm512_maskz_min_ps(0xffff, most, _mm512_add_ps(v, half)));
    }
    const __m512i packed = _mm512_packus_epi16(_mm512_packs_epi32(out[0], out[1]), _mm512_packs_epi32(out[2], out[2]));
    _mm512_storeu_si512(dst, _mm512_maskz_permutexvar_epi32(0xffff, joined, _mm512_shuffle_epi8(packed, together)));  // its last 16 bytes are overwritten
  }
  return i;
}

#endif

void transform_row(const ColorMatrix& matrix, int64_t pixels, const float* from, float* to) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const float* __restrict src = from;
    float* __restrict dst = to;
    const ColorMatrix m = matrix;
    const int64_t count = pixels;
    for (int64_t i = 0; i < count; ++i) m(src[3 * i], src[3 * i + 1], src[3 * i + 2], dst + 3 * i);
  });
}

}  // namespace

void run_cpu(const PointwiseRun<ColorMatrix>& run, DType in, DType out) {
  const char* from = static_cast<const char*>(run.in);
  char* to = static_cast<char*>(run.out);
  int64_t pixels = run.count / 3;
#if defined(__x86_64__)
  if (in == DType::uint8 && out == DType::uint8 && cpu_isa() != Isa::base) {
    const auto transform = cpu_isa() == Isa::avx512 ? transform_avx512 : transform_avx2;
    const int64_t done = transform(run.f, pixels, reinterpret_cast<const uint8_t*>(from), reinterpret_cast<uint8_t*>(to));
    from += 3 * done, to += 3 * done, pixels -= done;
  }
#endif
  // The other types through rows of floats in the first-level cache.
  constexpr int64_t kRow = 512;
  alignas(64) float row[3 * kRow], mapped[3 * kRow];
  const LoadRow load = row_loader(in);
  const StoreRow store = row_storer(out);
  for (; pixels > 0; pixels -= kRow, from += 3 * kRow * item_bytes(in), to += 3 * kRow * item_bytes(out)) {
    const int64_t n = std::min(kRow, pixels);
    load(from, 3 * n, row);
    transform_row(run.f, n, row, mapped);
    store(mapped, 3 * n, to);
  }
}

}  // namespace ndd::color_matrix_detail
