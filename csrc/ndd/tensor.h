// SPDX-License-Identifier: Apache-2.0
// A minimal tensor class over torch's stable C interface, so one binary works with several versions of torch. Torch's own headers take 0.3 s to
// compile, 2 s with nvcc: only tensor.cpp and kernel.cpp include them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ndd/dtypes.h"

struct AtenTensorOpaque;

namespace ndd {

class Tensor {
 public:
  // Takes ownership of the reference.
  explicit Tensor(AtenTensorOpaque* handle);
  // Out of line: every kernel passes tensors around, and compiles more slowly with the inlined code of a shared_ptr.
  Tensor(const Tensor& other);
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(const Tensor& other);
  Tensor& operator=(Tensor&& other) noexcept;
  ~Tensor();

  AtenTensorOpaque* handle() const { return handle_.get(); }
  void* data_ptr() const;
  DType dtype() const;
  int64_t dim() const;
  const int64_t* sizes() const;
  int64_t size(int64_t axis) const;
  int64_t stride(int64_t axis) const;
  int64_t numel() const;
  bool is_cuda() const;
  bool is_contiguous() const;
  int device_index() const;

 private:
  std::shared_ptr<AtenTensorOpaque> handle_;
};

using MaybeTensor = std::optional<Tensor>;

// An uninitialized contiguous tensor in torch's own memory, on the CPU or a GPU.
Tensor unfilled_tensor(const std::vector<int64_t>& shape, DType dtype);
Tensor unfilled_cuda_tensor(const std::vector<int64_t>& shape, DType dtype, int device);
// A contiguous tensor over existing memory, which release(data, size) frees; and uint8 tensors over such memory, in torch's pinned memory, and on a
// GPU (freed in stream order).
Tensor tensor_over(void* data, const std::vector<int64_t>& shape, DType dtype, void (*release)(void* data, size_t size), size_t size);
Tensor tensor_over(void* data, int64_t bytes, void (*release)(void* data, size_t size), size_t size);
Tensor pinned_tensor(int64_t bytes);
Tensor cuda_tensor(int64_t bytes, int device);

// Copies the values of a tensor of the same shape and type: on torch's current stream if one of them is on a GPU, without waiting if the other is pinned.
void copy_tensor(const Tensor& to, const Tensor& from);

// Torch's current CUDA stream of the device.
void* current_stream_of(int device);

}  // namespace ndd
