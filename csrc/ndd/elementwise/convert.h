// SPDX-License-Identifier: Apache-2.0
// Conversion between any two element types, for rows.
#pragma once

#include <cstdint>

#include "ndd/dtypes.h"

namespace ndd {

// Converts a row of elements to another type, as saturate<Out> does. The pointers need only the alignment of their types.
void convert_run(const void* from, DType in, int64_t n, void* to, DType out);

}  // namespace ndd
