// SPDX-License-Identifier: Apache-2.0
// The CPU stream, as kernels see it: they hand over their per-sample work and return, as a CUDA launch does. Include this to write a CPU kernel.
//
// A kernel supplies a function object that computes sample i. It may run on any thread, for different samples concurrently, after the kernel has
// returned; inputs that were pending when the kernel was called are complete by then. An exception that it throws becomes the error of its sample.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "ndd/error.h"
#include "ndd/samples.h"
#include "ndd/stream/work.h"

namespace ndd {

// Runs `work(i)` for every sample, now or later, on any thread. `work` must own everything it uses. `nanoseconds` is a rough cost per sample: work of
// a few microseconds is not worth waking another thread. `inputs` are kept alive until the work has finished.
void launch_cpu(std::string_view op, int64_t samples, double nanoseconds, const std::vector<Tensor>& inputs, Work work);

// Describes what pending work computes, in terms of its operator, so a later call can compute it as a part of its own work.
struct Formula {
  virtual ~Formula() = default;
};
using FormulaPtr = std::shared_ptr<const Formula>;

// The formula of the pending work that fills `data`; null if there is none or the work has already started.
FormulaPtr pending_formula(const void* data);

// How a piece of work combines with the work that it reads.
struct Fusion {
  FormulaPtr formula;                 // of this work, for later calls; or null
  const void* result = nullptr;       // what this work fills
  std::vector<const void*> computed;  // pending results that this work computes itself instead of reading
  bool droppable = false;             // cannot fail, so it may be skipped when its result is unreachable
};

// Like launch_cpu, for work that can be absorbed by later calls or that absorbs earlier ones.
void launch_fused(std::string_view op, int64_t samples, double nanoseconds, const std::vector<Tensor>& inputs, Work work, Fusion fusion);

// Like launch_cpu, for samples that are too small for vectors alone: work(g) computes several samples together, for each of `groups` groups, and reads
// all samples of its inputs. `nanoseconds` is the cost of a group.
void launch_groups(std::string_view op, int64_t samples, int64_t groups, double nanoseconds, Work work);

#ifdef __NVCC__
// nvcc compiles the CUDA half of a kernel (ndd/kernel.h). These overloads are chosen there, so it generates no code for the CPU work.
template <class Function>
[[noreturn]] void launch_cpu(std::string_view op, int64_t, double, const std::vector<Tensor>&, Function&&) {
  fail(op, ": the CUDA kernel was called with CPU tensors");
}
template <class Function>
[[noreturn]] void launch_fused(std::string_view op, int64_t, double, const std::vector<Tensor>&, Function&&, const Fusion&) {
  fail(op, ": the CUDA kernel was called with CPU tensors");
}
#endif

// Stores the error of a kernel that failed at the call, with its type, for the Python caller; false outside a call from Python.
bool keep_error_of_call(const Error& error);

}  // namespace ndd
