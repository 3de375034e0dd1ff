// SPDX-License-Identifier: Apache-2.0
// Access to single elements of a type known only at run time, for device code. The switch takes the same branch throughout a launch: it costs a
// predicted branch next to a memory access, and saves a kernel (0.4 s of compilation) for every pair of input and output types.
#pragma once

#include <cstdint>

#include "ndd/dtypes.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/hd.h"

namespace ndd {

NDD_HD float load_element(const void* data, DType dtype, int64_t i) {
  float value = 0.0f;
  for_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    value = static_cast<float>(static_cast<const T*>(data)[i]);
  });
  return value;
}

NDD_HD void store_element(float value, void* data, DType dtype, int64_t i) {
  for_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    static_cast<T*>(data)[i] = saturate<T>(value);
  });
}

// Stores the first `count` of some numbers, `step` elements apart.
template <int kCount>
NDD_HD void store_elements(const float (&values)[kCount], int count, void* data, DType dtype, int64_t begin, int64_t step) {
  for_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* element = static_cast<T*>(data) + begin;
#pragma unroll
    for (int k = 0; k < kCount; ++k, element += step)
      if (k < count) *element = saturate<T>(values[k]);
  });
}

NDD_HD void copy_element(const void* from, int64_t i, void* to, int64_t k, DType dtype) {
  for_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    static_cast<T*>(to)[k] = static_cast<const T*>(from)[i];
  });
}

// The value that is read back after storing `value` as a dtype.
NDD_HD float as_stored(float value, DType dtype) {
  for_dtype(dtype, [&](auto tag) { value = static_cast<float>(saturate<typename decltype(tag)::type>(value)); });
  return value;
}

}  // namespace ndd
