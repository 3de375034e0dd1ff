// SPDX-License-Identifier: Apache-2.0
// Torch's tensors, through its stable C interface. Torch's own headers take 0.3 s to compile, 2 s with nvcc: only tensor.cpp and kernel.cpp have them.
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
  // Takes over the reference.
  explicit Tensor(AtenTensorOpaque* handle);
  // Not inline: every kernel passes tensors on, and takes longer to compile with what a shared_ptr does then.
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

// A contiguous tensor of torch's own memory, on the CPU.
Tensor unfilled_tensor(const std::vector<int64_t>& shape, DType dtype);
Tensor unfilled_cuda_tensor(const std::vector<int64_t>& shape, DType dtype, int device);
// A contiguous tensor over memory that release(data, size) frees. Tensors of bytes: there, in memory that torch pins, and on a GPU in stream order.
Tensor tensor_over(void* data, const std::vector<int64_t>& shape, DType dtype, void (*release)(void* data, size_t size), size_t size);
Tensor tensor_over(void* data, int64_t bytes, void (*release)(void* data, size_t size), size_t size);
Tensor pinned_tensor(int64_t bytes);
Tensor cuda_tensor(int64_t bytes, int device);

// Torch's current stream of the device.
void* current_stream_of(int device);

}  // namespace ndd
