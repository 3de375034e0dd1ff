// SPDX-License-Identifier: Apache-2.0
// Keys: elements mapped to unsigned integers of the same size that sort in the same order. Filters by rank (minimum, maximum, median) are compiled
// for four key types instead of thirteen element types, and NaN gets a defined place.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ndd/dtypes.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/hd.h"
#include "ndd/same_bits.h"

namespace ndd {

template <size_t bytes>
struct KeyOfSize;
template <>
struct KeyOfSize<1> {
  using type = uint8_t;
};
template <>
struct KeyOfSize<2> {
  using type = uint16_t;
};
template <>
struct KeyOfSize<4> {
  using type = uint32_t;
};
template <>
struct KeyOfSize<8> {
  using type = uint64_t;
};

template <class T>
using Key = typename KeyOfSize<sizeof(T)>::type;

// NaN becomes the key `nan`, which must be 0 or the maximum: both convert back to NaN.
template <class T>
NDD_HD Key<T> to_key(T value, Key<T> nan) {
  using K = Key<T>;
  constexpr K sign = static_cast<K>(K{1} << (8 * sizeof(K) - 1));
  const K bits = same_bits<K>(value);
  if constexpr (is_floating<T>) {
    // IEEE floats sort like sign-magnitude integers: flipping all bits of negative ones, and the sign of the others, makes them unsigned.
    const K key = static_cast<K>(bits & sign ? ~bits : bits | sign);
    return static_cast<float>(value) == static_cast<float>(value) ? key : nan;
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<K>(bits ^ sign);
  } else {
    return bits;
  }
}

template <class T>
NDD_HD T from_key(Key<T> key) {
  using K = Key<T>;
  constexpr K sign = static_cast<K>(K{1} << (8 * sizeof(K) - 1));
  K bits = key;
  if constexpr (is_floating<T>) bits = static_cast<K>(key & sign ? key ^ sign : ~key);
  else if constexpr (std::is_signed_v<T>) bits = static_cast<K>(key ^ sign);
  return same_bits<T>(bits);
}

// Calls f(TypeTag<K>{}) with the key type of `dtype`.
template <class F>
void for_key(DType dtype, F&& f) {
  for_bytes(item_bytes(dtype), f);
}

// Access to single elements of a type known at run time, for device code.
template <class K>
NDD_HD K load_key(const void* data, DType dtype, int64_t i, K nan) {
  K key{};
  for_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (sizeof(T) == sizeof(K)) key = to_key<T>(static_cast<const T*>(data)[i], nan);
  });
  return key;
}

template <class K>
NDD_HD void store_key(K key, void* data, DType dtype, int64_t i) {
  for_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (sizeof(T) == sizeof(K)) static_cast<T*>(data)[i] = from_key<T>(key);
  });
}

}  // namespace ndd
