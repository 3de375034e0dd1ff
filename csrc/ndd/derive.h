// SPDX-License-Identifier: Apache-2.0
// What the kernels of some operators get besides their inputs follows from the shapes of the samples and from arguments with a number for each of them:
// windows, source regions, and the shapes of the output. A repeated call computes it in native code (stream/repeat.cpp), the first ones in Python.
#pragma once

#include <cstdint>

#include "ndd/python_interface.h"

namespace ndd {

// Fills `first` and `second`, tables with a row for each sample, as far as the kernel gets them, and `shapes` of the output, int64 (samples, ndim).
// `extents` has rows of `ndim` numbers, `stride` apart: 0 if all samples have one shape. Returns false if an argument is wrong: the caller explains it.
using Derive = bool(const int64_t* extents, int64_t stride, int64_t samples, int64_t ndim, const void* arguments, const int64_t* options, void* first,
                    void* second, int64_t* shapes);

}  // namespace ndd

// Begins the definition of such a function, with these names of its parameters.
#define NDD_DERIVE(name)                                                                                                     \
  NDD_EXPORT(keep, bool, name,                                                                                               \
             (const int64_t* extents, int64_t stride, int64_t samples, int64_t ndim, [[maybe_unused]] const void* arguments, \
              [[maybe_unused]] const int64_t* options, [[maybe_unused]] void* first, [[maybe_unused]] void* second, int64_t* shapes))
