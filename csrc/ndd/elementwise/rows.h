// SPDX-License-Identifier: Apache-2.0
// Conversion of rows of elements to and from float or double: how a driver serves every element type while computing in one type. Look the function
// up once per sample, then call it for rows that fit in the L1 cache. Any alignment.
#pragma once

#include <cstdint>

#include "ndd/dtypes.h"

namespace ndd {

using LoadRow = void (*)(const void* row, int64_t n, float* staged);
template <class Value>
using StoreRowOf = void (*)(const Value* staged, int64_t n, void* row);
using StoreRow = StoreRowOf<float>;

LoadRow row_loader(DType dtype);
// Stores convert as saturate() does. Value is float or double.
template <class Value = float>
StoreRowOf<Value> row_storer(DType dtype);

}  // namespace ndd
