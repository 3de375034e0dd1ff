// SPDX-License-Identifier: Apache-2.0
// 16-bit floats that convert with the same bits as torch's. Torch's own types pull in CUDA's half-precision headers, which nvcc parses four times per
// file, and their conversion from float does not vectorize.
#pragma once

#include <cstdint>

#include "ndd/hd.h"
#include "ndd/same_bits.h"

namespace ndd {
namespace detail {

// Rounds to nearest, ties to even. Branch-free, so loops vectorize.
NDD_HD uint16_t half_bits(float value) {
#if defined(__CUDA_ARCH__) && defined(__NVCC__)
  uint16_t half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
#else
  const uint32_t bits = same_bits<uint32_t>(value), magnitude = bits & 0x7fffffff;
  // The exponent's bias falls from 127 to 15; adding just below half a unit, plus the last kept bit, rounds ties to even.
  const uint32_t normal = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  // Below 2^-14 (subnormal): adding 0.5 aligns the digits with the end of the mantissa, and the FPU does the rounding.
  const uint32_t subnormal = same_bits<uint32_t>(same_bits<float>(magnitude) + 0.5f) - (126u << 23);
  // 113 << 23 is 2^-14, the smallest normal half; 143 << 23 is 2^16, beyond the largest.
  const uint32_t finite = magnitude < (113u << 23) ? subnormal : normal;
  const uint32_t special = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;  // infinity also for values that round to 2^16
  return static_cast<uint16_t>((magnitude < (143u << 23) ? finite : special) | (bits >> 16 & 0x8000));
#endif
}

NDD_HD float half_value(uint16_t half) {
#if defined(__CUDA_ARCH__) && defined(__NVCC__)
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
#else
  const uint32_t magnitude = half & 0x7fffu;
  // Rebiasing by 224 maps the largest exponent of half to that of float, so infinity and NaN are right; the multiplication then scales finite values
  // back.
  const float normal = same_bits<float>((magnitude << 13) + (224u << 23)) * 1.925929944387236e-34f;  // 2^-112
  // The mantissa in the lowest bits of 0.5 to 1: subtracting 0.5 leaves its value times 2^-24.
  const float subnormal = same_bits<float>(magnitude | (126u << 23)) - 0.5f;
  const uint32_t number = magnitude < 0x400 ? same_bits<uint32_t>(subnormal) : same_bits<uint32_t>(normal);
  return same_bits<float>(number | static_cast<uint32_t>(half & 0x8000) << 16);
#endif
}

NDD_HD uint16_t bfloat16_bits(float value) {
#if defined(__CUDA_ARCH__) && defined(__NVCC__) && __CUDA_ARCH__ >= 800
  uint16_t half;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
#else
  // The upper half of a float32, rounded like half_bits(). NaN is set explicitly: rounding could carry its mantissa into infinity.
  const uint32_t bits = same_bits<uint32_t>(value), nearest = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : nearest);
#endif
}

NDD_HD float bfloat16_value(uint16_t half) { return same_bits<float>(static_cast<uint32_t>(half) << 16); }

}  // namespace detail

// Storage types: arithmetic happens in float, through the implicit conversions.
struct alignas(2) Half {
  uint16_t bits;

  Half() = default;
  NDD_HD Half(float value) : bits(detail::half_bits(value)) {}
  NDD_HD operator float() const { return detail::half_value(bits); }
  static NDD_HD Half of_bits(uint16_t bits) {
    Half half;
    half.bits = bits;
    return half;
  }
};

struct alignas(2) BFloat16 {
  uint16_t bits;

  BFloat16() = default;
  NDD_HD BFloat16(float value) : bits(detail::bfloat16_bits(value)) {}
  NDD_HD operator float() const { return detail::bfloat16_value(bits); }
  static NDD_HD BFloat16 of_bits(uint16_t bits) {
    BFloat16 half;
    half.bits = bits;
    return half;
  }
};

}  // namespace ndd
