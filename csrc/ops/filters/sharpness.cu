// SPDX-License-Identifier: Apache-2.0
// sharpness: a blend of an image and its mean over 3 x 3 pixels, in which the middle one counts five times. The border is not smoothed, as in torchvision.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "ndd/args.h"
#include "ndd/elementwise/rows.h"
#include "ndd/kernel.h"
#include "ndd/simd.h"
#include "ndd/stencil/stencil.h"
#include "ndd/stream/stream.h"
#include "ops/color/bytes.h"
#include "ops/filters/sharpness.h"
#ifdef __CUDACC__
#include "ndd/elementwise/elements.cuh"
#include "ndd/launch_runs.cuh"
#endif

namespace ndd::sharpness_kernels {
namespace {

// A VGA image of uint8 takes 0.35 ms.
constexpr double kNanosecondsPerElement = 0.4;

// An image, on either device.
struct Run {
  const void* in;
  void* out;
  Grid grid;
  Sharpen sharpen;
};

// Images of fewer than 3 x 3 pixels are all border.
bool has_inside(const Grid& grid) { return grid.height > 2 && grid.width > 2; }

// Rows are floats. The columns of three rows are summed first, so each sum serves three outputs.
template <bool whole>
void sharpen_row(const float* above, const float* row, const float* below, int64_t n, int64_t step, const Sharpen& functor, float* columns,
                 float* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const float* __restrict a = above;
    const float* __restrict b = row;
    const float* __restrict c = below;
    float* __restrict sums = columns;
    float* __restrict to = out;
    const int64_t count = n, last = n - step, pixel = step;
    const Sharpen sharpen = functor;
    for (int64_t k = 0; k < count; ++k) sums[k] = a[k] + b[k] + c[k];
    for (int64_t k = 0; k < pixel; ++k)
      to[k] = limit_level<whole>(b[k], sharpen.white), to[last + k] = limit_level<whole>(b[last + k], sharpen.white);
    for (int64_t k = pixel; k < last; ++k) to[k] = sharpen.template value<whole>(b[k], sums[k - pixel] + sums[k] + sums[k + pixel] + 3.0f * b[k]);
  });
}

template <bool whole>
void run_cpu(const Run& run, DType dtype) {
  const Grid& grid = run.grid;
  const int64_t row = grid.row(), bytes = row * item_bytes(dtype);
  const char* const in = static_cast<const char*>(run.in);
  char* const out = static_cast<char*>(run.out);
  const LoadRow load = row_loader(dtype);
  const StoreRow store = row_storer(dtype);
  std::vector<float> memory(5 * row);
  // Three rows in a ring, the sums of columns, and the result.
  float *staged[3] = {memory.data(), memory.data() + row, memory.data() + 2 * row}, *columns = memory.data() + 3 * row,
        *result = memory.data() + 4 * row;
  // Elements at the border are not smoothed, but limited like the others: those of signed integers and of floats.
  const auto border = [&](int64_t y) {
    if (dtype == DType::uint8) {
      std::memcpy(out + y * bytes, in + y * bytes, bytes);
      return;
    }
    load(in + y * bytes, row, result);
    for (int64_t k = 0; k < row; ++k) result[k] = limit_level<whole>(result[k], run.sharpen.white);
    store(result, row, out + y * bytes);
  };
  border(0);
  border(grid.height - 1);
  for (int64_t y = 0; y < 2; ++y) load(in + y * bytes, row, staged[y]);
  for (int64_t y = 1; y + 1 < grid.height; ++y) {
    // Each row is converted once and serves three rows of the output.
    load(in + (y + 1) * bytes, row, staged[(y + 1) % 3]);
    sharpen_row<whole>(staged[(y - 1) % 3], staged[y % 3], staged[(y + 1) % 3], row, grid.inner, run.sharpen, columns, result);
    store(result, row, out + y * bytes);
  }
}

#ifdef __CUDACC__
constexpr int kThreads = 256;

// A thread for each element. Neighbors share most of the nine reads, which come from the first-level cache.
__global__ void __launch_bounds__(kThreads) run_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count, DType dtype, bool whole) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run run = runs[k];
    const int64_t row = run.grid.row(), step = run.grid.inner, volume = run.grid.volume();
    const bool inside = run.grid.height > 2 && run.grid.width > 2;
    for_dtype(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* const in = static_cast<const T*>(run.in);
      T* const out = static_cast<T*>(run.out);
      for (int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x; e < volume; e += int64_t{gridDim.x} * kThreads) {
        const int64_t y = e / row, x = e - y * row;
        if (!inside) {
          out[e] = in[e];
        } else if (y == 0 || y == run.grid.height - 1 || x < step || x >= row - step) {
          const float level = static_cast<float>(in[e]);
          out[e] = saturate<T>(whole ? limit_level<true>(level, run.sharpen.white) : limit_level<false>(level, run.sharpen.white));
        } else {
          const float middle = static_cast<float>(in[e]);
          float sum = 3.0f * middle;
#pragma unroll
          for (int dx = -1; dx <= 1; ++dx) {
            const T* const at = in + e + dx * step;
            // Three columns, the middle element once; with the 3 above it counts four times, and `value` adds the fifth.
            sum += static_cast<float>(at[-row]) + static_cast<float>(at[0]) + static_cast<float>(at[row]);
          }
          out[e] = saturate<T>(whole ? run.sharpen.template value<true>(middle, sum) : run.sharpen.template value<false>(middle, sum));
        }
      }
    });
  }
}
#endif

void sharpness(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& factor, int64_t first, const Tensor& output,
               const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  check_same("sharpness", out, in);
  const AxisArgs<double> factors("sharpness", factor);
  const SpatialAxes axes{first, 2};
  const auto for_runs = [=](int64_t i, auto visit) {
    Run run{in.data(i), out.data(i), axes.grid(in, i), {0.0f, value_range(in.dtype())}};
    const int64_t bytes = run.grid.volume() * in.item_bytes();
    for (int64_t image = 0; image < axes.images(in, i) && bytes > 0; ++image) {
      const double sharpness = factors(i, axes.frame(in, i, image), 0);
      if (!(sharpness >= 0.0)) fail(Error::Value, "sharpness: sample ", i, ": sharpness must not be negative, got ", sharpness);
      run.sharpen.rest = static_cast<float>(1.0 - sharpness);
      visit(run);
      run.in = static_cast<const char*>(run.in) + bytes;
      run.out = static_cast<char*>(run.out) + bytes;
    }
  };
#ifdef __CUDACC__
  if (input.is_cuda()) {
    std::vector<Run> runs;
    for (int64_t i = 0; i < in.size(); ++i) for_runs(i, [&](const Run& run) { runs.push_back(run); });
    const auto volume = [](const Run& run) { return run.grid.volume(); };
    return launch_runs("sharpness", runs, volume, 4 * kThreads, [&](dim3 grid, const auto& rows, int64_t count) {
      run_gpu<<<grid, kThreads, 0, current_cuda_stream()>>>(rows, count, in.dtype(), !is_floating_dtype(in.dtype()));
    });
  }
#endif
  launch_cpu("sharpness", in.size(), kNanosecondsPerElement * in.mean_volume(), {}, [=](int64_t i) {
    for_runs(i, [&](const Run& run) {
      if (!has_inside(run.grid)) std::memcpy(run.out, run.in, run.grid.volume() * in.item_bytes());
      else if (is_floating_dtype(in.dtype())) sharpness_kernels::run_cpu<false>(run, in.dtype());
      else sharpness_kernels::run_cpu<true>(run, in.dtype());
    });
  });
}

}  // namespace
}  // namespace ndd::sharpness_kernels

#ifndef __NVCC__  // of the CPU half alone
// The same for one image of bytes, for callers within csrc.
void ndd::sharpen_bytes(const uint8_t* in, int64_t height, int64_t width, int64_t channels, double factor, uint8_t* out) {
  using namespace sharpness_kernels;
  const Run run{in, out, Grid{1, height, width, channels}, {static_cast<float>(1.0 - factor), 255.0f}};
  if (has_inside(run.grid)) sharpness_kernels::run_cpu<true>(run, DType::uint8);
  else std::memcpy(out, in, run.grid.volume());
}
#endif

NDD_KERNELS(sharpness, ndd::sharpness_kernels::sharpness)
