// SPDX-License-Identifier: Apache-2.0
// A call of a kernel that is made again and again, on other inputs of the same shape (torch_ndd/_core/replay.py): its arguments stay here, its result is
// allocated here. From Python, allocating 4 MB takes 3.4 us, handing eight arguments over 1.8; both together take 2.7 here.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "ndd/kernel.h"
#include "ndd/stream/host_memory.h"

namespace ndd {
namespace {

struct Repeat {
  std::unique_ptr<const detail::KeptCall> call;
  std::vector<int64_t> given, made;  // the shapes of the input and of the output
  DType in, out;
};

thread_local const void* input_of_kept = nullptr;  // while a call is to be kept
thread_local std::unique_ptr<const Repeat> kept;

std::vector<int64_t> shape_of(const Tensor& tensor) { return {tensor.sizes(), tensor.sizes() + tensor.dim()}; }

// `out`: the memory to fill, or none to allocate it.
Tensor repeat(const Tensor& values, int64_t handle, const MaybeTensor& out) {
  const Repeat& one = *reinterpret_cast<const Repeat*>(handle);
  const bool alike = values.dim() == static_cast<int64_t>(one.given.size()) && values.dtype() == one.in &&
                     std::equal(one.given.begin(), one.given.end(), values.sizes());
  if (!alike) fail("a call was repeated with another input than the first");
  try {
    const Tensor made = out ? *out : host_tensor(one.made, one.out);
    one.call->run(values, made);
    return made;
  } catch (const Error& error) {
    if (!keep_error_of_call(error)) throw;
  }
  return values;  // the caller raises the error instead
}

}  // namespace

namespace detail {

bool keeps_call(const Tensor& input) { return input_of_kept != nullptr && input.data_ptr() == input_of_kept; }

void keep_call(std::unique_ptr<const KeptCall> call, const Tensor& input, const Tensor& output) {
  kept.reset(new Repeat{std::move(call), shape_of(input), shape_of(output), input.dtype(), output.dtype()});
}

}  // namespace detail
}  // namespace ndd

#define NDD_EXPORT extern "C" __attribute__((visibility("default")))

// A kernel that is called between these with an input at this address is not run: Ctrl-C may come before the end, and others must not be taken for it.
// The end returns the handle of what is kept, or null: the kernel has several inputs or outputs.
NDD_EXPORT void ndd_keep_begin(const void* input) { ndd::input_of_kept = input; }
NDD_EXPORT void* ndd_keep_end() {
  ndd::input_of_kept = nullptr;
  return const_cast<ndd::Repeat*>(ndd::kept.release());
}
NDD_EXPORT void ndd_keep_release(void* handle) { delete static_cast<ndd::Repeat*>(handle); }

NDD_FUNCTION(repeat, "(Tensor values, int call, Tensor? out) -> Tensor", ndd::repeat)
