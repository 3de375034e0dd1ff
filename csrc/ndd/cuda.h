// SPDX-License-Identifier: Apache-2.0
// What the launcher of a CUDA kernel needs: scratch memory and tables from torch's allocator, the current stream, and error checks.
//
// Everything refers to the current device, which NDD_KERNEL has set to that of the tensors. The calls return without waiting for the device. A
// launcher passes its per-sample descriptors as a KernelTable, launches once for the whole batch, and calls check_launch.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "ndd/error.h"
#include "ndd/hd.h"
#include "ndd/tensor.h"

namespace ndd {

inline int current_cuda_device() {
  int device = 0;
  cudaGetDevice(&device);
  return device;
}

inline cudaStream_t current_cuda_stream() { return static_cast<cudaStream_t>(current_stream_of(current_cuda_device())); }

inline void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error; otherwise check_launch would blame the next launch for it
  fail(what, ": CUDA error: ", cudaGetErrorString(status));
}

// Of the current device, for the size of a grid that fills it in a single wave: each further wave costs 1 to 2 us. Never for what a result depends on:
// reductions divide into chunks by a constant, because the order of a sum must be the same on every device.
inline int64_t multiprocessors() {
  int count = 1;
  check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, current_cuda_device()), "cudaDeviceGetAttribute");
  return count;
}

// The grid of a kernel whose threads stride over the elements of a sample in x and over the samples in y. A launch may have 65535 blocks in y; 2^16 in x
// keep any GPU busy for many waves.
inline dim3 batch_grid(int64_t elements, int64_t elements_per_block, int64_t samples, int64_t max_blocks = 1 << 16) {
  return dim3(static_cast<unsigned>(std::clamp<int64_t>((elements + elements_per_block - 1) / elements_per_block, 1, max_blocks)),
              static_cast<unsigned>(std::min<int64_t>(samples, 65535)));
}

inline void check_launch(const char* op) { check_cuda(cudaGetLastError(), op); }

// Uninitialized memory of the current device, ordered by the current stream: it may be destroyed right after the launch that uses it, because torch's
// allocator reuses freed memory in stream order.
class CudaBuffer {
 public:
  explicit CudaBuffer(int64_t bytes) : tensor_(cuda_tensor(bytes, current_cuda_device())) {}
  void* data() const { return tensor_.data_ptr(); }

 private:
  Tensor tensor_;
};

// Copies host values to the current device, on the current stream. The source may be freed when this returns, and the host does not wait for the
// device. A CUDA graph keeps the values of its capture (upload.cu).
void upload(void* to, const void* from, size_t bytes, const char* what);

// A table of host values, copied to the current device. For what kernels search or follow by pointers; rows that a kernel takes by their number
// travel faster as a KernelTable.
template <class T>
class CudaTable {
 public:
  explicit CudaTable(const std::vector<T>& values) : buffer_(static_cast<int64_t>(values.size() * sizeof(T))) {
    upload(buffer_.data(), values.data(), values.size() * sizeof(T), "copying a table to the device");
  }
  const T* data() const { return static_cast<const T*>(buffer_.data()); }

 private:
  CudaBuffer buffer_;
};

// Rows up to this size travel in the parameters of their launch. All of it is copied at every launch, which costs less than 1 us (a prediction); a
// copy to the device costs 6 us and needs an allocation. From CUDA 12.1 on, a kernel may have parameters of 32764 bytes: seven such tables.
#ifndef NDD_TABLE_BYTES
#define NDD_TABLE_BYTES 4096
#endif
constexpr size_t kTableBytes = NDD_TABLE_BYTES;

// Tells nvcc that pointers are to global memory, where it has lost sight of that and would use generic instructions, which wait for shared memory too.
template <class... T>
NDD_HD void assume_global([[maybe_unused]] T*... pointers) {
#if defined(__CUDA_ARCH__) && defined(__NVCC__)
  (__builtin_assume(__isGlobal(pointers)), ...);
#endif
}

// The rows of a table, as a kernel takes them: `const __grid_constant__ TableRows<T> rows`. Without __grid_constant__, nvcc copies all rows to the
// local memory of each thread.
template <class T>
class TableRows {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 16);

 public:
  NDD_HD const T& operator[](int64_t k) const { return data()[k]; }
  // The window of parameters is part of global memory (PTX ISA, generic addressing), so the kernel is compiled as for a pointer to a table. With a
  // branch between two address spaces, nvcc duplicated loops, and the kernels of resize spilled up to 200 bytes of registers.
  NDD_HD const T* data() const {
    const T* rows = memory_ != nullptr ? memory_ : reinterpret_cast<const T*>(parameters_);
#if defined(__CUDA_ARCH__) && defined(__NVCC__)
    asm("" : "+l"(rows));  // hides the choice, or nvcc would compile a loop for each
#endif
    assume_global(rows);
    return rows;
  }

 private:
  template <class>
  friend class KernelTable;

  const T* memory_ = nullptr;  // device memory; null if the rows are `parameters_`
  alignas(16) unsigned char parameters_[kTableBytes];
};

// A table of host values for one launch, among its parameters or in device memory. May be destroyed after the launch.
template <class T>
class KernelTable {
 public:
  // `in_memory`: another kernel will complete the rows, in memory().
  explicit KernelTable(const std::vector<T>& values, bool in_memory = false) {
    const size_t bytes = values.size() * sizeof(T);
    if (in_memory || bytes > kTableBytes) rows_.memory_ = memory_.emplace(values).data();
    else if (bytes > 0) std::memcpy(rows_.parameters_, values.data(), bytes);
  }
  const TableRows<T>& rows() const { return rows_; }
  T* memory() const { return const_cast<T*>(rows_.memory_); }

 private:
  TableRows<T> rows_;
  std::optional<CudaTable<T>> memory_;
};

}  // namespace ndd
