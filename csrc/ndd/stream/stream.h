// SPDX-License-Identifier: Apache-2.0
// The CPU stream: kernels hand over their per-sample work and return, as a CUDA launch does.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "ndd/error.h"
#include "ndd/samples.h"
#include "ndd/stream/work.h"

namespace ndd {

// Runs `work(i)` for every sample, now or later, on any thread. `work` owns everything that it uses. `nanoseconds` is a rough cost of one
// sample: work of a few microseconds is not worth waking another thread. `inputs` are kept alive until the work is done.
void launch_cpu(std::string_view op, int64_t samples, double nanoseconds, const std::vector<Tensor>& inputs, Work work);

// What pending work computes, in the words of its operator: a later call may do it itself, as a part of its own work.
struct Formula {
  virtual ~Formula() = default;
};
using FormulaPtr = std::shared_ptr<const Formula>;

// The formula of the pending work that fills `data`, if that has not begun; null where there is none.
FormulaPtr pending_formula(const void* data);

// How work is done together with what it reads.
struct Fusion {
  FormulaPtr formula;                 // of this work, for later calls; or null
  const void* result = nullptr;       // what this work fills
  std::vector<const void*> computed;  // pending results that this work computes itself instead of reading them
  bool droppable = false;             // it cannot fail, so nobody need do it when nobody can see the result
};

// As launch_cpu, for work that others may do, or that does the work of others.
void launch_fused(std::string_view op, int64_t samples, double nanoseconds, Work work, Fusion fusion);

#ifdef __NVCC__
// nvcc compiles the CUDA half of a kernel (ndd/kernel.h): these are taken there, so that no code is made for the work of the CPU.
template <class Function>
[[noreturn]] void launch_cpu(std::string_view op, int64_t, double, const std::vector<Tensor>&, Function&&) {
  fail(op, ": the CUDA half of the kernel was given tensors of the CPU");
}
template <class Function>
[[noreturn]] void launch_fused(std::string_view op, int64_t, double, Function&&, const Fusion&) {
  fail(op, ": the CUDA half of the kernel was given tensors of the CPU");
}
#endif

// Keeps the error of a kernel that failed at the call, with its type, for the Python caller; false when this is no call from Python.
bool keep_error_of_call(const Error& error);

}  // namespace ndd
