// SPDX-License-Identifier: Apache-2.0
// The pool of large host buffers, for native code: see host_memory.cpp.
#pragma once

#include <cstddef>
#include <optional>

#include "ndd/samples.h"

namespace ndd {

struct HostBlock {
  void* data;
  size_t bytes;  // at least what was asked for
};

constexpr size_t kPooledHostMemory = size_t{2} << 20;  // smaller buffers are malloc's job

// std::bad_alloc when there is none.
HostBlock take_host_memory(size_t bytes);
void give_back_host_memory(void* data, size_t bytes);

// Memory that torch has pinned, for buffers of a size that goes to GPUs (torch_ndd/_upload.py); nothing for others, and where there is none. A GPU
// reads it after cudaMemcpyAsync has returned: only torch's own copies tell torch's allocator of that.
std::optional<Tensor> pinned_host_memory(size_t bytes);

}  // namespace ndd
