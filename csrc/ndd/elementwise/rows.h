// SPDX-License-Identifier: Apache-2.0
// Rows of elements converted to and from float or double: how a driver serves every element type with one compute type.
#pragma once

#include <cstdint>

#include "ndd/dtypes.h"

namespace ndd {

using LoadRow = void (*)(const void* row, int64_t n, float* staged);
template <class Value>
using StoreRowOf = void (*)(const Value* staged, int64_t n, void* row);
using StoreRow = StoreRowOf<float>;

LoadRow row_loader(DType dtype);
// As saturate() has it. Value: float or double.
template <class Value = float>
StoreRowOf<Value> row_storer(DType dtype);

}  // namespace ndd
