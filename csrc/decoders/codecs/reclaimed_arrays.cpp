// SPDX-License-Identifier: Apache-2.0
#include "decoders/codecs/reclaimed_arrays.h"

#include "decoders/codecs/redirected_symbol.h"

#include <algorithm>
#include <cstddef>
#include <new>
#include <vector>

namespace ndd {
namespace {

// The arrays that the JPEG extension has allocated on this thread and not deleted, while a ReclaimArrays exists. Decoding happens on the
// calling thread, see codec_instance.cpp, so no array is deleted by another one.
thread_local std::vector<void*> arrays;
thread_local bool watching = false;

void* new_array(size_t size) {
  void* array = ::operator new[](size);
  if (watching) arrays.push_back(array);
  return array;
}

void delete_array(void* array) {
  if (watching) arrays.erase(std::remove(arrays.begin(), arrays.end(), array), arrays.end());
  ::operator delete[](array);
}

}  // namespace

ReclaimArrays::ReclaimArrays() { watching = true; }

ReclaimArrays::~ReclaimArrays() {
  watching = false;
  arrays.clear();
}

void ReclaimArrays::free_lost() {
  for (void* array : arrays) ::operator delete[](array);
  arrays.clear();
}

void reclaim_arrays_of(const void* address_in_library) {
  // The mangled names of operator new[](size_t) and operator delete[](void*).
  redirect_symbol(address_in_library, "_Znam", reinterpret_cast<void*>(new_array));
  redirect_symbol(address_in_library, "_ZdaPv", reinterpret_cast<void*>(delete_array));
}

}  // namespace ndd
