// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ndd/dtypes.h"

namespace ndd {

// Elements in a row as another type, as saturate<Out> has it.
void convert_run(const void* from, DType in, int64_t n, void* to, DType out);

}  // namespace ndd
