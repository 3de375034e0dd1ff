// SPDX-License-Identifier: Apache-2.0
// CPU side of the color matrix driver: shuffles for matrices that only copy channels, integers for bytes, floats for the rest.
#include "ndd/color/matrix.h"

#include <cstring>

#include "ndd/elementwise/lut.h"
#include "ndd/elementwise/lut_x86.h"
#include "ndd/vnni.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ndd::color_matrix_detail {
namespace {

#if defined(__x86_64__)

// Shuffles of the pixels in each quarter of a register: they separate four pixels into red and green as pairs of 16-bit numbers and blue alone,
// padded with zeros, as the multiply-add instruction requires. After the products, saturating packs and one more shuffle interleave the channels
// again.
constexpr char x = -1;  // selects a zero byte
alignas(16) constexpr char kRedGreen[16] = {0, x, 1, x, 3, x, 4, x, 6, x, 7, x, 9, x, 10, x};
alignas(16) constexpr char kBlue[16] = {2, x, x, x, 5, x, x, x, 8, x, x, x, 11, x, x, x};
alignas(16) constexpr char kTogether[16] = {0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11, x, x, x, x};

inline __m128i load16(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }

// Two 16-bit factors in one 32-bit lane.
inline int32_t pair_of(int32_t low, int32_t high) {
  return static_cast<int32_t>((static_cast<uint32_t>(high) << 16) | (static_cast<uint32_t>(low) & 0xffff));
}

// Stores the first 12 bytes of both halves.
__attribute__((target("avx2"))) inline void store24(__m256i halves, uint8_t* to) {
  const __m256i joined = _mm256_permutevar8x32_epi32(halves, _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 7, 7));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(joined));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to + 16), _mm256_extracti128_si256(joined, 1));
}

// Both functions return how many pixels they have processed; they stop early because they read more bytes than the last pixels have. A VGA image of
// three channels takes 40 us, with AVX2 73; for floats with AVX-512 it takes 54.
template <int kOut>
__attribute__((target("avx2"))) int64_t transform_avx2(const FixedMatrix& matrix, int64_t pixels, const uint8_t* src, uint8_t* dst) {
  const __m256i red_green = _mm256_broadcastsi128_si256(load16(kRedGreen)), blue = _mm256_broadcastsi128_si256(load16(kBlue)),
                together = _mm256_broadcastsi128_si256(load16(kTogether));
  const __m128i shift = _mm_cvtsi32_si128(matrix.bits);
  __m256i first[kOut], last[kOut], offset[kOut];
  for (int c = 0; c < kOut; ++c) {
    first[c] = _mm256_set1_epi32(pair_of(matrix.factor[c][0], matrix.factor[c][1]));
    last[c] = _mm256_set1_epi32(pair_of(matrix.factor[c][2], 0));
    offset[c] = _mm256_set1_epi32(matrix.offset[c]);
  }
  int64_t i = 0;
  // Eight pixels are 24 bytes, but the second load reads from byte 12 to 28: two more pixels must follow.
  for (; i + 10 <= pixels; i += 8, src += 24, dst += 8 * kOut) {
    const __m256i bytes = _mm256_inserti128_si256(_mm256_castsi128_si256(load16(src)), load16(src + 12), 1);
    const __m256i rg = _mm256_shuffle_epi8(bytes, red_green), b = _mm256_shuffle_epi8(bytes, blue);
    __m256i out[3];
    for (int c = 0; c < kOut; ++c) {
      const __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(rg, first[c]), _mm256_madd_epi16(b, last[c]));
      out[c] = _mm256_sra_epi32(_mm256_add_epi32(sum, offset[c]), shift);
    }
    // Packed with what is there: the extra channels are not stored.
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

// Each store writes 16 bytes too many, which the next one overwrites: masked stores outside the caches take 14 us more for a VGA image.
template <int kOut>
__attribute__((target("avx512f,avx512bw,avx512vnni"))) int64_t transform_vnni(const FixedMatrix& matrix, int64_t pixels, const uint8_t* src,
                                                                              uint8_t* dst) {
  constexpr __mmask16 kAll = 0xffff;  // gcc 12 warns of uninitialized values in the unmasked intrinsics
  const __m512i red_green = _mm512_maskz_broadcast_i32x4(kAll, load16(kRedGreen)), blue = _mm512_maskz_broadcast_i32x4(kAll, load16(kBlue)),
                together = _mm512_maskz_broadcast_i32x4(kAll, load16(kTogether));
  // `apart` puts 12 bytes, four pixels, into each quarter of 16; `joined` takes the 12 bytes of each quarter together again.
  const __m512i apart = _mm512_setr_epi32(0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 12),
                joined = _mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 3, 3, 3);
  const __m128i shift = _mm_cvtsi32_si128(matrix.bits);
  __m512i first[kOut], last[kOut], offset[kOut];
  for (int c = 0; c < kOut; ++c) {
    first[c] = _mm512_set1_epi32(pair_of(matrix.factor[c][0], matrix.factor[c][1]));
    last[c] = _mm512_set1_epi32(pair_of(matrix.factor[c][2], 0));
    offset[c] = _mm512_set1_epi32(matrix.offset[c]);
  }
  int64_t i = 0;
  // Sixteen pixels are 48 bytes, but 64 are loaded: six more pixels must follow.
  for (; i + 22 <= pixels; i += 16, src += 48, dst += 16 * kOut) {
    const __m512i bytes = _mm512_maskz_permutexvar_epi32(kAll, apart, _mm512_loadu_si512(src));
    const __m512i rg = _mm512_shuffle_epi8(bytes, red_green), b = _mm512_shuffle_epi8(bytes, blue);
    __m512i out[kOut];
    for (int c = 0; c < kOut; ++c)
      // offset + red, green and blue times their factors: dpwssd adds two products of 16 bits to each lane.
      out[c] = _mm512_maskz_sra_epi32(kAll, _mm512_dpwssd_epi32(_mm512_dpwssd_epi32(offset[c], rg, first[c]), b, last[c]), shift);
    if constexpr (kOut == 1) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(dst),
                       _mm512_maskz_cvtusepi32_epi8(kAll, _mm512_maskz_max_epi32(kAll, out[0], _mm512_setzero_si512())));
    } else {
      const __m512i packed = _mm512_packus_epi16(_mm512_packs_epi32(out[0], out[1]), _mm512_packs_epi32(out[2], out[2]));
      _mm512_storeu_si512(dst, _mm512_maskz_permutexvar_epi32(kAll, joined, _mm512_shuffle_epi8(packed, together)));
    }
  }
  return i;
}

#endif

template <int kOut>
void transform_bytes(const FixedMatrix& matrix, int64_t pixels, const uint8_t* src, uint8_t* dst) {
  int64_t done = 0;
#if defined(__x86_64__)
  if (has_vnni()) done = transform_vnni<kOut>(matrix, pixels, src, dst);
  else if (cpu_isa() != Isa::base) done = transform_avx2<kOut>(matrix, pixels, src, dst);
#endif
  for (int64_t i = done; i < pixels; ++i) matrix.apply<kOut>(src + 3 * i, dst + kOut * i);
}

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
// Copies channels with shuffles of 21 pixels, in 64 bytes whose last byte is overwritten by the next store. Returns how many pixels it has processed.
// A VGA image takes 27 us; the AVX2 shuffles take 32.
template <int kIn, int kOut>
NDD_VBMI int64_t copy_bytes_vbmi(const int* from, int64_t pixels, const uint8_t* src, uint8_t* dst) {
  static_assert(kOut == 3);
  // Byte b of the output is channel from[b % kOut] of pixel b / kOut.
  alignas(64) uint8_t order[64] = {};
  for (int b = 0; b < 63; ++b) order[b] = static_cast<uint8_t>(b / kOut * kIn + from[b % kOut]);
  const __m512i shuffle = _mm512_load_si512(order);
  int64_t i = 0;
  for (; i + 64 <= pixels; i += 21, src += 21 * kIn, dst += 63)
    _mm512_storeu_si512(dst, _mm512_maskz_permutexvar_epi8(~__mmask64{0}, shuffle, _mm512_loadu_si512(src)));
  return i;
}

// The same with shuffles of 4 pixels in each half of a register.
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
#if defined(__x86_64__)
  if constexpr (sizeof(T) == 1 && kOut == 3) {
    int64_t i = 0;
    if (has_vbmi()) i = copy_bytes_vbmi<kIn, kOut>(from, pixels, src, dst);
    else if (cpu_isa() != Isa::base) i = copy_bytes_avx2<kIn, kOut>(from, pixels, src, dst);
    src += kIn * i, dst += kOut * i, pixels -= i;
  }
#endif
  for (int64_t i = 0; i < pixels; ++i)
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
      case 1: return copy_channels<kIn, kOut, uint8_t>(source, pixels, from, to);
      case 2: return copy_channels<kIn, kOut, uint16_t>(source, pixels, from, to);
      case 4: return copy_channels<kIn, kOut, uint32_t>(source, pixels, from, to);
      default: return copy_channels<kIn, kOut, uint64_t>(source, pixels, from, to);
    }
  }
  if (in == DType::uint8 && out == DType::uint8) {
    const uint8_t* src = reinterpret_cast<const uint8_t*>(from);
    uint8_t* dst = reinterpret_cast<uint8_t*>(to);
    if constexpr (kIn == 3) {
      // Factors too large for fixed point leave it empty, and the floats below compute them.
      const FixedMatrix fixed(run.f);
      if (fixed) return transform_bytes<kOut>(fixed, pixels, src, dst);
    } else {
      // One gray level in, so a table of all 256 per output channel replaces the arithmetic.
      uint8_t tables[3 * kLevels];
      for (int v = 0; v < kLevels; ++v) {
        const float level = static_cast<float>(v);
        float mapped[kOut];
        run.f.template apply<1, kOut>(&level, mapped);
        for (int c = 0; c < kOut; ++c) tables[c * kLevels + v] = saturate<uint8_t>(mapped[c]);
      }
      if constexpr (kOut == 3) {
        const int gray[] = {0, 0, 0};
        // Gray is repeated into the output first, and mapped in place.
        copy_channels<1, 3, uint8_t>(gray, pixels, src, dst);
        src = dst;
      }
      return map_levels(src, pixels, kOut, tables, dst);
    }
  }
  // The other types go through rows of floats in the L1 cache.
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
