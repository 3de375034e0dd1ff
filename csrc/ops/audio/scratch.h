// SPDX-License-Identifier: Apache-2.0
// Scratch memory that a thread keeps for its next sample.
#pragma once

#include "ndd/line_vector.h"

namespace ndd::audio {

// Returns at least `elements` elements. A buffer above kMaxKeptBytes is freed when a smaller one suffices, so one very long signal does not hold memory
// in every thread.
template <class T>
T* scratch_of(LineVector<T>& buffer, size_t elements) {
  constexpr size_t kMaxKeptBytes = size_t{16} << 20;  // bytes
  if (buffer.size() * sizeof(T) > kMaxKeptBytes && elements * sizeof(T) <= kMaxKeptBytes) LineVector<T>().swap(buffer);
  if (buffer.size() < elements) buffer.resize(elements);
  return buffer.data();
}

}  // namespace ndd::audio
