// SPDX-License-Identifier: Apache-2.0
// The CPU stream: kernels hand over their per-sample work and return, as a CUDA launch does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ndd/error.h"
#include "ndd/samples.h"

namespace ndd {

// Runs `work(i)` for every sample, now or later, on any thread. `work` owns everything that it uses. `nanoseconds` is a rough cost of one
// sample: work of a few microseconds is not worth waking another thread. `inputs` are kept alive until the work is done.
void launch_cpu(const std::string& op, int64_t samples, double nanoseconds, const std::vector<Tensor>& inputs, std::function<void(int64_t)> work);

class Expression;  // ops/math/expression.h

// What the pending work that fills `data` computes, if it has not begun: the kernel under way may compute it itself. Null where there is none.
std::shared_ptr<const Expression> pending_formula(const void* data);

// As launch_cpu, for work that fills `result`: later calls may compute `formula` themselves instead of waiting. `inlined` are results that this
// work computes itself. `droppable`: it cannot fail, so nobody need do it when nobody can see the result.
void launch_formula(int64_t samples, double nanoseconds, std::function<void(int64_t)> work, std::shared_ptr<const Expression> formula, const void* result,
                    const std::vector<const void*>& inlined, bool droppable);

// Keeps the error of a kernel that failed at the call, with its type, for the Python caller; false when this is no call from Python.
bool keep_error_of_call(const Error& error);

}  // namespace ndd
