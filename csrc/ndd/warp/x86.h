// SPDX-License-Identifier: Apache-2.0
// Linear sampling of uint8 images of 1 to 4 channels with AVX2, eight pixels at a time.
//
// The two horizontal neighbors of a pixel lie in 8 consecutive bytes, so a pixel costs two 64-bit loads. Blending uses Q8.7 with 15-bit weights: it
// is within 0.02 of a level of float arithmetic and processes four channels of four pixels per instruction.
#pragma once

#include <cstdint>
#include <cstring>

#include "ndd/simd.h"
#include "ndd/warp/warp.h"

#if defined(__x86_64__) && !defined(__CUDACC__)
#include <immintrin.h>
#endif

namespace ndd::warp {

struct U8Image {
  bool usable = false;  // this CPU and this image qualify for the fast path
  const uint8_t* data = nullptr;
  int32_t width = 0, height = 0, channels = 0;
  Border border = Border::constant;
  uint8_t fill[32] = {};  // repeated for eight pixels
  bool exact = false;     // computes in float, which takes twice the time
};

// `fill` is one pixel.
inline U8Image u8_linear(const uint8_t* data, int64_t width, int64_t height, int64_t channels, Border border, const char* fill) {
  U8Image image{false, data, static_cast<int32_t>(width), static_cast<int32_t>(height), static_cast<int32_t>(channels), border, {}};
#if defined(__x86_64__) && !defined(__CUDACC__)
  image.usable = cpu_isa() != Isa::base && width >= 2 && height >= 2 && channels <= 4 && width * height * channels < INT32_MAX;
  for (int64_t k = 0; image.usable && k < 8 * channels; ++k) image.fill[k] = static_cast<uint8_t>(fill[k % channels]);
#endif
  return image;
}

#if defined(__x86_64__) && !defined(__CUDACC__)

#define NDD_AVX2 __attribute__((target("avx2,fma")))

struct PixelMasks {
  __m256i left, right;  // bytes of the left and right neighbors, each widened to 16 bits, two pixels per half
  __m256i pack;         // packs four pixels of four channels into four pixels of `channels`, in each half
};

// Four 64-bit loads at data + offset[0..3].
NDD_AVX2 inline __m128i load2(const uint8_t* data, const int32_t* offset) {
  int64_t high;
  std::memcpy(&high, data + offset[1], sizeof(high));
  return _mm_insert_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(data + offset[0])), high, 1);
}
NDD_AVX2 inline __m256i load4(const uint8_t* data, const int32_t* offset) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(load2(data, offset)), load2(data, offset + 2), 1);
}

// top + (bottom - top) * weight, weight in Q0.15
NDD_AVX2 inline __m256i lerp(__m256i a, __m256i b, __m256i weight) {
  return _mm256_add_epi16(a, _mm256_mulhrs_epi16(_mm256_sub_epi16(b, a), weight));
}

NDD_AVX2 inline __m256i spread(__m256i pixels, __m256i mask) { return _mm256_slli_epi16(_mm256_shuffle_epi8(pixels, mask), 7); }

// Eight pixels of a single channel from gathered dwords, whose low bytes are the two neighbors: 0.35 ms for a VGA image, 0.46 in the general path.
NDD_AVX2 inline __m128i blend8(__m256i top, __m256i bottom, __m256i wx, __m256i wy) {
  const __m256i widen = _mm256_set1_epi32(static_cast<int32_t>(0x80018000u));
  // Bytes 0 and 1 of each dword, each followed by a zero (0x80), in both halves.
  const __m256i in_half = _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c);
  const __m256i mask = _mm256_or_si256(widen, in_half);
  const __m256i column = lerp(spread(top, mask), spread(bottom, mask), wy);  // left and right neighbor of a pixel in one dword
  // Q0.14 weights: right, and 1 - right for the left neighbor; one multiply-add mixes both.
  const __m256i right = _mm256_srli_epi16(wx, 1);
  const __m256i weights = _mm256_blend_epi16(_mm256_sub_epi16(_mm256_set1_epi16(16384), right), right, 0xaa);
  const __m256i sum = _mm256_srli_epi32(_mm256_add_epi32(_mm256_madd_epi16(column, weights), _mm256_set1_epi32(1 << 20)), 21);
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  return _mm_packus_epi16(words, words);
}

// Four pixels; wx and wy repeat a pixel's weight for its four channels. The result has four 16-bit channels per pixel.
NDD_AVX2 inline __m256i blend4(__m256i top, __m256i bottom, __m256i wx, __m256i wy, const PixelMasks& masks) {
  const __m256i left = lerp(spread(top, masks.left), spread(bottom, masks.left), wy);
  const __m256i right = lerp(spread(top, masks.right), spread(bottom, masks.right), wy);
  return _mm256_srli_epi16(_mm256_add_epi16(lerp(left, right, wx), _mm256_set1_epi16(64)), 7);
}

// Eight pixels in float, one register per channel; a channel is a byte of the dword at the start of a pixel. Rounded half to even, as torch does.
template <int channels>
NDD_AVX2 inline __m256i blend8_exactly(const uint8_t* data, int32_t stride, __m256i offset, __m256 wx, __m256 wy) {
  const auto gather = [&](int32_t behind) __attribute__((always_inline, target("avx2,fma"))) {
    return _mm256_i32gather_epi32(reinterpret_cast<const int*>(data + behind), offset, 1);
  };
  const __m256i corner[4] = {gather(0), gather(channels), gather(stride), gather(stride + channels)};
  __m256i pixels = _mm256_setzero_si256();
  for (int c = 0; c < channels; ++c) {
    __m256 v[4];
    for (int k = 0; k < 4; ++k)
      v[k] = _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srl_epi32(corner[k], _mm_cvtsi32_si128(8 * c)), _mm256_set1_epi32(255)));
    const __m256 top = _mm256_fmadd_ps(_mm256_sub_ps(v[1], v[0]), wx, v[0]), bottom = _mm256_fmadd_ps(_mm256_sub_ps(v[3], v[2]), wx, v[2]);
    const __m256i level = _mm256_cvtps_epi32(_mm256_fmadd_ps(_mm256_sub_ps(bottom, top), wy, top));
    pixels = _mm256_or_si256(pixels, _mm256_sll_epi32(level, _mm_cvtsi32_si128(8 * c)));
  }
  return pixels;
}

NDD_AVX2 inline PixelMasks pixel_masks(int channels) {
  alignas(32) int8_t left[32], right[32], pack[32];
  std::memset(pack, -1, 32);
  for (int i = 0; i < 32; ++i) {
    // Byte i of the shuffled register belongs to this pixel of the half, and to this channel.
    const int pixel = i / 8 % 2, channel = i % 8 / 2;
    const bool used = i % 2 == 0 && channel < channels;
    left[i] = static_cast<int8_t>(used ? 8 * pixel + channel : -1);
    right[i] = static_cast<int8_t>(used ? 8 * pixel + channels + channel : -1);
  }
  for (int i = 0; i < 4 * channels; ++i) pack[i] = pack[16 + i] = static_cast<int8_t>(i / channels * 4 + i % channels);
  return {_mm256_load_si256(reinterpret_cast<const __m256i*>(left)), _mm256_load_si256(reinterpret_cast<const __m256i*>(right)),
          _mm256_load_si256(reinterpret_cast<const __m256i*>(pack))};
}

// Samples the pixels [0, n) in groups of eight; slow(j) handles the eight pixels from j on if the group touches the border. n >= 8.
template <int channels, bool exact, class Slow>
NDD_AVX2 void linear_u8_avx2(const U8Image& image, const float* xs, const float* ys, int64_t n, uint8_t* out, Slow slow) {
  const int32_t stride = image.width * channels;
  const PixelMasks masks = pixel_masks(channels);
  const __m256 half = _mm256_set1_ps(0.5f), zero = _mm256_setzero_ps(), one = _mm256_set1_ps(1.0f), q15 = _mm256_set1_ps(32768.0f);
  const __m256 last_x = _mm256_set1_ps(static_cast<float>(image.width - 1)), last_y = _mm256_set1_ps(static_cast<float>(image.height - 1));
  const __m256i max_x = _mm256_set1_epi32(image.width - 2), max_y = _mm256_set1_epi32(image.height - 2), max_weight = _mm256_set1_epi32(32767);
  // The 64-bit load of the lower neighbors must not pass the end of the image.
  const __m256i max_offset = _mm256_set1_epi32(image.width * image.height * channels - stride - 8);
  const __m256i low_pixels = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3), high_pixels = _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7);

  // The last group overlaps the one before, so all have eight pixels.
  for (int64_t j = 0; j < n; j = j + 16 <= n || j + 8 == n ? j + 8 : n - 8) {
    uint8_t* dst = out + j * channels;
    __m256 x = _mm256_sub_ps(_mm256_loadu_ps(xs + j), half), y = _mm256_sub_ps(_mm256_loadu_ps(ys + j), half);
    if (image.border != Border::clamp) {
      const auto within = [&](__m256 low, __m256 high, __m256 v) __attribute__((always_inline, target("avx2,fma"))) {
        return _mm256_and_ps(_mm256_cmp_ps(v, low, _CMP_GE_OQ), _mm256_cmp_ps(v, high, _CMP_LE_OQ));
      };
      const __m256 inside = _mm256_and_ps(within(zero, last_x, x), within(zero, last_y, y));
      if (_mm256_movemask_ps(inside) != 0xff) {
        const __m256 minus = _mm256_sub_ps(zero, one);
        const __m256 touches = _mm256_and_ps(within(minus, _mm256_add_ps(last_x, one), x), within(minus, _mm256_add_ps(last_y, one), y));
        // No pixel of the group touches the image.
        if (_mm256_movemask_ps(touches) == 0 && image.border == Border::constant) std::memcpy(dst, image.fill, 8 * channels);
        else slow(j);
        continue;
      }
    }
    x = _mm256_min_ps(_mm256_max_ps(x, zero), last_x);  // for NaN, max returns its second operand
    y = _mm256_min_ps(_mm256_max_ps(y, zero), last_y);
    const __m256i ix = _mm256_min_epi32(_mm256_cvttps_epi32(x), max_x), iy = _mm256_min_epi32(_mm256_cvttps_epi32(y), max_y);
    const __m256i offset = _mm256_add_epi32(_mm256_mullo_epi32(iy, _mm256_set1_epi32(stride)), _mm256_mullo_epi32(ix, _mm256_set1_epi32(channels)));
    if (_mm256_movemask_epi8(_mm256_cmpgt_epi32(offset, max_offset))) {
      slow(j);
      continue;
    }
    if constexpr (exact) {
      const __m256 right = _mm256_sub_ps(x, _mm256_cvtepi32_ps(ix)), below = _mm256_sub_ps(y, _mm256_cvtepi32_ps(iy));
      alignas(32) uint8_t dwords[32];
      _mm256_store_si256(reinterpret_cast<__m256i*>(dwords), blend8_exactly<channels>(image.data, stride, offset, right, below));
      for (int k = 0; k < 8; ++k) std::memcpy(dst + k * channels, dwords + 4 * k, channels);
      continue;
    }
    const auto weight = [&](__m256 v, __m256i i) __attribute__((always_inline, target("avx2,fma"))) {
      // 1.0 does not fit in Q0.15: it becomes 32767 / 32768. The weight fills both halves of a dword.
      const __m256i w = _mm256_min_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(_mm256_sub_ps(v, _mm256_cvtepi32_ps(i)), q15)), max_weight);
      return _mm256_or_si256(w, _mm256_slli_epi32(w, 16));
    };
    const __m256i wx = weight(x, ix), wy = weight(y, iy);
    if constexpr (channels == 1) {
      const __m256i top = _mm256_i32gather_epi32(reinterpret_cast<const int*>(image.data), offset, 1);
      const __m256i bottom = _mm256_i32gather_epi32(reinterpret_cast<const int*>(image.data + stride), offset, 1);
      _mm_storel_epi64(reinterpret_cast<__m128i*>(dst), blend8(top, bottom, wx, wy));
      continue;
    }
    alignas(32) int32_t at[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(at), offset);
    const __m256i low = blend4(load4(image.data, at), load4(image.data + stride, at), _mm256_permutevar8x32_epi32(wx, low_pixels),
                               _mm256_permutevar8x32_epi32(wy, low_pixels), masks);
    const __m256i high = blend4(load4(image.data, at + 4), load4(image.data + stride, at + 4), _mm256_permutevar8x32_epi32(wx, high_pixels),
                                _mm256_permutevar8x32_epi32(wy, high_pixels), masks);
    // Packing works within 128-bit lanes: the permutation brings the pixels back in order.
    const __m256i pixels = _mm256_shuffle_epi8(_mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), 0xd8), masks.pack);
    alignas(32) uint8_t packed[32];
    _mm256_store_si256(reinterpret_cast<__m256i*>(packed), pixels);
    std::memcpy(dst, packed, 4 * channels);
    std::memcpy(dst + 4 * channels, packed + 16, 4 * channels);
  }
}

#undef NDD_AVX2

// `exact` is a template parameter to keep it out of the loop: most warps do not use it.
template <bool exact, class Slow>
void linear_u8_of(const U8Image& image, const float* xs, const float* ys, int64_t n, uint8_t* out, Slow slow) {
  switch (image.channels) {
    case 1: return linear_u8_avx2<1, exact>(image, xs, ys, n, out, slow);
    case 2: return linear_u8_avx2<2, exact>(image, xs, ys, n, out, slow);
    case 3: return linear_u8_avx2<3, exact>(image, xs, ys, n, out, slow);
    default: return linear_u8_avx2<4, exact>(image, xs, ys, n, out, slow);
  }
}

template <class Slow>
void linear_u8(const U8Image& image, const float* xs, const float* ys, int64_t n, uint8_t* out, Slow slow) {
  if (image.exact) linear_u8_of<true>(image, xs, ys, n, out, slow);
  else linear_u8_of<false>(image, xs, ys, n, out, slow);
}

#else

template <class Slow>
void linear_u8(const U8Image&, const float*, const float*, int64_t, uint8_t*, Slow) {}

#endif

}  // namespace ndd::warp
