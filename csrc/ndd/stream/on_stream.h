// SPDX-License-Identifier: Apache-2.0
// Work on a CUDA stream by a thread of the CPU stream.
#pragma once

#ifdef USE_CUDA

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cuda_runtime.h>

#include "ndd/error.h"

// Null where torch has no CUDA (see tensor.cpp).
#pragma weak aoti_torch_create_cuda_stream_guard
#pragma weak aoti_torch_delete_cuda_stream_guard

namespace ndd {

// Makes a device the current one of the thread, and a stream the one that torch allocates for, until it is destroyed.
class OnStream {
 public:
  OnStream(int device, cudaStream_t stream) {
    if (aoti_torch_create_cuda_stream_guard(stream, device, &guard_) != 0) fail("torch rejects a CUDA stream");
  }
  ~OnStream() { aoti_torch_delete_cuda_stream_guard(guard_); }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  CUDAStreamGuardHandle guard_ = nullptr;
};

// Lets this thread allocate, query and wait while another captures a CUDA graph, which these calls would otherwise invalidate.
class OutsideCapture {
 public:
  OutsideCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~OutsideCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace ndd

#endif
