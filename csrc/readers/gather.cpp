// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstring>

#include "ndd/python_interface.h"

// Copies ranges of elements of `bytes` bytes, one after the other. If `values` is null and elements have one byte, begins are addresses.
NDD_EXPORT(release, void, ndd_gather, (const void* values, int64_t bytes, const int64_t* begins, const int64_t* lengths, int64_t n, char* out)) {
  for (int64_t k = 0; k < n; ++k) {
    const auto size = static_cast<size_t>(lengths[k] * bytes);
    if (size > 0) std::memcpy(out, reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(values) + uintptr_t(begins[k] * bytes)), size);
    out += size;
  }
}
