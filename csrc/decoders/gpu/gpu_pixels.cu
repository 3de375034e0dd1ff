// SPDX-License-Identifier: Apache-2.0
#include "decoders/gpu/gpu_pixels.h"

#ifdef __CUDACC__

#include "decoders/pixel_colors.h"
#include "ndd/cuda.h"

namespace ndd {
namespace {

constexpr int kThreads = 256;

// One thread per pixel; expected to reach half of the copy bandwidth. Only for images that are rotated or not uint8: all others are decoded in place.
__global__ void __launch_bounds__(kThreads) finish_gpu(DevicePixels p) {
  const int64_t count = p.height * p.width, stride = int64_t{gridDim.x} * blockDim.x;
  const int64_t stored_width = p.orientation.swaps_axes() ? p.height : p.width;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const PixelPlace from = stored_point(p.orientation, {i / p.width, i % p.width}, p.height, p.width);
    const uint8_t* in = p.stored + (from.y * stored_width + from.x) * p.channels;
    for_dtype(p.dtype, [&](auto tag) {
      using Out = typename decltype(tag)::type;
      Out* out = static_cast<Out*>(p.out) + i * p.channels;
      if (p.ycbcr) {
        float rgb[3], ycbcr[3];
        for (int c = 0; c < 3; ++c) rgb[c] = as_fraction(in[c]);
        ycbcr_of_pixel(rgb, 3, studio_offset<Out>(), ycbcr);
        for (int c = 0; c < 3; ++c) out[c] = of_fraction<Out>(ycbcr[c]);
      } else {
        for (int c = 0; c < p.channels; ++c) {
          if constexpr (std::is_same_v<Out, uint8_t>) out[c] = in[c];
          else out[c] = of_fraction<Out>(as_fraction(in[c]));
        }
      }
    });
  }
}

}  // namespace

void finish_pixels(const DevicePixels& pixels, cudaStream_t stream) {
  const int64_t blocks = (pixels.height * pixels.width + kThreads - 1) / kThreads;
  finish_gpu<<<static_cast<unsigned>(std::min<int64_t>(blocks, 1 << 20)), kThreads, 0, stream>>>(pixels);
  check_launch("decoders.image");
}

}  // namespace ndd

#endif
