// SPDX-License-Identifier: Apache-2.0
// out = 0 where a pixel lies in a square of a rotated grid. With u = (x cos a - y sin a - shift_x) / tile and v = (x sin a + y cos a - shift_y) / tile
// it does where the fractional parts of u and v are both less than ratio.
#include <cmath>
#include <cstring>

#include "ndd/args.h"
#include "ndd/kernel.h"
#include "ndd/simd.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#endif

namespace ndd {
namespace {

// Pixels of `inner` bytes in rows, and planes of rows.
struct GridMask {
  const char* in;
  char* out;
  int64_t planes, height, width, inner;
  float cosine, sine, shift_x, shift_y, ratio;  // in tiles

  // The part of u and v that a row shares.
  NDD_HD void at_row(int64_t y, float& u, float& v) const {
    u = -sine * static_cast<float>(y) - shift_x;
    v = cosine * static_cast<float>(y) - shift_y;
  }

  NDD_HD bool kept(float u, float v, int32_t x) const {
    u += cosine * static_cast<float>(x);
    v += sine * static_cast<float>(x);
    return (u - std::floor(u) >= ratio) | (v - std::floor(v) >= ratio);
  }
};

GridMask mask_of(const Samples& in, const Samples& out, int64_t i, int64_t row_axis, int64_t tile, float ratio, float angle, float shift_x, float shift_y) {
  if (tile <= 0) throw Error(Error::Runtime, "grid_mask: sample " + std::to_string(i) + ": Tile argument must be positive, got " + std::to_string(tile));
  const int64_t* shape = in.shape(i);
  GridMask mask{static_cast<const char*>(in.data(i)), static_cast<char*>(out.data(i)), 1, shape[row_axis], shape[row_axis + 1], in.item_bytes(), 0, 0, 0, 0, ratio};
  for (int64_t d = 0; d < row_axis; ++d) mask.planes *= shape[d];
  for (int64_t d = row_axis + 2; d < in.ndim(); ++d) mask.inner *= shape[d];
  const auto size = static_cast<float>(tile);
  mask.cosine = std::cos(angle) / size;
  mask.sine = std::sin(angle) / size;
  mask.shift_x = shift_x / size;
  mask.shift_y = shift_y / size;
  return mask;
}

// Runs of pixels that are kept are copied, the others cleared.
void mask_row(const GridMask& mask, const uint8_t* kept, const char* src, char* dst) {
  for (int64_t x = 0; x < mask.width;) {
    const uint8_t keep = kept[x];
    const auto* stop = static_cast<const uint8_t*>(std::memchr(kept + x, keep ^ 1, mask.width - x));
    const int64_t end = stop ? stop - kept : mask.width;
    if (keep) std::memcpy(dst + x * mask.inner, src + x * mask.inner, (end - x) * mask.inner);
    else std::memset(dst + x * mask.inner, 0, (end - x) * mask.inner);
    x = end;
  }
}

void run_cpu(const GridMask& mask) {
  std::vector<uint8_t> kept(mask.width);
  for (int64_t y = 0; y < mask.height; ++y) {
    with_simd([&]() NDD_ALWAYS_INLINE {
      const GridMask m = mask;
      const auto width = static_cast<int32_t>(m.width);
      uint8_t* __restrict row = kept.data();
      float u, v;
      m.at_row(y, u, v);
      for (int32_t x = 0; x < width; ++x) row[x] = m.kept(u, v, x);
    });
    for (int64_t p = 0; p < mask.planes; ++p) {
      const int64_t from = (p * mask.height + y) * mask.width * mask.inner;
      mask_row(mask, kept.data(), mask.in + from, mask.out + from);
    }
  }
}

#ifdef __CUDACC__
// A thread for each byte: 50 % of the bandwidth is expected, for the arithmetic of a pixel is done for each of its bytes.
__global__ void grid_mask_gpu(const GridMask* masks, int64_t count) {
  for (int64_t i = blockIdx.y; i < count; i += gridDim.y) {
    const GridMask m = masks[i];
    const int64_t pixels = m.height * m.width, bytes = m.planes * pixels * m.inner;
    for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < bytes; e += int64_t{gridDim.x} * blockDim.x) {
      const int64_t pixel = e / m.inner % pixels, y = pixel / m.width, x = pixel - y * m.width;
      float u, v;
      m.at_row(y, u, v);
      m.out[e] = m.kept(u, v, static_cast<int32_t>(x)) ? m.in[e] : char{0};
    }
  }
}
#endif

// `row_axis` counts rows, the axis behind it the pixels of a row.
void grid_mask(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& angle, const Tensor& ratio, const Tensor& shift_x, const Tensor& shift_y,
               const Tensor& tile, int64_t row_axis, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const Args<float> angles(angle), ratios(ratio), xs(shift_x), ys(shift_y);
  const Args<int64_t> tiles(tile);
  const auto sample = [=](int64_t i) { return mask_of(in, out, i, row_axis, tiles(i), ratios(i), angles(i), xs(i), ys(i)); };
#ifdef __CUDACC__
  if (input.is_cuda()) {
    std::vector<GridMask> masks;
    int64_t most = 0;
    for (int64_t i = 0; i < in.size(); ++i) {
      masks.push_back(sample(i));
      most = std::max(most, in.volume(i) * in.item_bytes());
    }
    if (most == 0) return;
    const CudaTable<GridMask> table(masks);
    const dim3 grid(static_cast<unsigned>(std::min<int64_t>((most + 1023) / 1024, 1 << 16)), static_cast<unsigned>(std::min<int64_t>(in.size(), 65535)));
    grid_mask_gpu<<<grid, 256, 0, current_cuda_stream()>>>(table.data(), in.size());
    return check_launch("grid_mask");
  }
#endif
  launch_cpu("grid_mask", in.size(), 0.1 * static_cast<double>(in.item_bytes()) * in.mean_volume(), {}, [=](int64_t i) {
    const GridMask mask = sample(i);
    if (mask.inner > 0) run_cpu(mask);
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNELS(grid_mask, ndd::grid_mask)
