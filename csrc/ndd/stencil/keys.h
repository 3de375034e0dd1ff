// SPDX-License-Identifier: Apache-2.0
// CPU side of the stencil driver: rows of keys, for filters by rank.
#pragma once

#include <cstdint>
#include <cstring>

#include "ndd/elementwise/order_keys.h"
#include "ndd/simd.h"

namespace ndd::stencil {

template <class K>
struct KeyRows {
  void (*load)(const void* row, int64_t n, K nan, K* keys);
  void (*store)(const K* keys, int64_t n, void* row);
  bool same;  // the keys equal the elements
};

template <class T>
void load_keys(const void* row, int64_t n, Key<T> nan, Key<T>* keys) {
  // Unsigned integers are their own keys.
  if constexpr (!is_floating<T> && !std::is_signed_v<T>) {
    std::memcpy(keys, row, n * sizeof(T));
  } else {
    with_simd([&]() NDD_ALWAYS_INLINE {
      const T* __restrict src = static_cast<const T*>(row);
      Key<T>* __restrict dst = keys;
      const int64_t count = n;
      const Key<T> of_nan = nan;
      for (int64_t i = 0; i < count; ++i) dst[i] = to_key<T>(src[i], of_nan);
    });
  }
}

template <class T>
void store_keys(const Key<T>* keys, int64_t n, void* row) {
  if constexpr (!is_floating<T> && !std::is_signed_v<T>) {
    std::memcpy(row, keys, n * sizeof(T));
  } else {
    with_simd([&]() NDD_ALWAYS_INLINE {
      const Key<T>* __restrict src = keys;
      T* __restrict dst = static_cast<T*>(row);
      const int64_t count = n;
      for (int64_t i = 0; i < count; ++i) dst[i] = from_key<T>(src[i]);
    });
  }
}

template <class K>
KeyRows<K> key_rows(DType dtype) {
  KeyRows<K> rows{};
  for_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    // Only the types of this size can occur.
    if constexpr (sizeof(T) == sizeof(K)) rows = {load_keys<T>, store_keys<T>, !is_floating<T> && !std::is_signed_v<T>};
  });
  return rows;
}

}  // namespace ndd::stencil
