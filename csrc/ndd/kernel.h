// SPDX-License-Identifier: Apache-2.0
// NDD_KERNEL(op, CPU, function) registers `function` as the kernel of torch.ops.ndd.<op>. The schema is derived in Python from the operator's
// signature; the C++ types recorded here are compared with it at import (torch_ndd/_native.py).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>

#include "ndd/error.h"
#include "ndd/samples.h"
#include "ndd/stream.h"

namespace ndd {

namespace detail {

template <class T>
struct SchemaType;
template <>
struct SchemaType<Tensor> {
  static constexpr const char* name = "Tensor";
};
template <>
struct SchemaType<MaybeTensor> {
  static constexpr const char* name = "Tensor?";
};
template <>
struct SchemaType<std::vector<Tensor>> {
  static constexpr const char* name = "Tensor[]";
};
template <>
struct SchemaType<int64_t> {
  static constexpr const char* name = "int";
};
template <>
struct SchemaType<double> {
  static constexpr const char* name = "float";
};
template <>
struct SchemaType<bool> {
  static constexpr const char* name = "bool";
};
template <>
struct SchemaType<std::string> {
  static constexpr const char* name = "str";
};

void record_kernel(const char* op, const char* backend, const std::string& types);

template <class T>
void set_device_of(const T& argument, std::optional<torch::stable::accelerator::DeviceGuard>& guard) {
  if constexpr (std::is_same_v<T, Tensor>) {
    if (!guard && argument.is_cuda()) guard.emplace(argument.get_device_index());
  }
}

// What is registered: the kernel on the device of its tensors. Inside a call from Python an ndd::Error keeps its type, which the dispatcher
// would lose; anywhere else it becomes a RuntimeError.
template <auto kernel>
struct Entry;

template <class... A, void (*kernel)(A...)>
struct Entry<kernel> {
  static void call(A... arguments) {
    std::optional<torch::stable::accelerator::DeviceGuard> guard;
    (set_device_of<std::decay_t<A>>(arguments, guard), ...);
    try {
      kernel(std::forward<A>(arguments)...);
    } catch (const Error& error) {
      if (!keep_error_of_call(error)) throw;
    }
  }

  static std::string types() {
    std::string text;
    ((text += text.empty() ? "" : ",", text += SchemaType<std::decay_t<A>>::name), ...);
    return text;
  }
};

}  // namespace detail

}  // namespace ndd

#define NDD_KERNEL(op, backend, function)                                        \
  STABLE_TORCH_LIBRARY_IMPL(ndd, backend, library) {                             \
    library.impl(#op, TORCH_BOX(&::ndd::detail::Entry<&function>::call));        \
    ::ndd::detail::record_kernel(#op, #backend, ::ndd::detail::Entry<&function>::types()); \
  }

// The same function for both, in a .cu that is compiled as C++ where there is no nvcc.
#ifdef __CUDACC__
#define NDD_KERNELS(op, function) NDD_KERNEL(op, CPU, function) NDD_KERNEL(op, CUDA, function)
#else
#define NDD_KERNELS(op, function) NDD_KERNEL(op, CPU, function)
#endif
