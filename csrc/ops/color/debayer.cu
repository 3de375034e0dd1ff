// SPDX-License-Identifier: Apache-2.0
#include "ops/color/debayer.h"

#include <algorithm>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/kernel.h"

namespace ndd {
namespace debayer {
namespace {

constexpr int kThreads = 256;

struct Image {
  const void* src;
  void* dst;
  int64_t height, width, blue_y, blue_x;
  Algorithm algorithm;
};

template <class T>
__global__ void color_gpu(const Image* images, int64_t count) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Image image = images[k];
    const T* src = static_cast<const T*>(image.src);
    T* dst = static_cast<T*>(image.dst);
    const int64_t height = image.height, width = image.width;
    const bool none = image.algorithm != vng && (height < 4 || width < 4);
    for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < height * width; i += int64_t{gridDim.x} * kThreads) {
      int64_t y = i / width, x = i % width;
      if (image.algorithm != vng) {  // the border is what is next to it
        y = min(max(y, int64_t{1}), height - 2);
        x = min(max(x, int64_t{1}), width - 2);
      }
      const auto at = [&](int64_t dy, int64_t dx) { return static_cast<int32_t>(src[mirrored(y + dy, height) * width + mirrored(x + dx, width)]); };
      const bool blue_row = y % 2 == image.blue_y, green = (x % 2 == image.blue_x) != blue_row;
      if (image.algorithm == gray) {
        dst[i] = none ? T{} : static_cast<T>(gray_pixel(at, green, blue_row));
        continue;
      }
      Pixel p{0, 0, 0};
      if (image.algorithm == vng) p = vng_pixel(at, green);
      else if (!none) p = bilinear_pixel<T>(at, green, image.algorithm == edge_aware);
      dst[3 * i] = static_cast<T>(blue_row ? p.other : p.own);
      dst[3 * i + 1] = static_cast<T>(p.green);
      dst[3 * i + 2] = static_cast<T>(blue_row ? p.own : p.other);
    }
  }
}

void debayer_cuda(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& blue_position, int64_t algorithm, int64_t first, const Tensor& output,
                  const MaybeTensor& output_shapes) {
  const Mosaics mosaics(input, input_shapes, blue_position, algorithm, first, output, output_shapes);
  std::vector<Image> images;
  int64_t most = 0;
  for (int64_t i = 0; i < mosaics.in.size(); ++i) {
    mosaics.check(i);
    const int64_t height = mosaics.height(i), width = mosaics.width(i), bytes = height * width * mosaics.in.item_bytes();
    for (int64_t f = 0; f < mosaics.frames(i) && bytes > 0; ++f)
      images.push_back({static_cast<const char*>(mosaics.in.data(i)) + f * bytes, static_cast<char*>(mosaics.out.data(i)) + f * bytes * mosaics.channels(), height,
                        width, mosaics.blue_parity(i, f, 0), mosaics.blue_parity(i, f, 1), mosaics.algorithm_of(i)});
    most = std::max(most, height * width);
  }
  if (images.empty()) return;
  const CudaTable<Image> table(images);
  const int64_t count = static_cast<int64_t>(images.size());
  const dim3 grid(static_cast<unsigned>(std::clamp<int64_t>((most + kThreads - 1) / kThreads, 1, 1 << 16)),
                  static_cast<unsigned>(std::min<int64_t>(count, 65535)));
  // Neighbours come from the first-level cache. A byte in and three out for some 60 instructions a pixel: about 30 % of the bandwidth are expected,
  // with gradients (400 instructions) 5 %.
  if (mosaics.in.dtype() == DType::uint8) color_gpu<uint8_t><<<grid, kThreads, 0, current_cuda_stream()>>>(table.data(), count);
  else color_gpu<uint16_t><<<grid, kThreads, 0, current_cuda_stream()>>>(table.data(), count);
  check_launch("debayer");
}

}  // namespace
}  // namespace debayer
}  // namespace ndd
NDD_KERNEL(debayer, CUDA, ndd::debayer::debayer_cuda)
