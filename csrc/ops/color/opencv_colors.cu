// SPDX-License-Identifier: Apache-2.0
// Color steps with the roundings of OpenCV on CUDA: a launch for the means that contrasts need, then one for all steps. A mean follows exactly from a sum
// of integers, in whatever order blocks finish.
#include "ops/color/opencv_colors.h"

#include <algorithm>
#include <vector>

#include "ndd/color/pixels.cuh"
#include "ndd/cuda.h"
#include "ndd/elementwise/lut.h"
#include "ndd/kernel.h"
#include "ndd/reduce/block.cuh"

namespace ndd::opencv_colors {
namespace {

constexpr int kParts = 32;  // blocks that add up the gray values of an image
constexpr int kResident = 3;  // blocks of a multiprocessor: 80 registers for a thread; with 64 some are spilled

using Run = pixels::PixelRun<Steps>;

// A table for each step that treats channels alone.
using Tables = uint8_t[kMaxSteps][kLevels];

// The tables of steps that map levels, by all threads of the block, which may still be reading the ones before.
__device__ void make_tables(const Steps& steps, int32_t end, int64_t channels, double mean, Tables& tables) {
  static_assert(pixels::kThreads == kLevels);
  __syncthreads();
  for (int32_t k = 0; k < end; ++k)
    if (steps.step[k].maps_levels(channels)) tables[k][threadIdx.x] = map_level(steps.step[k], static_cast<int>(threadIdx.x), mean);
  __syncthreads();
}

// Steps 0 to end of four pixels.
template <int kChannels>
struct PixelSteps {
  static constexpr bool kLong = true;
  static constexpr int kElements = 4 * kChannels;
  const Step* step;
  int32_t end;
  const Tables& tables;

  __device__ __forceinline__ void run(const uint32_t (&in)[kChannels], float (&color)[kElements]) const {
#pragma unroll
    for (int e = 0; e < kElements; ++e) color[e] = static_cast<float>(pixels::byte_of(in[e / 4], e % 4));
#pragma unroll 1
    for (int32_t k = 0; k < end; ++k) {
      if (step[k].maps_levels(kChannels)) {
#pragma unroll
        for (float& level : color) level = static_cast<float>(tables[k][static_cast<int>(level)]);
      } else if constexpr (kChannels == 3) {
        // The kind is the same for all pixels: one branch for the four of them.
        const Kind kind = step[k].kind;
        if (kind == Kind::hsv) change(color, [&](float& r, float& g, float& b) { shift_hsv(step[k], r, g, b); });
        else if (kind == Kind::saturation) change(color, [&](float& r, float& g, float& b) { saturate_color(step[k], r, g, b); });
        else change(color, [&](float& r, float& g, float& b) { mix_color(step[k], r, g, b); });
      }
    }
  }

  template <class F>
  static __device__ __forceinline__ void change(float (&color)[kElements], F f) {
#pragma unroll
    for (int p = 0; p < 4; ++p) f(color[kChannels * p], color[kChannels * p + 1], color[kChannels * p + 2]);
  }

  __device__ __forceinline__ void operator()(int64_t, const uint32_t (&in)[kChannels], uint32_t (&out)[kChannels]) const {
    float color[kElements];
    run(in, color);
    uint32_t level[kElements];
#pragma unroll
    for (int e = 0; e < kElements; ++e) level[e] = static_cast<uint32_t>(color[e]);  // whole, from 0 to 255
#pragma unroll
    for (int w = 0; w < kChannels; ++w) out[w] = pixels::pack(level[4 * w], level[4 * w + 1], level[4 * w + 2], level[4 * w + 3]);
  }
};

// Adds up what the steps before a contrast make of gray levels.
template <int kChannels>
struct PixelGray {
  static constexpr bool kLong = true;
  PixelSteps<kChannels> steps;
  uint32_t* sum;

  __device__ __forceinline__ void add(const uint32_t (&in)[kChannels], int pixels) const {
    float color[4 * kChannels];
    steps.run(in, color);
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const float* const c = color + kChannels * p;
      // The places exist for one channel too, for which this is compiled as well.
      const float gray = kChannels == 3 ? gray_of(c[0], c[kChannels - 2], c[kChannels - 1]) : c[0];
      *sum += p < pixels ? static_cast<uint32_t>(gray) : 0u;
    }
  }
  __device__ __forceinline__ void operator()(int64_t, const uint32_t (&in)[kChannels], uint32_t (&)[1]) const { add(in, 4); }
  // A single pixel, as the first of four; the others are not added.
  __device__ __forceinline__ void look_at(const uint8_t* in) const {
    uint32_t words[kChannels] = {};
#pragma unroll
    for (int c = 0; c < kChannels; ++c) words[0] |= uint32_t{in[c]} << 8 * c;
    add(words, 1);
  }
};

// The sum of gray values of each part of an image, of what the steps before its contrast make of it. Recomputing these steps in the second kernel is
// cheaper than storing their result.
template <int kChannels>
__global__ void __launch_bounds__(pixels::kThreads, pixels::kResident)
    add_gray(const __grid_constant__ TableRows<Run> runs, int64_t count, double* parts) {
  __shared__ uint4 stages[pixels::kWarps * pixels::kStage];
  __shared__ double shared[pixels::kThreads];
  __shared__ Tables tables;
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run& run = runs.data()[k];
    const int32_t end = run.f.next_contrast(0);
    // Without a contrast nothing needs the mean.
    if (end == run.f.count) continue;
    make_tables(run.f, end, kChannels, 0.0, tables);
    uint32_t sum = 0;
    const PixelGray<kChannels> gray{{run.f.step, end, tables}, &sum};
    pixels::map_pixels<kChannels, 0>(run.in, nullptr, run.pixels, run.head, blockIdx.x, kParts, stages, gray);
    const double total = reduce_block(shared, static_cast<double>(sum), [](double a, double b) { return a + b; });
    if (threadIdx.x == 0) parts[k * kParts + blockIdx.x] = total;
  }
}

template <int kChannels>
__global__ void __launch_bounds__(pixels::kThreads, kResident)
    change_colors(const __grid_constant__ TableRows<Run> runs, BatchTiles batch, const double* parts) {
  static_assert(kParts == 32);  // a lane for each
  __shared__ uint4 stages[pixels::kWarps * pixels::kStage];
  __shared__ Tables tables;
  for_each_tile(batch, [&](uint32_t k, uint32_t tile) {
    const Run& run = runs.data()[k];
    double mean = 0.0;
    if (run.f.next_contrast(0) < run.f.count) {
      // Integers: the sum is exact, so all lanes agree whatever the order of additions.
      double sum = parts[k * kParts + threadIdx.x % 32];
      for (int d = 1; d < 32; d *= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, d);
      mean = sum / static_cast<double>(run.pixels > 0 ? run.pixels : 1);
    }
    make_tables(run.f, run.f.count, kChannels, mean, tables);
    const uint8_t* const in = run.in;
    uint8_t* const out = run.out;
    assume_global(in, out);
    pixels::map_pixels<kChannels, kChannels>(in, out, run.pixels, run.head, tile, batch.across.value, stages,
                                             PixelSteps<kChannels>{run.f.step, run.f.count, tables});
  });
}

// Copies what is never aligned together with its output to memory that is.
template <int kChannels>
std::vector<CudaBuffer> align(std::vector<Run>& runs, cudaStream_t stream) {
  std::vector<CudaBuffer> copies;
  for (Run& run : runs) {
    if (pixels::align_run<kChannels, kChannels>(run)) continue;
    const int64_t bytes = run.pixels * kChannels, offset = static_cast<int64_t>(reinterpret_cast<uintptr_t>(run.out) % sizeof(uint4));
    // At the place within 16 bytes that the output has, so one head aligns both.
    copies.emplace_back(bytes + offset);
    auto* const copy = static_cast<uint8_t*>(copies.back().data()) + offset;
    check_cuda(cudaMemcpyAsync(copy, run.in, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream), "opencv_colors");
    run.in = copy;
    pixels::align_run<kChannels, kChannels>(run);
  }
  return copies;
}

template <int kChannels>
void launch(std::vector<Run>& runs) {
  if (pixels::most_pixels(runs) == 0) return;
  const cudaStream_t stream = current_cuda_stream();
  const auto copies = align<kChannels>(runs, stream);
  const bool means = std::any_of(runs.begin(), runs.end(), [](const Run& run) { return run.f.next_contrast(0) < run.f.count; });
  const auto count = static_cast<int64_t>(runs.size());
  const KernelTable<Run> table(runs);
  const CudaBuffer parts(means ? count * kParts * static_cast<int64_t>(sizeof(double)) : 0);
  auto* const sums = static_cast<double*>(parts.data());
  const BatchTiles batch = batch_tiles(pixels::most_pixels(runs), pixels::kTile, count);
  if (means) add_gray<kChannels><<<batch_grid(kParts, 1, count), pixels::kThreads, 0, stream>>>(table.rows(), count, sums);
  change_colors<kChannels><<<resident_blocks(batch, kResident), pixels::kThreads, 0, stream>>>(table.rows(), batch, sums);
  check_launch("opencv_colors");
}

void opencv_colors_cuda(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& steps, const Tensor& output,
                        const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const Args<double> numbers(steps);
  check_arguments(in, out, numbers);
  if (in.size() == 0) return;
  std::vector<Run> gray, colored;
  for (int64_t i = 0; i < in.size(); ++i) {
    const ColorImage image = ColorImages{false, false}.image("opencv_colors", in, i);
    const Run run{static_cast<const uint8_t*>(in.data(i)), static_cast<uint8_t*>(out.data(i)), image.pixels, read_steps(numbers, i, image.channels)};
    (image.channels == 3 ? colored : gray).push_back(run);
    // The mean for a second one would depend on the first: another launch for each.
    const int32_t contrast = run.f.next_contrast(0);
    if (run.f.next_contrast(contrast + 1) < run.f.count) fail("opencv_colors: at most one contrast on a GPU, sample ", i);
  }
  launch<1>(gray);
  launch<3>(colored);
}

}  // namespace
}  // namespace ndd::opencv_colors
NDD_KERNEL(opencv_colors, CUDA, ndd::opencv_colors::opencv_colors_cuda)
