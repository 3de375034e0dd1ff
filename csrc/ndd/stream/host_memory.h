// SPDX-License-Identifier: Apache-2.0
// The pool of large host buffers, for native code. See host_memory.cpp for why it exists. All functions are thread-safe, and blocks are aligned to 2
// MB (except under AddressSanitizer, where they come from malloc).
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "ndd/tensor.h"

namespace ndd {

struct HostBlock {
  void* data;
  size_t bytes;  // at least the requested size
};

constexpr size_t kPooledHostMemory = size_t{2} << 20;  // malloc handles smaller buffers well

// Throws Error::Memory when the memory cannot be allocated.
HostBlock take_host_memory(size_t bytes);
void give_back_host_memory(void* data, size_t bytes);

// The most bytes this process can use: the machine's memory and swap space, or what a container or `ulimit -v` leaves of it. The check is needed
// because Linux overcommits: it grants more than it has, and kills the process when the memory is touched.
size_t max_host_memory();
// Throws Error::Memory, naming the size, if `bytes` exceeds that limit.
void check_host_memory(size_t bytes);

// The exponent of the power of two that `bytes` of pinned memory are rounded up to. Torch rounds the same way.
int size_class(size_t bytes);

// Torch's pinned memory, for buffer sizes that are known to go to a GPU (torch_ndd/_core/work/upload.py); nullopt for other sizes, and when none is
// available. The GPU still reads it after cudaMemcpyAsync has returned, and only torch's own copies report that to torch's allocator.
std::optional<Tensor> pinned_host_memory(size_t bytes);

// An uninitialized tensor for an output of a shape that was allocated before; nullopt if it must be pinned or there is not enough memory. The caller
// then takes the ordinary path.
std::optional<Tensor> unfilled_output(const std::vector<int64_t>& shape, DType dtype);

}  // namespace ndd
