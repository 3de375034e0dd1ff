// SPDX-License-Identifier: Apache-2.0
// Copies and address computations for readers, which in Python would take a loop over the samples.
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

// Finds the bytes of `n` texts in Arrow's arrays: text k is number rows[k] of an array, begins at the address begins[places[k]], and has
// lengths[places[k]] bytes. An array is four numbers: address of its offsets, their size (4 or 8 bytes), address of its data, and how many of the texts,
// one array after the other, are of it. Returns the sum of all lengths.
NDD_EXPORT(keep, int64_t, ndd_find_texts,
           (const int64_t* arrays, int64_t count, const int64_t* rows, const int64_t* places, int64_t* begins, int64_t* lengths)) {
  int64_t total = 0;
  for (int64_t a = 0; a < count; ++a, arrays += 4) {
    const auto offsets = static_cast<uintptr_t>(arrays[0]);
    const auto offset_of = [&](int64_t row) -> int64_t {
      return arrays[1] == 4 ? reinterpret_cast<const int32_t*>(offsets)[row] : reinterpret_cast<const int64_t*>(offsets)[row];
    };
    for (int64_t k = 0; k < arrays[3]; ++k, ++rows, ++places) {
      const int64_t first = offset_of(*rows), length = offset_of(*rows + 1) - first;
      begins[*places] = arrays[2] + first;
      lengths[*places] = length;
      total += length;
    }
  }
  return total;
}
