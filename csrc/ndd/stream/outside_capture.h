// SPDX-License-Identifier: Apache-2.0
// Calls of CUDA while another thread captures a CUDA graph. Only for sources that are compiled with CUDA, or with its emulator.
#pragma once

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
