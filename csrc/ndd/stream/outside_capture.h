// SPDX-License-Identifier: Apache-2.0
// Calls of CUDA by threads of the CPU stream while a CUDA graph is being captured.
#pragma once

#ifdef USE_CUDA

#include <cuda_runtime.h>

namespace ndd {

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
