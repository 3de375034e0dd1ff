// SPDX-License-Identifier: Apache-2.0
#include "ndd/color_matrix.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ndd::color_matrix_detail {
namespace {

// Maps some of the uint8 pixels and returns how many; the rest is left because more bytes are read than the last pixels have.
using Bytes = int64_t (*)(const ColorMatrix& matrix, int64_t pixels, const uint8_t* src, uint8_t* dst);

#if defined(__x86_64__)

// Four uint8 pixels in each quarter of a register: a byte shuffle that fills up with zeros takes a channel apart and widens it to 32 bits at once;
// saturating packs and one more shuffle put the pixels together again.
constexpr char x = -1;  // a zero byte
alignas(16) constexpr char kChannel[3][16] = {
    {0, x, x, x, 3, x, x, x, 6, x, x, x, 9, x, x, x},
    {1, x, x, x, 4, x, x, x, 7, x, x, x, 10, x, x, x},
    {2, x, x, x, 5, x, x, x, 8, x, x, x, 11, x, x, x},
};
alignas(16) constexpr char kTogether[16] = {0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11, x, x, x, x};
constexpr float kHalf = 0.49999997f, kMost = 255.0f;  // as in saturate<uint8_t>; values below 0 become 0 when they are packed

inline __m128i load16(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }

// The first 12 bytes of both halves.
__attribute__((target("avx2"))) inline void store24(__m256i halves, uint8_t* to) {
  const __m256i joined = _mm256_permutevar8x32_epi32(halves, _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 7, 7));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(joined));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to + 16), _mm256_extracti128_si256(joined, 1));
}

template <int kIn, int kOut>
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
  for (; i + 10 <= pixels; i += 8, src += 8 * kIn, dst += 8 * kOut) {
    __m256 in[kIn];
    if constexpr (kIn == 1) {
      in[0] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(src))));
    } else {
      const __m256i bytes = _mm256_inserti128_si256(_mm256_castsi128_si256(load16(src)), load16(src + 12), 1);
      for (int c = 0; c < 3; ++c) in[c] = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(bytes, channel[c]));
    }
    __m256i out[3];
    for (int c = 0; c < kOut; ++c) {
      __m256 v = m[c][3];
      for (int k = kIn - 1; k >= 0; --k) v = _mm256_fmadd_ps(m[c][k], in[k], v);
      out[c] = _mm256_cvttps_epi32(_mm256_min_ps(most, _mm256_add_ps(v, half)));
    }
    for (int c = kOut; c < 3; ++c) out[c] = out[0];
    const __m256i packed = _mm256_packus_epi16(_mm256_packs_epi32(out[0], out[1]), _mm256_packs_epi32(out[2], out[2]));
    if constexpr (kOut == 1) {
      const uint32_t low = _mm256_extract_epi32(packed, 0), high = _mm256_extract_epi32(packed, 4);
      std::memcpy(dst, &low, 4);
      std::memcpy(dst + 4, &high, 4);
    } else {
      store24(_mm256_shuffle_epi8(packed, together), dst);
    }
  }
  return i;
}

template <int kIn, int kOut>
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
  for (; i + 22 <= pixels; i += 16, src += 16 * kIn, dst += 16 * kOut) {
    __m512 in[kIn];
    if constexpr (kIn == 1) {
      in[0] = _mm512_maskz_cvtepi32_ps(0xffff, _mm512_maskz_cvtepu8_epi32(0xffff, load16(src)));
    } else {
      const __m512i bytes = _mm512_maskz_permutexvar_epi32(0xffff, apart, _mm512_loadu_si512(src));
      for (int c = 0; c < 3; ++c) in[c] = _mm512_maskz_cvtepi32_ps(0xffff, _mm512_shuffle_epi8(bytes, channel[c]));
    }
    __m512i out[3];
    for (int c = 0; c < kOut; ++c) {
      __m512 v = m[c][3];
      for (int k = kIn - 1; k >= 0; --k) v = _mm512_fmadd_ps(m[c][k], in[k], v);
      out[c] = _mm512_maskz_cvttps_epi32(0xffff, _mm512_maskz_min_ps(0xffff, most, _mm512_add_ps(v, half)));
    }
    if constexpr (kOut == 1) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(dst), _mm512_maskz_cvtusepi32_epi8(0xffff, _mm512_maskz_max_epi32(0xffff, out[0], _mm512_setzero_si512())));
    } else {
      const __m512i packed = _mm512_packus_epi16(_mm512_packs_epi32(out[0], out[1]), _mm512_packs_epi32(out[2], out[2]));
      _mm512_mask_storeu_epi32(dst, 0x0fff, _mm512_maskz_permutexvar_epi32(0xffff, joined, _mm512_shuffle_epi8(packed, together)));
    }
  }
  return i;
}

#endif

template <int kIn, int kOut>
void transform_row(const ColorMatrix& matrix, int64_t pixels, const float* from, float* to) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const float* __restrict src = from;
    float* __restrict dst = to;
    const ColorMatrix m = matrix;
    const int64_t count = pixels;
    for (int64_t i = 0; i < count; ++i) m.apply<kIn, kOut>(src + kIn * i, dst + kOut * i);
  });
}

#if defined(__x86_64__)
// Channels copied by shuffles of 4 pixels in each half of a register. Returns how many pixels are done. A VGA image takes 20 us in the caches.
template <int kIn, int kOut>
__attribute__((target("avx2"))) int64_t copy_bytes_avx2(const int* from, int64_t pixels, const uint8_t* src, uint8_t* dst) {
  alignas(16) char order[16] = {};
  for (int b = 0; b < 4 * kOut; ++b) order[b] = static_cast<char>(b / kOut * kIn + from[b % kOut]);
  const __m256i shuffle = _mm256_broadcastsi128_si256(load16(order));
  int64_t i = 0;
  for (; i + 20 <= pixels; i += 8, src += 8 * kIn, dst += 8 * kOut)
    store24(_mm256_shuffle_epi8(_mm256_inserti128_si256(_mm256_castsi128_si256(load16(src)), load16(src + 4 * kIn), 1), shuffle), dst);
  return i;
}
#endif

template <int kIn, int kOut, class T>
void copy_channels(const int* from, int64_t pixels, const void* in, void* out) {
  const T* src = static_cast<const T*>(in);
  T* dst = static_cast<T*>(out);
  int64_t i = 0;
#if defined(__x86_64__)
  if constexpr (sizeof(T) == 1 && kOut == 3) {
    if (cpu_isa() != Isa::base) i = copy_bytes_avx2<kIn, kOut>(from, pixels, src, dst);
  }
#endif
  for (; i < pixels; ++i)
    for (int c = 0; c < kOut; ++c) dst[kOut * i + c] = src[kIn * i + from[c]];
}

template <int kIn, int kOut>
void run(const PointwiseRun<ColorMatrix>& run, DType in, DType out) {
  const char* from = static_cast<const char*>(run.in);
  char* to = static_cast<char*>(run.out);
  int64_t pixels = run.count / kIn;
  int source[kOut] = {};
  if (in == out && run.f.template copies<kIn, kOut>(source)) {
    switch (item_bytes(in)) {
      case 1:
        return copy_channels<kIn, kOut, uint8_t>(source, pixels, from, to);
      case 2:
        return copy_channels<kIn, kOut, uint16_t>(source, pixels, from, to);
      case 4:
        return copy_channels<kIn, kOut, uint32_t>(source, pixels, from, to);
      default:
        return copy_channels<kIn, kOut, uint64_t>(source, pixels, from, to);
    }
  }
#if defined(__x86_64__)
  if (in == DType::uint8 && out == DType::uint8 && cpu_isa() != Isa::base) {
    const Bytes transform = cpu_isa() == Isa::avx512 ? transform_avx512<kIn, kOut> : transform_avx2<kIn, kOut>;
    const int64_t done = transform(run.f, pixels, reinterpret_cast<const uint8_t*>(from), reinterpret_cast<uint8_t*>(to));
    from += kIn * done, to += kOut * done, pixels -= done;
  }
#endif
  // The other types through rows of floats in the first-level cache.
  constexpr int64_t kRow = 512;
  alignas(64) float row[kIn * kRow], mapped[kOut * kRow];
  const LoadRow load = row_loader(in);
  const StoreRow store = row_storer(out);
  for (; pixels > 0; pixels -= kRow, from += kIn * kRow * item_bytes(in), to += kOut * kRow * item_bytes(out)) {
    const int64_t n = std::min(kRow, pixels);
    load(from, kIn * n, row);
    transform_row<kIn, kOut>(run.f, n, row, mapped);
    store(mapped, kOut * n, to);
  }
}

}  // namespace

void run_cpu(const PointwiseRun<ColorMatrix>& matrix, Channels channels, DType in, DType out) {
  if (channels.in == 1) return channels.out == 1 ? run<1, 1>(matrix, in, out) : run<1, 3>(matrix, in, out);
  return channels.out == 1 ? run<3, 1>(matrix, in, out) : run<3, 3>(matrix, in, out);
}

}  // namespace ndd::color_matrix_detail
