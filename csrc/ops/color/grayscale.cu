// SPDX-License-Identifier: Apache-2.0
// grayscale: the luma of ITU-R BT.601 in one channel, or in three equal ones.
#include <algorithm>
#include <vector>

#include "ndd/color/planes.h"
#include "ndd/kernel.h"
#include "ndd/simd.h"
#include "ndd/stream/stream.h"
#include "ops/color/levels.h"
#ifdef __CUDACC__
#include "ndd/color/pixels.cuh"
#include "ndd/cuda.h"
#include "ndd/elementwise/elements.cuh"
#endif

namespace ndd::grayscale_kernels {
namespace {

// An image or a frame; the output has one channel or three equal ones.
struct Run {
  const void* in;
  void* out;
  ColorImage from, to;
};

void gray_row(const float* from, int64_t plane, int64_t n, float* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const int64_t count = n;
    const float* __restrict red = from;
    const float* __restrict green = red + plane;
    const float* __restrict blue = green + plane;
    float* __restrict to = out;
    for (int64_t i = 0; i < count; ++i) to[i] = gray_level<false>(red[i], green[i], blue[i]);
  });
}

// Planes of float32. Three equal ones are written one after the other, from a row in the first-level cache: 16 images of 256x320 take 0.75 ms instead
// of 1.15.
void gray_planes(const Run& run) {
  const auto* const from = static_cast<const float*>(run.in);
  auto* const to = static_cast<float*>(run.out);
  const int64_t pixels = run.from.pixels;
  if (run.to.channels == 1) return gray_row(from, pixels, pixels, to);
  constexpr int64_t kRow = 1024;
  alignas(64) float row[kRow];
  for (int64_t first = 0; first < pixels; first += kRow) {
    const int64_t n = std::min(kRow, pixels - first);
    gray_row(from + first, pixels, n, row);
    for (int64_t c = 0; c < 3; ++c) std::copy_n(row, n, to + c * pixels + first);
  }
}

void run_cpu(const Run& run, DType dtype) {
  if (dtype == DType::float32 && run.from.planar && run.from.channels == 3) return gray_planes(run);
  const ColorRows rows(dtype);
  const bool whole = !is_floating_dtype(dtype);
  ColorTile tile;
  for (int64_t first = 0; first < run.from.pixels; first += ColorTile::kPixels) {
    const int64_t n = std::min(ColorTile::kPixels, run.from.pixels - first);
    rows.load(run.from, run.in, first, n, tile);
    if (run.from.channels == 3) {
      with_simd([&]() NDD_ALWAYS_INLINE {
        float* __restrict red = tile.channel[0];
        const float* __restrict green = tile.channel[1];
        const float* __restrict blue = tile.channel[2];
        const int64_t count = n;
        // Chosen outside of the loops, which then have no branch.
        if (whole)
          for (int64_t i = 0; i < count; ++i) red[i] = gray_level<true>(red[i], green[i], blue[i]);
        else
          for (int64_t i = 0; i < count; ++i) red[i] = gray_level<false>(red[i], green[i], blue[i]);
      });
    }
    // The tile's other rows are stored too, so three channels are three copies of the gray row in the first-level cache.
    for (int64_t c = 1; c < run.to.channels; ++c) std::copy_n(tile.channel[0], n, tile.channel[c]);
    rows.store(run.to, tile, first, n, run.out);
  }
}

#ifdef __CUDACC__
constexpr int kThreads = 256;

// Pixels of three bytes.
template <int kOut>
struct GrayBytes {
  __device__ __forceinline__ void operator()(int64_t, const uint32_t (&in)[3], uint32_t (&out)[kOut]) const {
    pixels::map_each(in, out, [](const uint32_t (&rgb)[3], uint32_t (&level)[kOut]) {
      const float gray = gray_level<true>(static_cast<float>(rgb[0]), static_cast<float>(rgb[1]), static_cast<float>(rgb[2]));
#pragma unroll
      for (uint32_t& value : level) value = static_cast<uint32_t>(gray);
    });
  }
};

// Returns false, without launching, if not all runs are interleaved colors of bytes.
template <int kOut>
bool launch_bytes(const std::vector<Run>& runs) {
  std::vector<pixels::PixelRun<GrayBytes<kOut>>> bytes;
  for (const Run& run : runs) {
    if (run.from.planar || run.from.channels != 3 || run.to.channels != kOut) return false;
    bytes.push_back({static_cast<const uint8_t*>(run.in), static_cast<uint8_t*>(run.out), run.from.pixels, {}});
  }
  return pixels::launch<3, kOut>(bytes);
}

// Any type and any order of channels, a pixel of each thread at a time.
__global__ void __launch_bounds__(kThreads) run_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count, DType dtype, bool whole) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run run = runs[k];
    assume_global(run.in, run.out);
    for (int64_t p = int64_t{blockIdx.x} * kThreads + threadIdx.x; p < run.from.pixels; p += int64_t{gridDim.x} * kThreads) {
      for_dtype(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T* const from = static_cast<const T*>(run.in);
        T* const to = static_cast<T*>(run.out);
        T level = from[run.from.element(p, 0)];
        if (run.from.channels == 3) {
          const float red = static_cast<float>(level), green = static_cast<float>(from[run.from.element(p, 1)]),
                      blue = static_cast<float>(from[run.from.element(p, 2)]);
          level = saturate<T>(whole ? gray_level<true>(red, green, blue) : gray_level<false>(red, green, blue));
        }
        for (int64_t c = 0; c < run.to.channels; ++c) to[run.to.element(p, c)] = level;
      });
    }
  }
}
#endif

void grayscale(const Tensor& input, const MaybeTensor& input_shapes, bool planar, bool frames, const Tensor& output,
               const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  if (in.dtype() != out.dtype()) fail(Error::Type, "grayscale: the output must have the type of the input");
  const ColorImages images{planar, frames};
  const auto for_runs = [=](int64_t i, auto visit) {
    Run run{in.data(i), out.data(i), images.image("grayscale", in, i), images.image("grayscale", out, i)};
    // Python allocates such outputs, but torch.ops can call the kernel with others.
    if (run.to.pixels != run.from.pixels || images.frames(out, i) != images.frames(in, i))
      fail(Error::Value, "grayscale: sample ", i, " of the output must have the pixels of the input");
    for (int64_t f = 0; f < images.frames(in, i); ++f) {
      visit(run);
      run.in = static_cast<const char*>(run.in) + run.from.volume() * in.item_bytes();
      run.out = static_cast<char*>(run.out) + run.to.volume() * out.item_bytes();
    }
  };
#ifdef __CUDACC__
  if (input.is_cuda()) {
    std::vector<Run> runs;
    int64_t max_pixels = 0;
    for (int64_t i = 0; i < in.size(); ++i)
      for_runs(i, [&](const Run& run) {
        runs.push_back(run);
        max_pixels = std::max(max_pixels, run.from.pixels);
      });
    if (runs.empty() || max_pixels == 0) return;
    // The number of output channels is the same for all samples, so at most one of the two launches.
    if (in.dtype() == DType::uint8 && (launch_bytes<1>(runs) || launch_bytes<3>(runs))) return check_launch("grayscale");
    const KernelTable<Run> table(runs);
    const auto count = static_cast<int64_t>(runs.size());
    const dim3 grid = batch_grid(max_pixels, 4 * kThreads, count);
    run_gpu<<<grid, kThreads, 0, current_cuda_stream()>>>(table.rows(), count, in.dtype(), !is_floating_dtype(in.dtype()));
    return check_launch("grayscale");
  }
#endif
  constexpr double kNanosecondsPerElement = 0.2;
  launch_cpu("grayscale", in.size(), kNanosecondsPerElement * in.mean_volume(), {},
             [=](int64_t i) { for_runs(i, [&](const Run& run) { run_cpu(run, in.dtype()); }); });
}

}  // namespace
}  // namespace ndd::grayscale_kernels
NDD_KERNELS(grayscale, ndd::grayscale_kernels::grayscale)
