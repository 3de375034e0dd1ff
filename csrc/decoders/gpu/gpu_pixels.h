// SPDX-License-Identifier: Apache-2.0
// The steps behind the codec on the GPU: orientation, YCbCr, the output's type.
#pragma once

#if defined(USE_CUDA) || defined(__CUDACC__)

#include "decoders/orientation.h"
#include "ndd/dtypes.h"

#include <cuda_runtime.h>

namespace ndd {

// Samples of uint8 as a codec has stored them, and the pixels to make of them: `height` x `width` as displayed, of as many channels.
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
