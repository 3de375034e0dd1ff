// SPDX-License-Identifier: Apache-2.0
// The steps after the codec on the GPU: orientation, YCbCr, the type of the output.
#pragma once

#if defined(USE_CUDA) || defined(__CUDACC__)

#include "decoders/orientation.h"
#include "ndd/dtypes.h"

#include <cuda_runtime.h>

namespace ndd {

// uint8 samples as stored by a codec, and the output: `height` x `width` pixels as displayed, with the same number of channels.
struct DevicePixels {
  const uint8_t* stored;
  Orientation orientation;
  bool ycbcr;  // from RGB
  int channels;
  int64_t height, width;
  void* out;
  DType dtype;
};

void finish_pixels(const DevicePixels& pixels, cudaStream_t stream);

}  // namespace ndd

#endif
