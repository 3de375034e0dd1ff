// SPDX-License-Identifier: Apache-2.0
// A launch for the means that contrast needs, then one for all steps. Interleaved bytes go through ndd/color/pixels.cuh, 16 pixels of a thread at a time;
// of other types and orders of channels a thread has a pixel at a time.
#include "ops/color/color_jitter.h"

#include <algorithm>
#include <vector>

#include "ndd/color/pixels.cuh"
#include "ndd/color/planes.h"
#include "ndd/cuda.h"
#include "ndd/elementwise/elements.cuh"
#include "ndd/kernel.h"
#include "ndd/reduce/block.cuh"

namespace ndd::color_jitter {
namespace {

constexpr int kThreads = 256, kParts = 32;  // blocks that add up the gray values of an image

// An image or a frame. `steps` are in the order in which they apply, with the factors of this image.
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
__global__ void __launch_bounds__(kThreads)
    add_gray(const __grid_constant__ TableRows<Run> runs, int64_t count, DType dtype, Levels levels, double* parts) {
  __shared__ double shared[kThreads];
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run& run = runs.data()[k];  // a copy would be indexed in local memory
    // Without contrast among its steps, nothing needs the mean.
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

__global__ void __launch_bounds__(kThreads)
    jitter(const __grid_constant__ TableRows<Run> runs, int64_t count, DType dtype, Levels levels, const double* parts) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run& run = runs.data()[k];  // a copy would be indexed in local memory
    double sum = 0.0;
    if (run.steps.contrast < run.steps.count)
      // In the order of the parts, so the mean is the same in every thread and in every run.
      for (int part = 0; part < kParts; ++part) sum += parts[k * kParts + part];
    // An image without pixels has no mean, and none of the loops below runs for it.
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

// --- Interleaved bytes ----------------------------------------------------------------------------------

using ByteRun = pixels::PixelRun<Steps>;

// Steps begin to end of four pixels.
struct ByteSteps {
  static constexpr bool kLong = true;
  const Step* step;
  int begin, end;
  float mean;
  Levels levels;

  __device__ __forceinline__ void run(const uint32_t (&in)[3], float (&color)[4][3]) const {
#pragma unroll
    for (int e = 0; e < 12; ++e) color[e / 3][e % 3] = static_cast<float>(pixels::byte_of(in[e / 4], e % 4));
#pragma unroll 1
    for (int k = begin; k < end; ++k) {
      // With a kind that the compiler knows, apply() becomes straight code for each of the four branches.
      Step known = step[k];
      // The kind is the same for all pixels: one branch for the four of them.
      const auto apply_kind = [&](int32_t kind) {
        known.kind = kind;
#pragma unroll
        for (auto& c : color) apply<true>(known, mean, levels, 3, c[0], c[1], c[2]);
      };
      if (known.kind == kHue) apply_kind(kHue);
      else if (known.kind == kSaturation) apply_kind(kSaturation);
      else if (known.kind == kContrast) apply_kind(kContrast);
      else apply_kind(kBrightness);
    }
  }

  __device__ __forceinline__ void operator()(int64_t, const uint32_t (&in)[3], uint32_t (&out)[3]) const {
    float color[4][3];
    run(in, color);
    uint32_t level[12];
#pragma unroll
    for (int e = 0; e < 12; ++e) level[e] = static_cast<uint32_t>(color[e / 3][e % 3]);  // whole, from 0 to 255
#pragma unroll
    for (int w = 0; w < 3; ++w) out[w] = pixels::pack(level[4 * w], level[4 * w + 1], level[4 * w + 2], level[4 * w + 3]);
  }
};

// Adds up what the steps before contrast make of gray levels.
struct ByteGray {
  static constexpr bool kLong = true;
  ByteSteps steps;
  uint32_t* sum;

  __device__ __forceinline__ void operator()(int64_t, const uint32_t (&in)[3], uint32_t (&)[1]) const {
    float color[4][3];
    steps.run(in, color);
#pragma unroll
    for (const auto& c : color) *sum += static_cast<uint32_t>(gray_level<true>(c[0], c[1], c[2]));
  }
  // The steps leave black as it is: pixels that do not exist add nothing.
  __device__ __forceinline__ void look_at(const uint8_t* in) const {
    uint32_t none[1];
    (*this)(0, {in[0] | uint32_t{in[1]} << 8 | uint32_t{in[2]} << 16, 0, 0}, none);
  }
};

// Sums of integers, which are exact in any order.
__global__ void __launch_bounds__(pixels::kThreads, pixels::kResident)
    add_gray_bytes(const __grid_constant__ TableRows<ByteRun> runs, int64_t count, Levels levels, double* parts) {
  __shared__ uint4 stages[pixels::kWarps * pixels::kStage];
  __shared__ double shared[kThreads];
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const ByteRun& run = runs.data()[k];
    // As in add_gray().
    if (run.f.contrast == run.f.count) continue;
    uint32_t sum = 0;
    const ByteGray gray{{run.f.step, 0, run.f.contrast, 0.0f, levels}, &sum};
    pixels::map_pixels<3, 0>(run.in, nullptr, run.pixels, run.head, blockIdx.x, kParts, stages, gray);
    const double total = reduce_block(shared, static_cast<double>(sum), [](double a, double b) { return a + b; });
    if (threadIdx.x == 0) parts[k * kParts + blockIdx.x] = total;
  }
}

__global__ void __launch_bounds__(pixels::kThreads, pixels::kResident)
    jitter_bytes(const __grid_constant__ TableRows<ByteRun> runs, BatchTiles batch, Levels levels, const double* parts) {
  static_assert(kParts == 32);  // a lane for each
  __shared__ uint4 stages[pixels::kWarps * pixels::kStage];
  for_each_tile(batch, [&](uint32_t k, uint32_t tile) {
    const ByteRun& run = runs.data()[k];
    float mean = 0.0f;
    if (run.f.contrast < run.f.count) {
      // Integers: the sum is exact, so all lanes agree whatever the order of additions.
      double sum = parts[k * kParts + threadIdx.x % 32];
      for (int d = 1; d < 32; d *= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, d);
      mean = static_cast<float>(sum / static_cast<double>(run.pixels > 0 ? run.pixels : 1));
    }
    const ByteSteps steps{run.f.step, 0, run.f.count, mean, levels};
    const uint8_t* const in = run.in;
    uint8_t* const out = run.out;
    assume_global(in, out);
    pixels::map_pixels<3, 3>(in, out, run.pixels, run.head, tile, batch.across.value, stages, steps);
  });
}

// Returns false, without launching, if not all runs are interleaved colors that can be aligned.
bool launch_bytes(const std::vector<Run>& runs, bool means, const Levels& levels) {
  std::vector<ByteRun> bytes;
  for (const Run& run : runs) {
    if (run.image.planar || run.image.channels != 3) return false;
    bytes.push_back({static_cast<const uint8_t*>(run.in), static_cast<uint8_t*>(run.out), run.image.pixels, run.steps});
  }
  if (!pixels::align_runs<3, 3>(bytes)) return false;
  const auto count = static_cast<int64_t>(bytes.size());
  const KernelTable<ByteRun> table(bytes);
  const CudaBuffer parts(means ? count * kParts * static_cast<int64_t>(sizeof(double)) : 0);
  auto* const sums = static_cast<double*>(parts.data());
  const BatchTiles batch = batch_tiles(pixels::most_pixels(bytes), pixels::kTile, count);
  const cudaStream_t stream = current_cuda_stream();
  // Only if a sample has contrast among its steps: every other step depends on its own pixel alone.
  if (means) add_gray_bytes<<<batch_grid(kParts, 1, count), pixels::kThreads, 0, stream>>>(table.rows(), count, levels, sums);
  jitter_bytes<<<resident_blocks(batch, pixels::kResident), pixels::kThreads, 0, stream>>>(table.rows(), batch, levels, sums);
  return true;
}

void color_jitter_cuda(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& brightness, const MaybeTensor& contrast,
                       const MaybeTensor& saturation, const MaybeTensor& hue, const Tensor& order, bool planar, bool frames, const Tensor& output,
                       const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  check_same("color_jitter", out, in);
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
      // `contrast` is the number of the step; without one it is the number of steps.
      means |= runs.back().steps.contrast < runs.back().steps.count;
    }
  }
  if (runs.empty() || max_pixels == 0) return;
  const Levels levels(in.dtype());
  if (in.dtype() == DType::uint8 && launch_bytes(runs, means, levels)) return check_launch("color_jitter");
  const auto count = static_cast<int64_t>(runs.size());
  const KernelTable<Run> table(runs);
  const CudaBuffer parts(count * kParts * static_cast<int64_t>(sizeof(double)));
  const cudaStream_t stream = current_cuda_stream();
  if (means)
    add_gray<<<batch_grid(kParts, 1, count), kThreads, 0, stream>>>(table.rows(), count, in.dtype(), levels, static_cast<double*>(parts.data()));
  jitter<<<batch_grid(max_pixels, 4 * kThreads, count), kThreads, 0, stream>>>(table.rows(), count, in.dtype(), levels,
                                                                               static_cast<const double*>(parts.data()));
  check_launch("color_jitter");
}

}  // namespace
}  // namespace ndd::color_jitter
NDD_KERNEL(color_jitter, CUDA, ndd::color_jitter::color_jitter_cuda)
