// SPDX-License-Identifier: Apache-2.0
// Launches on a GPU whose inputs are still being issued: they wait in the CPU stream, and the call returns (README.md, "The life of a queued launch").
#pragma once

#include <cstdint>
#include <vector>

#include "ndd/stream/operation.h"
#include "ndd/stream/work.h"

namespace ndd {

// In stream.cpp: makes `launch` the operation of this thread's call. It runs after everything that the call reads, and after `previous`, the launch
// before it on its CUDA stream, which may fail without consequences. `tensors` are what it owns until then; null: there is no previous one.
void queue_call(Work launch, std::vector<Tensor> tensors, const OperationPtr& previous);

// Puts this thread's call aside while it does the work of another one: an error must not become that of the open call.
class OutsideCall {
 public:
  OutsideCall();
  ~OutsideCall();
  OutsideCall(const OutsideCall&) = delete;
  OutsideCall& operator=(const OutsideCall&) = delete;

 private:
  void* call_;
};

}  // namespace ndd
