// SPDX-License-Identifier: Apache-2.0
// Tiles of keys (ndd/elementwise/order_keys.h) in shared memory, for filters by rank.
#pragma once

#include <cstdint>

#include "ndd/elementwise/order_keys.h"
#include "ndd/stencil/tile.cuh"

namespace ndd::stencil {

// Keys of an element type known at run time, each xored with `flip`: with all bits flipped, a minimum becomes a maximum. NaN has the key `nan`.
template <class K>
struct KeyTiles {
  using Wide = std::conditional_t<sizeof(K) == 8, uint64_t, uint32_t>;  // registers have at least 32 bits
  static constexpr K kSign = static_cast<K>(K{1} << (8 * sizeof(K) - 1));
  // Host and device: a KeyTiles is a kernel argument.
  DType dtype;
  K flip, nan;
  K sign;         // converts the keys of an integer type to its bits
  bool floating;

  KeyTiles(DType dtype, K flip, K nan) : dtype(dtype), flip(flip), nan(nan), sign{}, floating(is_floating_dtype(dtype)) {
    for_dtype(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if (!is_floating<T> && std::is_signed_v<T>) sign = kSign;
    });
  }

#ifdef __CUDACC__
  // Elements beyond a constant border have the key `fill`, which is already flipped.
  __device__ void stage(K* tile, int pitch, const StagedRows& from, const Plane& plane, K fill) const {
    if constexpr (sizeof(K) == 1) {
      stage_bytes(tile, pitch, from, plane, fill, static_cast<uint8_t>(flip ^ sign));
    } else {
      const K flipped = flip, of_nan = nan;
      for_dtype(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if constexpr (sizeof(T) == sizeof(K))
          stage_elements<T>(tile, pitch, from, plane, fill, [=](T value) { return static_cast<K>(to_key<T>(value, of_nan) ^ flipped); });
      });
    }
  }

  // The bits of the element with this key.
  __device__ K bits(Wide flipped) const {
    const K key = static_cast<K>(flipped) ^ flip;
    // Inverts to_key(): unsigned keys are the bits, signed ones have the sign bit flipped, and those of negative floats have all bits inverted.
    if constexpr (sizeof(K) == 1) return static_cast<K>(key ^ sign);
    return floating ? static_cast<K>(key & kSign ? key ^ kSign : ~key) : static_cast<K>(key ^ sign);
  }
#endif
};

}  // namespace ndd::stencil
