// SPDX-License-Identifier: Apache-2.0
// Resampled images of bytes that leave the kernel as crop_mirror_normalize returns them: each element, rounded to a byte, goes through the Channel of
// its color to its place in the output. A second kernel would write the bytes to memory and read them again.
#pragma once
#include <cstdint>
#include <type_traits>

#include "ndd/dtypes.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/slice/slice.h"

namespace ndd::resample_gpu {

constexpr int kMaxColors = 4;

// The types that models take. The kernels write these; others, which are rare, are normalized by a second kernel.
inline bool is_normal_type(DType type) { return type == DType::float32 || type == DType::float16 || type == DType::bfloat16; }

// The constants of an image, and where its elements go: strides in elements of the output. The colors of a pixel are its elements, or, if `in_planes`,
// planes in turn.
struct Normalization {
  int64_t plane, row, color;
  int32_t pixel;  // 1: the colors become planes, or are planes already
  int32_t colors;
  bool in_planes;
  Channel channels[kMaxColors];

  // The constants of element c of a pixel.
  NDD_HD const Channel& channel(int64_t image_plane, int c) const { return channels[in_planes ? image_plane % colors : c]; }
};

// A sample as the kernels without normalization take it, and the normalization.
template <class Sample>
struct Normalized : Sample {
  Normalization normalization;
};
template <class Row>
inline constexpr bool is_normalized = false;
template <class Sample>
inline constexpr bool is_normalized<Normalized<Sample>> = true;

#ifdef __CUDACC__
// Stores a value as float32, float16 or bfloat16. `type` is the same for all threads.
__device__ inline void store_value(float value, void* to, DType type, int64_t at) {
  if (type == DType::float32) static_cast<float*>(to)[at] = value;
  else if (type == DType::float16) static_cast<Half*>(to)[at] = saturate<Half>(value);
  else static_cast<BFloat16*>(to)[at] = saturate<BFloat16>(value);
}

// A value as the bits of float32, or of a 16-bit type.
template <class Bits>
__device__ Bits bits_as(float value, DType type) {
  if constexpr (sizeof(Bits) == 4) return __float_as_uint(value);
  else return type == DType::float16 ? saturate<Half>(value).bits : saturate<BFloat16>(value).bits;
}
#endif

}  // namespace ndd::resample_gpu
