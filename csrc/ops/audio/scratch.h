// SPDX-License-Identifier: Apache-2.0
// Scratch memory that a thread keeps for its next sample.
#pragma once

#include "ndd/line_vector.h"

namespace ndd::audio {

// A vector of at least so many elements. What a very long signal needed is given back before the next one.
template <class T>
T* scratch_of(LineVector<T>& kept, size_t elements) {
  constexpr size_t kMostKept = size_t{16} << 20;  // bytes
  if (kept.size() * sizeof(T) > kMostKept && elements * sizeof(T) <= kMostKept) LineVector<T>().swap(kept);
  if (kept.size() < elements) kept.resize(elements);
  return kept.data();
}

}  // namespace ndd::audio
