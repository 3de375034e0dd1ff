// SPDX-License-Identifier: Apache-2.0
// NDD_KERNEL(op, CPU, function) registers `function` as the kernel of torch.ops.ndd.<op>. The schema is derived in Python from the operator's
// signature; the C++ types recorded here are compared with it at import (torch_ndd/_core/native.py).
// NDD_FUNCTION(name, "(int bytes) -> Tensor", function) makes torch.ops.ndd.<name> of a function that is no operator.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ndd/error.h"
#include "ndd/samples.h"
#include "ndd/stream/stream.h"
#include "ndd/tensor.h"

namespace ndd::detail {

// A type of parameters: its name in a schema, and the value that torch's dispatcher hands over in 8 bytes. To be taken once.
template <class T>
struct Parameter;

#define NDD_PARAMETER(type, schema)             \
  template <>                                   \
  struct Parameter<type> {                      \
    static constexpr const char* name = schema; \
    static type take(uint64_t value);           \
  };
NDD_PARAMETER(Tensor, "Tensor")
NDD_PARAMETER(MaybeTensor, "Tensor?")
NDD_PARAMETER(std::vector<Tensor>, "Tensor[]")
NDD_PARAMETER(int64_t, "int")
NDD_PARAMETER(std::vector<int64_t>, "int[]")
NDD_PARAMETER(DType, "ScalarType")
NDD_PARAMETER(double, "float")
NDD_PARAMETER(bool, "bool")
NDD_PARAMETER(std::string, "str")
#undef NDD_PARAMETER

uint64_t given(const Tensor& result);
void check_counts(uint64_t arguments, size_t parameters, uint64_t results, size_t returned);

// Within its life this thread works on the device of the first tensor that is on one.
class DeviceScope {
 public:
  DeviceScope() = default;
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

  void enter(const Tensor& tensor);
  template <class T>
  void enter(const T&) {}

 private:
  void* guard_ = nullptr;
};

// A kernel with the arguments of one call, to run on other inputs of the same shape and type: what repeat.cpp keeps.
class KeptCall {
 public:
  virtual ~KeptCall() = default;
  virtual void run(const Tensor& input, const Tensor& output) const = 0;
};

// Whether a call with this input is to be kept, instead of run.
bool keeps_call(const Tensor& input);
void keep_call(std::unique_ptr<const KeptCall> call, const Tensor& input, const Tensor& output);

// The same for kernels of one signature. Parameters: values and shapes of the input, arguments, values and shapes of the output.
template <class... A>
class KeptArguments final : public KeptCall {
 public:
  KeptArguments(void (*function)(A...), const std::decay_t<A>&... values) : function_(function), values_(values...) {}
  void run(const Tensor& input, const Tensor& output) const override { run(input, output, std::index_sequence_for<A...>()); }

 private:
  template <size_t... k>
  void run(const Tensor& input, const Tensor& output, std::index_sequence<k...>) const {
    function_(value<k>(input, output)...);
  }
  template <size_t k>
  decltype(auto) value(const Tensor& input, const Tensor& output) const {
    if constexpr (k == 0) return (input);
    else if constexpr (k == sizeof...(A) - 2) return (output);
    else return (std::get<k>(values_));
  }

  void (*function_)(A...);
  std::tuple<std::decay_t<A>...> values_;
};

// Whether a kernel has one input and one output.
template <class... A>
constexpr bool can_be_kept() {
  if constexpr (sizeof...(A) < 4) {
    return false;
  } else {
    using All = std::tuple<std::decay_t<A>...>;
    constexpr size_t count = sizeof...(A);
    return std::is_same_v<std::tuple_element_t<0, All>, Tensor> && std::is_same_v<std::tuple_element_t<1, All>, MaybeTensor> &&
           std::is_same_v<std::tuple_element_t<count - 2, All>, Tensor> && std::is_same_v<std::tuple_element_t<count - 1, All>, MaybeTensor>;
  }
}

using Boxed = void(uint64_t* stack, uint64_t arguments, uint64_t results);

// What is registered. A kernel works on the device of its tensors; inside a call from Python an ndd::Error keeps its type, which the dispatcher
// would lose, and anywhere else it becomes a RuntimeError.
template <auto function>
struct Entry;

template <class Result, class... A, Result (*function)(A...)>
struct Entry<function> {
  static constexpr const char* kTypes[] = {Parameter<std::decay_t<A>>::name..., nullptr};

  static void call(uint64_t* stack, uint64_t arguments, uint64_t results) {
    check_counts(arguments, sizeof...(A), results, std::is_void_v<Result> ? 0 : 1);
    take(stack, std::index_sequence_for<A...>());
  }

 private:
  template <size_t... k>
  static void take(uint64_t* stack, std::index_sequence<k...>) {
    run(stack, Parameter<std::decay_t<A>>::take(stack[k])...);
  }

  static void run(uint64_t* stack, const std::decay_t<A>&... values) {
    if constexpr (std::is_void_v<Result> && can_be_kept<A...>()) {
      const auto all = std::tie(values...);
      if (keeps_call(std::get<0>(all))) {
        return keep_call(std::make_unique<KeptArguments<A...>>(function, values...), std::get<0>(all), std::get<sizeof...(A) - 2>(all));
      }
    }
    DeviceScope scope;
    (scope.enter(values), ...);
    if constexpr (std::is_void_v<Result>) {
      try {
        function(values...);
      } catch (const Error& error) {
        if (!keep_error_of_call(error)) throw;
      }
    } else {
      stack[0] = given(function(values...));
    }
  }
};

// Registers a kernel for one of torch's backends, of an operator that Python defines or, with a schema, of one that is defined here. `types` are the
// names of its parameters' types, and null.
class Registration {
 public:
  Registration(const char* name, const char* backend, const char* schema, Boxed* kernel, const char* const* types, const char* file, int line);
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

 private:
  void* definition_ = nullptr;
  void* kernel_ = nullptr;
};

}  // namespace ndd::detail

#define NDD_REGISTER(name, backend, schema, function)                                                                              \
  static const ::ndd::detail::Registration ndd_##name##_##backend(#name, #backend, schema, &::ndd::detail::Entry<&function>::call, \
                                                                  ::ndd::detail::Entry<&function>::kTypes, __FILE__, __LINE__);
#define NDD_KERNEL(op, backend, function) NDD_REGISTER(op, backend, nullptr, function)
#define NDD_FUNCTION(name, schema, function) NDD_REGISTER(name, CompositeExplicitAutograd, schema, function)

// The same function for both. Where there is nvcc, such a .cu is compiled twice: as C++ for the CPU and by nvcc for CUDA (cuda/CMakeLists.txt). Each
// registers its half. What differs between the halves (#ifdef __CUDACC__, launch_cpu) is static or in an anonymous namespace, in headers too. Otherwise
// the linker takes the CUDA half for both, and every test of the operator fails on the CPU.
#if defined(__NVCC__)
#define NDD_KERNELS(op, function) NDD_KERNEL(op, CUDA, function)
#elif defined(__CUDACC__)  // both at once: tests/emulated_cuda
#define NDD_KERNELS(op, function) NDD_KERNEL(op, CPU, function) NDD_KERNEL(op, CUDA, function)
#else
#define NDD_KERNELS(op, function) NDD_KERNEL(op, CPU, function)
#endif

// The same for a .cpp: a function without code of its own for the device, which leaves that to a driver (slice/slice.h, color/matrix.h) or works on the
// host. The C++ compiler makes both at once in 0.8 s, nvcc alone takes 3.
#ifdef NDD_CUDA
#define NDD_HOST_KERNELS(op, function) NDD_KERNEL(op, CPU, function) NDD_KERNEL(op, CUDA, function)
#else
#define NDD_HOST_KERNELS(op, function) NDD_KERNEL(op, CPU, function)
#endif
