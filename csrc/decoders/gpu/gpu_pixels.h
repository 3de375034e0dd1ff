// SPDX-License-Identifier: Apache-2.0
// The steps after the codec on the GPU: a window of the stored image, its orientation, colors, and the type of the output.
#pragma once

#if defined(USE_CUDA) || defined(__CUDACC__)

#include "decoders/image_decoder.h"
#include "decoders/orientation.h"
#include "ndd/dtypes.h"

#include <cuda_runtime.h>

namespace ndd {

// Dense rows of interleaved samples as stored by a codec, uint8 or uint16, and the output: `height` x `width` pixels as displayed.
struct DevicePixels {
  const void* stored;
  DType samples;
  int bits;  // of a sample: if it is uint16 and has fewer than 16, its range becomes that of uint16
  int channels;
  int64_t stored_width;
  int64_t y, x;  // the first pixel, in the stored image, of the window that is displayed
  Orientation orientation;
  ImageType type;  // any: the channels stay as they are
  int64_t height, width;
  int out_channels;
  void* out;
  DType dtype;
};

void finish_pixels(const DevicePixels& pixels, cudaStream_t stream);

}  // namespace ndd

#endif
