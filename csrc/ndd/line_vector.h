// SPDX-License-Identifier: Apache-2.0
// A std::vector whose data starts on a cache line. malloc aligns to 16 bytes only, so it varies from run to run whether 32-byte loads straddle two
// lines; where they do, loops take 13 % longer.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace ndd {

// The least that std::vector requires of an allocator; instances have no state and are all equal.
template <class T>
struct LineAllocator {
  using value_type = T;

  LineAllocator() = default;
  template <class U>
  LineAllocator(const LineAllocator<U>&) {}

  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t{64})); }
  void deallocate(T* data, size_t) { ::operator delete(data, std::align_val_t{64}); }
  bool operator==(const LineAllocator&) const { return true; }
  bool operator!=(const LineAllocator&) const { return false; }
};

template <class T>
using LineVector = std::vector<T, LineAllocator<T>>;

}  // namespace ndd
