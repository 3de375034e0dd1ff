// SPDX-License-Identifier: Apache-2.0
// The boundary to torch's dispatcher: arguments, results, registration. With tensor.cpp the only file that includes torch's headers.
#include "ndd/kernel.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/stableivalue_conversions.h>

#include <set>

#include "ndd/python_interface.h"
#include "ndd/stream/owned.h"

namespace ndd::detail {
namespace {

using torch::stable::detail::to;

// Function-local static variables, because kernels are registered during static initialization, in unspecified order.
std::string& records() {
  static std::string text;
  return text;
}

// Kernels of an extension whose names were already taken. They are recorded here and skipped, because torch would abort the process.
std::string& refused() {
  static std::string text;
  return text;
}

bool is_new(const std::string& kernel) {
  static std::set<std::string> known;
  return known.insert(kernel).second;
}

}  // namespace

// The kernel owns the handles on the stack: each Tensor deletes its own.
Tensor Parameter<Tensor>::take(uint64_t value) { return Tensor(to<AtenTensorHandle>(value)); }

MaybeTensor Parameter<MaybeTensor>::take(uint64_t value) {
  const auto handle = to<std::optional<AtenTensorHandle>>(value);
  return handle ? MaybeTensor(Tensor(*handle)) : std::nullopt;
}

std::vector<Tensor> Parameter<std::vector<Tensor>>::take(uint64_t value) {
  std::vector<Tensor> tensors;
  for (const AtenTensorHandle handle : to<std::vector<AtenTensorHandle>>(value)) tensors.emplace_back(handle);
  return tensors;
}

int64_t Parameter<int64_t>::take(uint64_t value) { return to<int64_t>(value); }
std::vector<int64_t> Parameter<std::vector<int64_t>>::take(uint64_t value) { return to<std::vector<int64_t>>(value); }
DType Parameter<DType>::take(uint64_t value) { return static_cast<DType>(static_cast<int>(to<torch::headeronly::ScalarType>(value))); }
double Parameter<double>::take(uint64_t value) { return to<double>(value); }
bool Parameter<bool>::take(uint64_t value) { return to<bool>(value); }
std::string Parameter<std::string>::take(uint64_t value) { return to<std::string>(value); }

void store_results(uint64_t* stack, const Tensor& result) { stack[0] = to_ivalue(result); }

void store_results(uint64_t* stack, const std::pair<MaybeTensor, int64_t>& results) {
  stack[0] = to_ivalue(results.first);
  stack[1] = torch::stable::detail::from(results.second);
}

// A second handle to the same tensor, which whoever takes the value owns.
uint64_t to_ivalue(const Tensor& tensor) {
  AtenTensorHandle handle = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(tensor.handle(), &handle));
  return torch::stable::detail::from(handle);
}

uint64_t to_ivalue(const MaybeTensor& tensor) {
  if (!tensor) return torch::stable::detail::from(std::nullopt);
  AtenTensorHandle handle = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(tensor->handle(), &handle));
  return torch::stable::detail::from(std::optional<AtenTensorHandle>(handle));
}

uint64_t to_ivalue(const std::vector<Tensor>& tensors) {
  std::vector<AtenTensorHandle> handles(tensors.size());
  for (size_t k = 0; k < tensors.size(); ++k) STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(tensors[k].handle(), &handles[k]));
  return torch::stable::detail::from(handles);
}

uint64_t to_ivalue(const std::string& text) { return torch::stable::detail::from(text); }
uint64_t to_ivalue(const std::vector<int64_t>& numbers) { return torch::stable::detail::from(numbers); }

void check_counts(uint64_t arguments, size_t parameters, uint64_t results, size_t returned) {
  if (arguments != parameters) fail("the schema has ", arguments, " arguments, the kernel ", parameters);
  if (results != returned) fail("the schema has ", results, " results, the kernel ", returned);
}

bool keep_call(Boxed* kernel, const char* const* types, uint64_t* stack, uint64_t arguments) {
  if (plan_waits) keep_for_plan(kernel, types, stack, arguments);
  else if (launch_waits) queue_launch(kernel, types, stack, arguments);
  else return false;
  return true;
}

void DeviceScope::enter(const Tensor& tensor) {
  // The first CUDA tensor of a call decides.
  if (guard_ != nullptr || !tensor.is_cuda()) return;
  DeviceGuardHandle guard = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_create_device_guard(tensor.device_index(), &guard));
  guard_ = guard;
}

DeviceScope::~DeviceScope() {
  if (guard_ != nullptr) aoti_torch_delete_device_guard(static_cast<DeviceGuardHandle>(guard_));
}

Registration::Registration(const char* name, const char* backend, const char* schema, Boxed* kernel, const char* const* types, const char* file,
                           int line) {
  if (!is_new(std::string(name) + ' ' + backend)) {
    refused() += std::string(name) + ' ' + backend + '\n';
    return;
  }
  TorchLibraryHandle library = nullptr;
  if (schema != nullptr) {
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_library_init_fragment("ndd", file, static_cast<uint32_t>(line), &library));
    definition_ = library;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_library_def(library, (std::string(name) + schema).c_str()));
  } else {
    records() += std::string(name) + ' ' + backend + ' ';
    for (const char* const* type = types; *type != nullptr; ++type) records() += std::string(type == types ? "" : ",") + *type;
    records() += '\n';
  }
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_library_init_impl("ndd", backend, file, static_cast<uint32_t>(line), &library));
  kernel_ = library;
  STABLE_TORCH_ERROR_CODE_CHECK(torch_library_impl(library, name, kernel, TORCH_ABI_VERSION));
}

Registration::~Registration() {
  if (kernel_ != nullptr) aoti_torch_delete_library_object(static_cast<TorchLibraryHandle>(kernel_));
  if (definition_ != nullptr) aoti_torch_delete_library_object(static_cast<TorchLibraryHandle>(definition_));
}

}  // namespace ndd::detail

// One line per kernel: name, backend, parameter types. Python reads it through ctypes at import.
NDD_EXPORT(keep, const char*, ndd_kernels, ()) { return ndd::detail::records().c_str(); }
// Kernels that were not registered because their names were taken: name and backend.
NDD_EXPORT(keep, const char*, ndd_refused_kernels, ()) { return ndd::detail::refused().c_str(); }
