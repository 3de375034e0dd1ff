// SPDX-License-Identifier: Apache-2.0
// A conversion loop for each element type and direction, shared by all drivers.
#include "ndd/elementwise/rows.h"

#include "ndd/elementwise/saturate.h"
#include "ndd/simd.h"

namespace ndd {
namespace {

template <class T>
void load_row(const void* row, int64_t n, float* staged) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const T* __restrict src = static_cast<const T*>(row);
    float* __restrict dst = staged;
    const int64_t count = n;
    for (int64_t i = 0; i < count; ++i) dst[i] = static_cast<float>(src[i]);
  });
}

template <class Value, class T>
void store_row(const Value* staged, int64_t n, void* row) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const Value* __restrict src = staged;
    T* __restrict dst = static_cast<T*>(row);
    const int64_t count = n;
    for (int64_t i = 0; i < count; ++i) dst[i] = saturate<T>(src[i]);
  });
}

}  // namespace

LoadRow row_loader(DType dtype) {
  LoadRow load = nullptr;
  for_dtype(dtype, [&](auto tag) { load = load_row<typename decltype(tag)::type>; });
  return load;
}

template <class Value>
StoreRowOf<Value> row_storer(DType dtype) {
  StoreRowOf<Value> store = nullptr;
  for_dtype(dtype, [&](auto tag) { store = store_row<Value, typename decltype(tag)::type>; });
  return store;
}

template StoreRowOf<float> row_storer<float>(DType dtype);
template StoreRowOf<double> row_storer<double>(DType dtype);

}  // namespace ndd
