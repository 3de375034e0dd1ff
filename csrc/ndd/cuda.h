// SPDX-License-Identifier: Apache-2.0
// What the launcher of a CUDA kernel needs: scratch memory and tables from torch's allocator, the current stream, and error checks.
//
// Everything refers to the current device, which NDD_KERNEL has set to that of the tensors. The calls return without waiting for the device. A
// launcher copies its per-sample descriptors with CudaTable, launches once for the whole batch, and calls check_launch.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ndd/error.h"
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

// A table of host values, copied to the current device.
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

}  // namespace ndd
