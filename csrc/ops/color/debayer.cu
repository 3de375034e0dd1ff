// SPDX-License-Identifier: Apache-2.0
#include "ops/color/debayer.h"

#include <algorithm>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/kernel.h"

namespace ndd::debayer {
namespace {

constexpr int kThreads = 256;

struct Image {
  const void* src;
  void* dst;
  int64_t height, width, blue_y, blue_x;
  Algorithm algorithm;
};

constexpr int kRows = 16;  // pixels of a thread, one below the other

// Pixels x of rows [top, bottom). The window of radius r slides down in registers: a pixel takes 2 r + 1 loads, and divisions are made for 16 at a time.
template <class T, int r>
__device__ void color_column(const Image& image, int64_t x, int64_t top, int64_t bottom) {
  constexpr int kSide = 2 * r + 1;
  const int64_t height = image.height, width = image.width;
  const bool is_vng = r == 2, too_small = !is_vng && (height < 4 || width < 4), is_gray = image.algorithm == gray;
  const bool edges = image.algorithm == edge_aware;
  // Border pixels copy their neighbor, as in OpenCV.
  const auto inside = [=](int64_t at, int64_t extent) { return is_vng ? at : min(max(at, int64_t{1}), extent - 2); };
  const int64_t center_x = inside(x, width);
  const T* const src = static_cast<const T*>(image.src);
  int64_t columns[kSide];
  T window[kSide][kSide];
#pragma unroll
  for (int dx = 0; dx < kSide; ++dx) columns[dx] = mirror_index(center_x + dx - r, width);
  const auto load = [&](T* row, int64_t y) {
    const T* const from = src + mirror_index(y, height) * width;
#pragma unroll
    for (int dx = 0; dx < kSide; ++dx) row[dx] = from[columns[dx]];
  };
  int64_t center = too_small ? 0 : inside(top, height);
  if (!too_small) {
#pragma unroll
    for (int dy = 0; dy < kSide; ++dy) load(window[dy], center + dy - r);
  }
  T* dst = static_cast<T*>(image.dst) + (top * width + x) * (is_gray ? 1 : 3);
  for (int64_t y = top; y < bottom; ++y, dst += width * (is_gray ? 1 : 3)) {
    Pixel p{0, 0, 0};
    bool blue_row = false;
    if (!too_small) {
      if (inside(y, height) > center) {
        ++center;
#pragma unroll
        for (int dy = 0; dy + 1 < kSide; ++dy)
#pragma unroll
          for (int dx = 0; dx < kSide; ++dx) window[dy][dx] = window[dy + 1][dx];
        load(window[kSide - 1], center + r);
      }
      blue_row = center % 2 == image.blue_y;
      const bool green = (center_x % 2 == image.blue_x) != blue_row;
      const auto at = [&](int64_t dy, int64_t dx) { return static_cast<int32_t>(window[dy + r][dx + r]); };
      if constexpr (r == 2) p = vng_pixel(at, green);
      else if (is_gray) p.own = gray_pixel(at, green, blue_row);
      else p = bilinear_pixel<T>(at, green, edges);
    }
    if (is_gray) {
      *dst = static_cast<T>(p.own);
      continue;
    }
    dst[0] = static_cast<T>(blue_row ? p.other : p.own);
    dst[1] = static_cast<T>(p.green);
    dst[2] = static_cast<T>(blue_row ? p.own : p.other);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) color_gpu(const Image* images, int64_t count) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Image image = images[k];
    const int64_t groups = (image.width + 31) / 32, tasks = groups * ((image.height + kRows - 1) / kRows);
    for (int64_t task = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32; task < tasks; task += int64_t{gridDim.x} * (kThreads / 32)) {
      const int64_t x = task % groups * 32 + threadIdx.x % 32, top = task / groups * kRows, bottom = min(top + kRows, image.height);
      if (x >= image.width) continue;
      if (image.algorithm == vng) color_column<T, 2>(image, x, top, bottom);
      else color_column<T, 1>(image, x, top, bottom);
    }
  }
}

void debayer_cuda(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& blue_position, int64_t algorithm, int64_t first,
                  const Tensor& output, const MaybeTensor& output_shapes) {
  const Mosaics mosaics(input, input_shapes, blue_position, algorithm, first, output, output_shapes);
  std::vector<Image> images;
  int64_t max_pixels = 0;
  for (int64_t i = 0; i < mosaics.in.size(); ++i) {
    mosaics.check(i);
    const int64_t height = mosaics.height(i), width = mosaics.width(i), bytes = height * width * mosaics.in.item_bytes();
    for (int64_t f = 0; f < mosaics.frames(i) && bytes > 0; ++f)
      images.push_back({static_cast<const char*>(mosaics.in.data(i)) + f * bytes,
                        static_cast<char*>(mosaics.out.data(i)) + f * bytes * mosaics.channels(), height, width, mosaics.blue_parity(i, f, 0),
                        mosaics.blue_parity(i, f, 1), mosaics.algorithm_of(i)});
    max_pixels = std::max(max_pixels, height * width);
  }
  if (images.empty()) return;
  const CudaTable<Image> table(images);
  const int64_t count = static_cast<int64_t>(images.size());
  const dim3 grid = batch_grid(max_pixels / (kThreads * kRows) + 1, 1, count);
  // A byte in and three out for some 60 instructions a pixel: bound by those, at 40 % of the bandwidth; with gradients (400 instructions) at 6 %.
  if (mosaics.in.dtype() == DType::uint8) color_gpu<uint8_t><<<grid, kThreads, 0, current_cuda_stream()>>>(table.data(), count);
  else color_gpu<uint16_t><<<grid, kThreads, 0, current_cuda_stream()>>>(table.data(), count);
  check_launch("debayer");
}

}  // namespace
}  // namespace ndd::debayer
NDD_KERNEL(debayer, CUDA, ndd::debayer::debayer_cuda)
