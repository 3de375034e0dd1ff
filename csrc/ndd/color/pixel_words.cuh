// SPDX-License-Identifier: Apache-2.0
// Pixels of bytes in registers, 16 at a time: loaded by wide accesses, and separated into their colors, four pixels of a color in a word.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ndd {

// 16 pixels of kChannels bytes as words: by 16-byte loads where rows are `aligned`, by words put together from two aligned ones, or byte by byte
// where these would leave the sample, [begin, end). Bytes after it are 0; `at` is not before it.
template <int kChannels>
__device__ __forceinline__ void load_pixels(const uint8_t* at, bool aligned, const uint8_t* begin, const uint8_t* end,
                                            uint32_t (&words)[4 * kChannels]) {
  constexpr int kBytes = 16 * kChannels;
  if (aligned && end - at >= kBytes) {
#pragma unroll
    for (int k = 0; k < kChannels; ++k) {
      const uint4 four = __ldg(reinterpret_cast<const uint4*>(at) + k);
      words[4 * k] = four.x;
      words[4 * k + 1] = four.y;
      words[4 * k + 2] = four.z;
      words[4 * k + 3] = four.w;
    }
  } else if (const auto offset = static_cast<unsigned int>(reinterpret_cast<uintptr_t>(at) % 4); at - begin >= offset && end - at >= kBytes + 4) {
    const auto* const from = reinterpret_cast<const unsigned int*>(at - offset);
    unsigned int low = __ldg(from);
#pragma unroll
    for (int k = 0; k < 4 * kChannels; ++k) {
      const unsigned int high = __ldg(from + k + 1);
      words[k] = __funnelshift_r(low, high, 8 * offset);
      low = high;
    }
  } else {
#pragma unroll
    for (int k = 0; k < 4 * kChannels; ++k) {
      words[k] = 0;
#pragma unroll 1
      for (int b = 0; b < 4; ++b)
        if (at + 4 * k + b < end) words[k] |= static_cast<unsigned int>(__ldg(at + 4 * k + b)) << 8 * b;
    }
  }
}

// Color c of four pixels in the words of these.
template <int kChannels>
__device__ __forceinline__ uint32_t color_of(const uint32_t* pixels, int c) {
  static_assert(kChannels >= 1 && kChannels <= 4);
  if constexpr (kChannels == 4) {
    const uint32_t chosen = 0x0040 + 0x11 * c;
    return __byte_perm(__byte_perm(pixels[0], pixels[1], chosen), __byte_perm(pixels[2], pixels[3], chosen), 0x5410);
  } else if constexpr (kChannels == 3) {
    const uint32_t three = __byte_perm(pixels[0], pixels[1], c == 0 ? 0x0630 : c == 1 ? 0x0741 : 0x0052);
    return __byte_perm(three, pixels[2], c == 0 ? 0x5210 : c == 1 ? 0x6210 : 0x7410);
  } else if constexpr (kChannels == 2) {
    return __byte_perm(pixels[0], pixels[1], c == 0 ? 0x6420 : 0x7531);
  } else {
    return pixels[0];
  }
}

// Stores sixteen pixels with their colors apart: those of color c from `to` + c * `pitch` bytes on, both multiples of 16.
template <int kChannels>
__device__ __forceinline__ void store_colors(const uint32_t* words, void* to, int pitch) {
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    uint4 four;
    four.x = color_of<kChannels>(words, c);
    four.y = color_of<kChannels>(words + kChannels, c);
    four.z = color_of<kChannels>(words + 2 * kChannels, c);
    four.w = color_of<kChannels>(words + 3 * kChannels, c);
    *reinterpret_cast<uint4*>(static_cast<uint8_t*>(to) + c * pitch) = four;
  }
}

}  // namespace ndd
