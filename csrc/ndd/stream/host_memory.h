// SPDX-License-Identifier: Apache-2.0
// The pool of large host buffers, for native code: see host_memory.cpp.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "ndd/tensor.h"

namespace ndd {

struct HostBlock {
  void* data;
  size_t bytes;  // at least what was asked for
};

constexpr size_t kPooledHostMemory = size_t{2} << 20;  // smaller buffers are malloc's job

// Error::Memory when there is none.
HostBlock take_host_memory(size_t bytes);
void give_back_host_memory(void* data, size_t bytes);

// Bytes that this process can have at most: the memory of the machine with its swap space, or what a container or `ulimit -v` leaves of it. The system
// promises more than that, and ends the process when it is used.
size_t most_host_memory();
// Error::Memory for more than that, with the size.
void check_host_memory(size_t bytes);

// The exponent of the power of two that `bytes` of pinned memory are rounded up to, by torch as well.
int size_class(size_t bytes);

// Memory that torch has pinned, for buffers of a size that goes to GPUs (torch_ndd/_core/work/upload.py); nothing for others, and where there is none. A GPU
// reads it after cudaMemcpyAsync has returned: only torch's own copies tell torch's allocator of that.
std::optional<Tensor> pinned_host_memory(size_t bytes);

// A tensor for an output of a shape that was allocated before; nothing where it has to be pinned, or where there is no memory.
std::optional<Tensor> unfilled_output(const std::vector<int64_t>& shape, DType dtype);

}  // namespace ndd
