// SPDX-License-Identifier: Apache-2.0
// All steps after the codec in one kernel, so no image is written and read again between them. The arithmetic is that of the CPU (pixel_colors.h).
#include "decoders/gpu/gpu_pixels.h"

#ifdef __CUDACC__

#include "decoders/pixel_colors.h"
#include "ndd/cuda.h"

namespace ndd {
namespace {

constexpr int kThreads = 256;

// Rounded as on the CPU (torch_ndd/decoders/_jpeg2000.py), so 12-bit 4095 becomes 65535.
__device__ __forceinline__ uint16_t whole_range(uint16_t value, int bits) {
  if (bits >= 16) return value;
  const uint32_t largest = (1u << bits) - 1, bounded = value < largest ? value : largest;
  return static_cast<uint16_t>((bounded * 65535u + largest / 2) / largest);
}
__device__ __forceinline__ uint8_t whole_range(uint8_t value, int) { return value; }

// One thread per pixel; expected to reach half of the copy bandwidth. Only for images that are cut out, rotated or converted: all others are decoded
// in place.
template <class In>
__global__ void __launch_bounds__(kThreads) finish_gpu(DevicePixels p) {
  const int64_t count = p.height * p.width, stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    // From the output to the stored image, because each output pixel has exactly one source.
    const PixelPlace from = stored_point(p.orientation, {i / p.width, i % p.width}, p.height, p.width);
    const In* in = static_cast<const In*>(p.stored) + ((p.y + from.y) * p.stored_width + p.x + from.x) * p.channels;
    for_dtype(p.dtype, [&](auto tag) {
      using Out = typename decltype(tag)::type;
      Out* out = static_cast<Out*>(p.out) + i * p.out_channels;
      if (p.type == ImageType::any) {
        for (int c = 0; c < p.out_channels; ++c) {
          const In value = whole_range(in[c], p.bits);
          if constexpr (std::is_same_v<Out, In>) out[c] = value;
          else out[c] = of_fraction<Out>(as_fraction(value));
        }
        return;
      }
      // Gray images, with or without alpha, repeat their only color in all three.
      float colors[3];
      for (int c = 0; c < 3; ++c) colors[c] = as_fraction(whole_range(in[p.channels < 3 ? 0 : c], p.bits));
      if (p.type == ImageType::gray) {
        out[0] = of_fraction<Out>(gray_of_pixel(colors, p.channels, full_range<In>()));
      } else if (p.type == ImageType::ycbcr) {
        float ycbcr[3];
        ycbcr_of_pixel(colors, 3, studio_offset<Out>(), ycbcr);
        for (int c = 0; c < 3; ++c) out[c] = of_fraction<Out>(ycbcr[c]);
      } else {
        for (int c = 0; c < 3; ++c) out[c] = of_fraction<Out>(colors[p.type == ImageType::bgr ? 2 - c : c]);
      }
    });
  }
}

template <class In>
void launch(const DevicePixels& pixels, cudaStream_t stream) {
  const int64_t blocks = (pixels.height * pixels.width + kThreads - 1) / kThreads;
  finish_gpu<In><<<static_cast<unsigned>(std::min<int64_t>(blocks, 1 << 20)), kThreads, 0, stream>>>(pixels);
  check_launch("decoders.image");
}

}  // namespace

void finish_pixels(const DevicePixels& pixels, cudaStream_t stream) {
  if (pixels.samples == DType::uint8) launch<uint8_t>(pixels, stream);
  else launch<uint16_t>(pixels, stream);
}

}  // namespace ndd

#endif
