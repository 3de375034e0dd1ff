// SPDX-License-Identifier: Apache-2.0
// Registration of native functions with torch's dispatcher. This is the header that every operator includes.
//
// NDD_KERNEL(op, CPU, function) registers `function` as the CPU kernel of torch.ops.ndd.<op>. The schema comes from the operator's Python signature;
// the C++ parameter types recorded here are compared with it at import (torch_ndd/_core/native.py), so a mismatch is an error and not memory
// corruption.
//
// NDD_FUNCTION(name, "(int bytes) -> Tensor", function) defines torch.ops.ndd.<name> for a function that is not an operator.
//
// A kernel receives tensors that Python has checked and an allocated output that it fills. On the CPU it hands its work to launch_cpu
// (stream/stream.h) and returns; on CUDA it launches on the current stream of the tensors' device.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ndd/error.h"
#include "ndd/samples.h"
#include "ndd/stream/stream.h"
#include "ndd/tensor.h"

namespace ndd::detail {

// A parameter type: its name in a schema, and its conversion from the 8-byte value that torch's dispatcher passes. take() transfers ownership, so
// call it exactly once.
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

// The number of results in the schema of a function that returns Result.
template <class Result>
inline constexpr size_t kResults = 1;
template <>
inline constexpr size_t kResults<void> = 0;
template <>
inline constexpr size_t kResults<std::pair<MaybeTensor, int64_t>> = 2;
// Convert a value to a new reference in the dispatcher's 8-byte form.
uint64_t to_ivalue(const Tensor& tensor);
uint64_t to_ivalue(const MaybeTensor& tensor);
uint64_t to_ivalue(const std::vector<Tensor>& tensors);
uint64_t to_ivalue(const std::string& text);
uint64_t to_ivalue(const std::vector<int64_t>& numbers);
void store_results(uint64_t* stack, const Tensor& result);
void store_results(uint64_t* stack, const std::pair<MaybeTensor, int64_t>& results);

void check_counts(uint64_t arguments, size_t parameters, uint64_t results, size_t returned);

// Makes the device of the first CUDA tensor it sees the current one, until the end of the scope.
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

using Boxed = void(uint64_t* stack, uint64_t arguments, uint64_t results);

// True if something waits for this thread's next kernel call (stream/owned.h): it has then taken the arguments, and the kernel must not run.
bool keep_call(Boxed* kernel, const char* const* types, uint64_t* stack, uint64_t arguments);
// A plan keeps the call, in repeat.cpp, or a queue of launches on a GPU, in launches.cpp.
void keep_for_plan(Boxed* kernel, const char* const* types, uint64_t* stack, uint64_t arguments);
void queue_launch(Boxed* kernel, const char* const* types, uint64_t* stack, uint64_t arguments);

// The function that the dispatcher calls. It makes the device of the tensors current. Inside a call from Python an ndd::Error keeps its type, which
// the dispatcher would lose; otherwise it becomes a RuntimeError.
template <auto function>
struct Entry;

template <class Result, class... A, Result (*function)(A...)>
struct Entry<function> {
  static constexpr const char* kTypes[] = {Parameter<std::decay_t<A>>::name..., nullptr};

  static void call(uint64_t* stack, uint64_t arguments, uint64_t results) {
    check_counts(arguments, sizeof...(A), results, kResults<Result>);
    if (std::is_void_v<Result> && keep_call(&call, kTypes, stack, arguments)) return;
    take(stack, std::index_sequence_for<A...>());
  }

 private:
  template <size_t... k>
  static void take(uint64_t* stack, std::index_sequence<k...>) {
    run(stack, Parameter<std::decay_t<A>>::take(stack[k])...);
  }

  static void run(uint64_t* stack, const std::decay_t<A>&... values) {
    DeviceScope scope;
    (scope.enter(values), ...);
    if constexpr (std::is_void_v<Result>) {
      try {
        function(values...);
      } catch (const Error& error) {
        if (!keep_error_of_call(error)) throw;
      }
    } else {
      store_results(stack, function(values...));
    }
  }
};

// Registers a kernel for one of torch's backends, either of an operator that Python defines or, with a schema, of one defined here. `types` is the
// null-terminated list of the parameters' type names.
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

// Registers the same function for both backends. With nvcc such a .cu file is compiled twice, as C++ for the CPU and by nvcc for CUDA
// (cuda/CMakeLists.txt), and each compilation registers its half. Whatever differs between the halves (#ifdef __CUDACC__, launch_cpu) must therefore
// be static or in an anonymous namespace, in headers too. Otherwise the linker keeps one copy, the CUDA half, and every CPU test of the operator
// fails.
#if defined(__NVCC__)
#define NDD_KERNELS(op, function) NDD_KERNEL(op, CUDA, function)
#elif defined(__CUDACC__)  // one compilation for both: tests/emulated_cuda
#define NDD_KERNELS(op, function) NDD_KERNEL(op, CPU, function) NDD_KERNEL(op, CUDA, function)
#else
#define NDD_KERNELS(op, function) NDD_KERNEL(op, CPU, function)
#endif

// Like NDD_KERNELS, but for a .cpp file whose function has no device code of its own: it leaves that to a driver (slice/slice.h, color/matrix.h) or
// works on the host. The C++ compiler builds both registrations in 0.8 s; nvcc alone takes 3.
#ifdef NDD_CUDA
#define NDD_HOST_KERNELS(op, function) NDD_KERNEL(op, CPU, function) NDD_KERNEL(op, CUDA, function)
#else
#define NDD_HOST_KERNELS(op, function) NDD_KERNEL(op, CPU, function)
#endif
