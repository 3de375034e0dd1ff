// SPDX-License-Identifier: Apache-2.0
#include "ops/filters/median_blur.h"

#include <algorithm>
#include <vector>

#include "ndd/kernel.h"
#include "ndd/order_keys.h"
#include "ndd/stencil.cuh"

namespace ndd {
namespace {

using namespace median_blur;

struct Image {
  const void* in;
  void* out;
  Grid grid;
  Reach height, width;
};

// A network sorts 3x3 in registers: nine loads, of which eight come from the first-level cache, and 38 operations, about a quarter of the memory's
// bandwidth for uint8. Any other window is read once for each bit of the median.
template <class K>
__global__ void __launch_bounds__(256) median_kernel(const Image* images, int64_t count, DType dtype) {
  for (int64_t n = blockIdx.y; n < count; n += gridDim.y) {
    const Image image = images[n];
    const Grid& grid = image.grid;
    const int64_t size = int64_t{image.height.size} * image.width.size, enough = size - size / 2;
    for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < grid.volume(); e += int64_t{gridDim.x} * blockDim.x) {
      const int64_t channel = e % grid.inner, x = e / grid.inner % grid.width - image.width.before, y = e / grid.row() - image.height.before;
      const auto key = [&](int64_t dy, int64_t dx) {
        const int64_t row = border_index(Border::clamp, y + dy, grid.height), column = border_index(Border::clamp, x + dx, grid.width);
        return load_key<K>(image.in, dtype, row * grid.row() + column * grid.inner + channel, static_cast<K>(~K{}));
      };
      K found{};
      if (image.height.size == 3 && image.width.size == 3) {
        K v[9];
#pragma unroll
        for (int t = 0; t < 9; ++t) v[t] = key(t / 3, t % 3);
        sort<9>(v);
        found = v[4];
      } else {
        for (K bit = static_cast<K>(K{1} << (8 * sizeof(K) - 1)); bit != 0; bit = static_cast<K>(bit >> 1)) {
          const K tried = found | bit;
          int64_t above = 0;
          for (int32_t dy = 0; dy < image.height.size; ++dy)
            for (int32_t dx = 0; dx < image.width.size; ++dx) above += key(dy, dx) >= tried;
          if (above >= enough) found = tried;
        }
      }
      store_key<K>(found, image.out, dtype, e);
    }
  }
}

void median_blur_cuda(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& window_size, int64_t first_spatial, const Tensor& output,
                      const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const Arguments arguments{AxisArgs<int64_t>("experimental.median_blur", window_size), {first_spatial, 2}};
  std::vector<Image> images;
  int64_t most = 0;
  for (int64_t i = 0; i < in.size(); ++i) {
    const Grid grid = arguments.axes.grid(in, i);
    const int64_t bytes = grid.volume() * in.item_bytes();
    for (int64_t image = 0; image < arguments.axes.images(in, i); ++image) {
      const int64_t frame = arguments.axes.frame(in, i, image);
      images.push_back({static_cast<const char*>(in.data(i)) + image * bytes, static_cast<char*>(out.data(i)) + image * bytes, grid,
                        arguments.reach(i, frame, 1), arguments.reach(i, frame, 0)});
    }
    most = std::max(most, grid.volume());
  }
  if (most == 0 || images.empty()) return;
  const CudaTable<Image> table(images);
  const int64_t count = static_cast<int64_t>(images.size());
  for_key(in.dtype(), [&](auto tag) {
    median_kernel<typename decltype(tag)::type><<<stencil::blocks(most, count), 256, 0, current_cuda_stream()>>>(table.data(), count, in.dtype());
  });
  check_launch("experimental.median_blur");
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(experimental_median_blur, CUDA, ndd::median_blur_cuda)
