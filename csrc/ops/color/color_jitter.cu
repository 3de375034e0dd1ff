// SPDX-License-Identifier: Apache-2.0
// A launch for the means that contrast needs, then one for all steps. A thread has a pixel at a time, whose channels stay in registers.
#include "ops/color/color_jitter.h"

#include <algorithm>
#include <vector>

#include "ndd/color/planes.h"
#include "ndd/cuda.h"
#include "ndd/elementwise/elements.cuh"
#include "ndd/kernel.h"
#include "ndd/reduce/block.cuh"

namespace ndd {
namespace {

using namespace color_jitter;

constexpr int kThreads = 256, kParts = 32;  // blocks that add up the gray values of an image

struct Run {
  const void* in;
  void* out;
  ColorImage image;
  Steps steps;
};

__device__ __forceinline__ void load_pixel(const Run& run, DType dtype, int64_t p, float (&color)[3]) {
  for_dtype(dtype, [&](auto tag) {
    const auto* const from = static_cast<const typename decltype(tag)::type*>(run.in);
    color[0] = static_cast<float>(from[run.image.element(p, 0)]);
    color[1] = run.image.channels == 3 ? static_cast<float>(from[run.image.element(p, 1)]) : 0.0f;
    color[2] = run.image.channels == 3 ? static_cast<float>(from[run.image.element(p, 2)]) : 0.0f;
  });
}

__device__ __forceinline__ void apply_steps(const Run& run, int begin, int end, float mean, const Levels& levels, float (&color)[3]) {
  for (int k = begin; k < end; ++k) {
    if (levels.whole) apply<true>(run.steps.step[k], mean, levels, run.image.channels, color[0], color[1], color[2]);
    else apply<false>(run.steps.step[k], mean, levels, run.image.channels, color[0], color[1], color[2]);
  }
}

// The sum of gray values of each part of an image, of what the steps before contrast make of it. Recomputing these steps in the second kernel is cheaper
// than storing their result.
__global__ void __launch_bounds__(kThreads) add_gray(const Run* runs, int64_t count, DType dtype, Levels levels, double* parts) {
  __shared__ double shared[kThreads];
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run run = runs[k];
    if (run.steps.contrast == run.steps.count) continue;
    double sum = 0.0;
    for (int64_t p = int64_t{blockIdx.x} * kThreads + threadIdx.x; p < run.image.pixels; p += int64_t{kParts} * kThreads) {
      float color[3];
      load_pixel(run, dtype, p, color);
      apply_steps(run, 0, run.steps.contrast, 0.0f, levels, color);
      const float value = run.image.channels == 1 ? color[0]
                          : levels.whole          ? gray_level<true>(color[0], color[1], color[2])
                                                  : gray_level<false>(color[0], color[1], color[2]);
      sum += static_cast<double>(value);
    }
    sum = reduce_block(shared, sum, [](double a, double b) { return a + b; });
    if (threadIdx.x == 0) parts[k * kParts + blockIdx.x] = sum;
  }
}

__global__ void __launch_bounds__(kThreads) jitter(const Run* runs, int64_t count, DType dtype, Levels levels, const double* parts) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run run = runs[k];
    double sum = 0.0;
    if (run.steps.contrast < run.steps.count)
      for (int part = 0; part < kParts; ++part) sum += parts[k * kParts + part];
    const auto mean = static_cast<float>(sum / static_cast<double>(run.image.pixels > 0 ? run.image.pixels : 1));
    for (int64_t p = int64_t{blockIdx.x} * kThreads + threadIdx.x; p < run.image.pixels; p += int64_t{gridDim.x} * kThreads) {
      float color[3];
      load_pixel(run, dtype, p, color);
      apply_steps(run, 0, run.steps.count, mean, levels, color);
      for_dtype(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        T* const to = static_cast<T*>(run.out);
        to[run.image.element(p, 0)] = saturate<T>(color[0]);
        if (run.image.channels == 3) {
          to[run.image.element(p, 1)] = saturate<T>(color[1]);
          to[run.image.element(p, 2)] = saturate<T>(color[2]);
        }
      });
    }
  }
}

void color_jitter_cuda(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& brightness, const MaybeTensor& contrast,
                       const MaybeTensor& saturation, const MaybeTensor& hue, const Tensor& order, bool planar, bool frames, const Tensor& output,
                       const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const Arguments arguments(brightness, contrast, saturation, hue, order);
  const ColorImages images{planar, frames};
  std::vector<Run> runs;
  int64_t max_pixels = 0;
  bool means = false;
  for (int64_t i = 0; i < in.size(); ++i) {
    const ColorImage image = images.image("color_jitter", in, i);
    const int64_t bytes = image.volume() * in.item_bytes();
    max_pixels = std::max(max_pixels, image.pixels);
    for (int64_t f = 0; f < images.frames(in, i); ++f) {
      runs.push_back({static_cast<const char*>(in.data(i)) + f * bytes, static_cast<char*>(out.data(i)) + f * bytes, image,
                      arguments.steps(i, f, image.channels)});
      means |= runs.back().steps.contrast < runs.back().steps.count;
    }
  }
  if (runs.empty() || max_pixels == 0) return;
  const auto count = static_cast<int64_t>(runs.size());
  const CudaTable<Run> table(runs);
  const CudaBuffer parts(count * kParts * static_cast<int64_t>(sizeof(double)));
  const Levels levels(in.dtype());
  const cudaStream_t stream = current_cuda_stream();
  if (means)
    add_gray<<<batch_grid(kParts, 1, count), kThreads, 0, stream>>>(table.data(), count, in.dtype(), levels, static_cast<double*>(parts.data()));
  jitter<<<batch_grid(max_pixels, 4 * kThreads, count), kThreads, 0, stream>>>(table.data(), count, in.dtype(), levels,
                                                                               static_cast<const double*>(parts.data()));
  check_launch("color_jitter");
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(color_jitter, CUDA, ndd::color_jitter_cuda)
