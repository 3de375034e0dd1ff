// SPDX-License-Identifier: Apache-2.0
// Every function forwards to torch's C interface and turns its error codes into exceptions.
#include "ndd/tensor.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>

#include "ndd/error.h"
#include "ndd/stream_scope.h"

#ifdef USE_CUDA
// One library serves CUDA and CPU-only torch. With the latter these symbols stay null, and no CUDA kernel is ever called. With the former they
// resolve because libtorch.so of a CUDA build depends on libtorch_cuda.so.
#pragma weak aoti_torch_get_current_cuda_stream
#pragma weak aoti_torch_create_cuda_stream_guard
#pragma weak aoti_torch_delete_cuda_stream_guard
#pragma weak torch_c10_cuda_check_msg
#pragma weak torch_c10_cuda_free_error_msg
#endif

namespace ndd {
namespace {

using torch::headeronly::DeviceType;
using torch::headeronly::ScalarType;
using Device = torch::stable::Device;

// A handle of our own to the same tensor; torch's object releases only its own.
Tensor ours(const torch::stable::Tensor& tensor) {
  AtenTensorHandle handle = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(tensor.get(), &handle));
  return Tensor(handle);
}

// An empty axis counts as one element, as in torch, so no stride is 0.
std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t step = 1;
  for (size_t d = shape.size(); d-- > 0; step *= std::max<int64_t>(shape[d], 1)) strides[d] = step;
  return strides;
}

}  // namespace

// The last copy releases torch's handle, from whatever thread: closures of the CPU stream hold tensors beyond the call.
Tensor::Tensor(AtenTensorOpaque* handle) : handle_(handle, [](AtenTensorHandle tensor) { aoti_torch_delete_tensor_object(tensor); }) {}
Tensor::Tensor(const Tensor& other) = default;
Tensor::Tensor(Tensor&& other) noexcept = default;
Tensor& Tensor::operator=(const Tensor& other) = default;
Tensor& Tensor::operator=(Tensor&& other) noexcept = default;
Tensor::~Tensor() = default;

void* Tensor::data_ptr() const {
  void* data = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(handle(), &data));
  return data;
}

DType Tensor::dtype() const {
  int32_t number = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(handle(), &number));
  return static_cast<DType>(static_cast<int>(torch::stable::detail::to<ScalarType>(torch::stable::detail::from(number))));
}

int64_t Tensor::dim() const {
  int64_t count = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(handle(), &count));
  return count;
}

const int64_t* Tensor::sizes() const {
  int64_t* extents = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(handle(), &extents));
  return extents;
}

int64_t Tensor::size(int64_t axis) const {
  int64_t extent = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_size(handle(), axis, &extent));
  return extent;
}

int64_t Tensor::stride(int64_t axis) const {
  int64_t step = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_stride(handle(), axis, &step));
  return step;
}

int64_t Tensor::numel() const {
  int64_t count = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_numel(handle(), &count));
  return count;
}

bool Tensor::is_cuda() const {
  int32_t type = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(handle(), &type));
  return type == aoti_torch_device_type_cuda();
}

bool Tensor::is_contiguous() const {
  bool contiguous = false;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_is_contiguous(handle(), &contiguous));
  return contiguous;
}

int Tensor::device_index() const {
  int32_t index = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(handle(), &index));
  return index;
}

namespace {
// In torch's allocators, so Python can return it without a copy.
Tensor unfilled_on(const std::vector<int64_t>& shape, DType dtype, int32_t type, int32_t device) {
  AtenTensorHandle handle = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<int64_t>(shape.size()), shape.data(), dense_strides(shape).data(),
                                                         static_cast<int32_t>(dtype), type, device, &handle));
  return Tensor(handle);
}
}  // namespace

Tensor unfilled_tensor(const std::vector<int64_t>& shape, DType dtype) { return unfilled_on(shape, dtype, aoti_torch_device_type_cpu(), 0); }
Tensor unfilled_cuda_tensor(const std::vector<int64_t>& shape, DType dtype, int device) {
  return unfilled_on(shape, dtype, aoti_torch_device_type_cuda(), device);
}

// torch calls `release` when the last tensor over this memory is gone, on whatever thread that happens.
Tensor tensor_over(void* data, const std::vector<int64_t>& shape, DType dtype, void (*release)(void* data, size_t size), size_t size) {
  const std::vector<int64_t> strides = dense_strides(shape);
  return ours(torch::stable::from_blob(data, shape, strides, Device(DeviceType::CPU), static_cast<ScalarType>(static_cast<int>(dtype)),
                                       [release, data, size](void*) { release(data, size); }));
}

Tensor tensor_over(void* data, int64_t bytes, void (*release)(void* data, size_t size), size_t size) {
  return tensor_over(data, {bytes}, DType::uint8, release, size);
}

Tensor pinned_tensor(int64_t bytes) { return ours(torch::stable::empty({bytes}, ScalarType::Byte, std::nullopt, Device(DeviceType::CPU), true)); }

// 1: without waiting for a GPU.
void copy_tensor(const Tensor& to, const Tensor& from) { STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(to.handle(), from.handle(), 1)); }

#ifdef USE_CUDA
Tensor cuda_tensor(int64_t bytes, int device) { return unfilled_cuda_tensor({bytes}, DType::uint8, device); }

void* current_stream_of(int device) {
  void* stream = nullptr;
  if (aoti_torch_get_current_cuda_stream(device, &stream) != 0) fail("there is no current CUDA stream");
  return stream;
}

StreamScope::StreamScope(void* stream, int device) : stream_(stream) {
  CUDAStreamGuardHandle guard = nullptr;
  if (aoti_torch_create_cuda_stream_guard(stream, device, &guard) != 0) fail("the CUDA stream cannot be made the current one");
  guard_ = guard;
}

StreamScope::~StreamScope() { aoti_torch_delete_cuda_stream_guard(static_cast<CUDAStreamGuardHandle>(guard_)); }
#endif

}  // namespace ndd
