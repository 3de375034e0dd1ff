// SPDX-License-Identifier: Apache-2.0
// Where a pixel of an image reads, and what: the parts of tile.cuh that depend only on the filter, the types and the channels. All arithmetic is
// 32-bit, for images of fewer than 2^31 bytes and 2^22 pixels per side.
#pragma once

#include <cstdint>

#include "ndd/elementwise/saturate.h"
#include "ndd/elementwise/vectors.cuh"
#include "ndd/warp/warp.h"

namespace ndd::warp {

// 2^23 + 2^22: floats of this magnitude have a spacing of 1, so adding it with rounding down computes the floor, as an integer in the low bits of the
// sum. That takes two additions; F2I and I2F run at a quarter and half of their rate.
constexpr float kFloorBias = 12582912.0f;
constexpr uint32_t kFloorBits = 0x4B400000;
constexpr int64_t kMaxSide = int64_t{1} << 22;

// The limits of a map, if it states any.
template <class Map>
auto map_fits_32_bits(const Map& map, int) -> decltype(map.fits_32_bits()) {
  return map.fits_32_bits();
}
template <class Map>
bool map_fits_32_bits(const Map&, long) {
  return true;
}

// Whether 32-bit arithmetic suffices for an image.
template <class Map>
bool fits_32_bits(const WarpItem<2, Map>& item, int64_t in_bytes, int64_t out_bytes) {
  // Products of extents fit in 64 bits here, because each is below 2^22 and the channels of an image that is in memory are bounded.
  constexpr int64_t kMaxBytes = int64_t{1} << 30;
  const WarpSource<2>& src = item.src;
  if (src.channels < 1) return false;
  for (int d = 0; d < 2; ++d)
    if (src.size[d] >= kMaxSide || item.size[d] >= kMaxSide) return false;
  if (src.size[0] * src.size[1] * src.channels * in_bytes >= kMaxBytes || item.size[0] * item.size[1] * src.channels * out_bytes >= kMaxBytes)
    return false;
  return map_fits_32_bits(item.map, 0);
}

// `map.at_pixel(x, y)` if the map has a faster way, also for pixels outside the image.
template <class Map>
NDD_HD auto source_point(const Map& map, int32_t x, int32_t y, const Point<2>&, int) -> decltype(map.at_pixel(x, y)) {
  return map.at_pixel(x, y);
}
template <class Map>
NDD_HD Point<2> source_point(const Map& map, int32_t, int32_t, const Point<2>& to, long) {
  return map(to);
}

// The K neighbors of points along an axis. A point beyond 2^22, or NaN, never counts as inside.
template <int K>
struct AxisTaps {
  float most, highest;  // of a coordinate clamped to the image, and of its floor
  uint32_t last;        // the last position of the first neighbor

  __device__ explicit AxisTaps(int32_t size)
      : most(static_cast<float>(size - 1)), highest(kFloorBias + static_cast<float>(size - K)), last(static_cast<uint32_t>(size - K)) {}

  // The first neighbor, from a biased floor.
  // The first of K neighbors lies (K - 1) / 2 before the floor.
  static __device__ int32_t first(float low) { return static_cast<int32_t>(__float_as_uint(low) - (kFloorBits + (K - 1) / 2)); }
  // One unsigned comparison tests both ends.
  __device__ bool contains(int32_t first) const { return static_cast<uint32_t>(first) <= last; }
};

// Extracts an element from the lower bits of a word.
template <class T>
__device__ float element_value(uint32_t bits) {
  if constexpr (sizeof(T) == 1) return static_cast<float>(bits & 0xFFu);
  else return static_cast<float>(Half::of_bits(static_cast<uint16_t>(bits)));
}

template <class T>
__device__ T load_global(const T* from) {
  if constexpr (sizeof(T) == 2) {
    const unsigned short bits = __ldg(reinterpret_cast<const unsigned short*>(from));
    return T::of_bits(bits);
  } else {
    return __ldg(from);
  }
}

// K neighboring pixels of C channels in a row, for types of up to four bytes. Three channels of a small type are read as aligned words: two uint8
// pixels lie in two or three of them, instead of six bytes. Four channels are a vector.
template <class T, int C, int K>
class RowTaps {
 public:
  static constexpr bool kVectors = C == 4, kWords = C == 3 && K > 1 && sizeof(T) < 4;
  static constexpr int kBytes = K * C * static_cast<int>(sizeof(T)), kRead = (kBytes + 7 - static_cast<int>(sizeof(T))) / 4, kKept = (kBytes + 3) / 4;
  static constexpr int kRegisters = kVectors ? kBytes / 4 : kWords ? kRead : K * C;

  // `at` is in bytes. With kWords, `data` must be a multiple of four, and kRead words are read.
  __device__ void load(const char* data, uint32_t at) {
    if constexpr (kVectors) {
#pragma unroll
      for (int k = 0; k < K; ++k) vector_[k] = AlignedVector<T, C>::load(reinterpret_cast<const AlignedVector<T, C>*>(data + at) + k);
    } else if constexpr (kWords) {
      const auto* const from = reinterpret_cast<const unsigned int*>(data + (at & ~3u));
      uint32_t read[kRead];
#pragma unroll
      for (int i = 0; i < kRead; ++i) read[i] = __ldg(from + i);
#pragma unroll
      for (int i = 0; i < kKept; ++i) word_[i] = __funnelshift_r(read[i], i + 1 < kRead ? read[i + 1] : 0u, at * 8u);
    } else {
#pragma unroll
      for (int i = 0; i < K * C; ++i) element_[i] = load_global(reinterpret_cast<const T*>(data + at) + i);
    }
  }

  __device__ float value(int k, int c) const {
    if constexpr (kVectors) return static_cast<float>(vector_[k].element[c]);
    else if constexpr (kWords) {
      const int byte = (k * C + c) * static_cast<int>(sizeof(T));
      return element_value<T>(word_[byte / 4] >> byte % 4 * 8);
    } else return static_cast<float>(element_[k * C + c]);
  }

  // For two uint8 pixels: channels 2 j and 2 j + 1 of both, with a byte of the left pixel before each byte of the right one.
  __device__ uint32_t pairs(int j) const {
    static_assert(K == 2 && sizeof(T) == 1);
    if constexpr (kVectors) {
      uint32_t left, right;
      memcpy(&left, &vector_[0], 4);
      memcpy(&right, &vector_[1], 4);
      // Selectors: byte 0 of the left pixel, byte 0 of the right one, then byte 1 of each.
      return __byte_perm(left, right, j == 0 ? 0x5140 : 0x7362);
    } else if constexpr (kWords) {
      return __byte_perm(word_[0], word_[1], j == 0 ? 0x4130 : 0x7752);
    } else {
      return __byte_perm(element_[0], element_[1], 0x5140);
    }
  }

  __device__ T first(int c) const {  // for K == 1
    if constexpr (kVectors) return vector_[0].element[c];
    else return element_[c];
  }

 private:
  struct Nothing {};
  std::conditional_t<kVectors, AlignedVector<T, 4>[K], Nothing> vector_;
  std::conditional_t<kWords, uint32_t[kKept], Nothing> word_;
  std::conditional_t<kVectors || kWords, Nothing, T[K * C]> element_;
};

// An image whose neighbors are read without checking for the border if all K x K of them are inside.
template <class T, int C, int K>
class TapReader {
  using Row = RowTaps<T, C, K>;

 public:
  static constexpr int kPixel = C * static_cast<int>(sizeof(T));
  AxisTaps<K> across, down;
  uint32_t pitch;
  // A replicated border has the border's own value everywhere, so for up to two neighbors it suffices to clamp the point to the image.
  bool keeps_inside;

  __device__ explicit TapReader(const WarpSource<2>& src)
      : across(static_cast<int32_t>(src.size[0])), down(static_cast<int32_t>(src.size[1])),
        pitch(static_cast<uint32_t>(src.stride[1]) * static_cast<uint32_t>(sizeof(T))), keeps_inside(src.border == Border::clamp && K <= 2) {
    const int32_t width = static_cast<int32_t>(src.size[0]), height = static_cast<int32_t>(src.size[1]);
    data_ = static_cast<const char*>(src.data);
    begin_ = least_ = 0;
    int32_t room = 0;
    if constexpr (Row::kWords) {  // words must lie entirely inside the image
      begin_ = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(data_) % 4);
      data_ -= begin_;
      least_ = begin_ > 0 ? 4 : 0;
      room = static_cast<int32_t>(begin_ - least_) + (height - K + 1) * static_cast<int32_t>(pitch) - 4 * Row::kRead;
    }
    room_ = static_cast<uint32_t>(room);
    usable_ = width >= K && height >= K && room >= 0;
  }

  // False if there is no pixel all of whose neighbors can be read.
  __device__ bool usable() const { return usable_; }

  // Whether all neighbors of the point can be read, the first of which is (x, y), and where; otherwise sets some valid position.
  __device__ bool locate(int32_t x, int32_t y, uint32_t& at) const {
    at = static_cast<uint32_t>(y) * pitch + static_cast<uint32_t>(x) * kPixel + begin_;
    bool inside = across.contains(x) & down.contains(y);
    if constexpr (Row::kWords) inside = inside & (at - least_ <= room_);
    at = inside ? at : least_;
    return inside;
  }

  __device__ void load(Row& row, uint32_t at) const { row.load(data_, at); }

 private:
  const char* data_;
  uint32_t begin_, least_, room_;
  bool usable_;
};

}  // namespace ndd::warp
