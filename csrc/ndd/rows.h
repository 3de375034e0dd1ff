// SPDX-License-Identifier: Apache-2.0
// Rows of elements converted to and from float: how a driver serves every element type with one compute type.
#pragma once

#include <cstdint>

#include "ndd/dtypes.h"
#include "ndd/saturate.h"
#include "ndd/simd.h"

namespace ndd {

using LoadRow = void (*)(const void* row, int64_t n, float* staged);
using StoreRow = void (*)(const float* staged, int64_t n, void* row);

template <class T>
void load_row(const void* row, int64_t n, float* staged) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const T* __restrict src = static_cast<const T*>(row);
    float* __restrict dst = staged;
    const int64_t count = n;
    for (int64_t i = 0; i < count; ++i) dst[i] = static_cast<float>(src[i]);
  });
}

template <class T>
void store_row(const float* staged, int64_t n, void* row) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const float* __restrict src = staged;
    T* __restrict dst = static_cast<T*>(row);
    const int64_t count = n;
    for (int64_t i = 0; i < count; ++i) dst[i] = saturate<T>(src[i]);
  });
}

inline LoadRow row_loader(DType dtype) {
  LoadRow load = nullptr;
  for_dtype(dtype, [&](auto tag) { load = load_row<typename decltype(tag)::type>; });
  return load;
}

inline StoreRow row_storer(DType dtype) {
  StoreRow store = nullptr;
  for_dtype(dtype, [&](auto tag) { store = store_row<typename decltype(tag)::type>; });
  return store;
}

}  // namespace ndd
