// SPDX-License-Identifier: Apache-2.0
// What a CUDA kernel's launcher needs: scratch memory and tables on torch's allocator, the current stream, the check after the launch.
#pragma once

#include <cuda_runtime.h>

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
  cudaGetLastError();  // CUDA keeps the error of any call, and the check after the next launch would take it for the launch's
  fail(what, ": CUDA error: ", cudaGetErrorString(status));
}

inline void check_launch(const char* op) { check_cuda(cudaGetLastError(), op); }

// Uninitialized memory of the current device, on the current stream: freed memory is reused in stream order.
class CudaBuffer {
 public:
  explicit CudaBuffer(int64_t bytes) : tensor_(cuda_tensor(bytes, current_cuda_device())) {}
  void* data() const { return tensor_.data_ptr(); }

 private:
  Tensor tensor_;
};

// Host values to the current device, on the current stream; they may be freed when this returns, and the host does not wait for the device. A CUDA
// graph keeps the values of its capture. upload.cu
void upload(void* to, const void* from, size_t bytes, const char* what);

// A copy of host values on the current device.
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
