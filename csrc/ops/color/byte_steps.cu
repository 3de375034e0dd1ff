// SPDX-License-Identifier: Apache-2.0
// The steps of all images on the GPU, in turns: step k of every image that has one. A turn takes at most three launches: the warps, the histograms that
// some steps depend on, and a kernel for all other steps, whose blocks branch on the kind of their image's step.
#include "ops/color/byte_steps.h"

#include <algorithm>
#include <vector>

#include "ndd/color/matrix.h"
#include "ndd/cuda.h"
#include "ndd/kernel.h"
#include "ndd/warp/warp.cuh"
#include "ops/color/level_runs.cuh"
#include "ops/color/levels.h"
#include "ops/color/twist.h"
#include "ops/filters/sharpness.h"

namespace ndd::byte_steps {
namespace {

using namespace level_runs;

// A step on a frame, or on a plane of it.
// A row of the table of a turn. `in` and `out` are those of the frame or plane; the steps of an image alternate between its output and the
// scratch memory.
struct Run : LevelRun {
  int64_t height, width;
  bool planar;  // of three channels, which the step mixes
  Step step;
  ColorMatrix matrix;
  FixedMatrix fixed;
  // Histograms have kLevels numbers of 32 bits and lie one after the other, in the order of the runs that need them.
  int64_t counts;  // the first of its histograms

  __device__ int64_t element(int64_t pixel, int channel) const { return planar ? channel * pixels + pixel : pixel * channels + channel; }
};

bool needs_counts(Kind kind) {
  return kind == Kind::contrast || kind == Kind::scale_contrast || kind == Kind::autocontrast || kind == Kind::equalize ||
         kind == Kind::equalize_opencv;
}

template <class F>
__device__ void for_pixels(const Run& run, F f) {
  for (int64_t p = int64_t{blockIdx.x} * kThreads + threadIdx.x; p < run.pixels; p += int64_t{gridDim.x} * kThreads)
    f(run.element(p, 0), run.element(p, 1), run.element(p, 2));
}

// The histogram of gray levels, from which the mean of the whole image follows exactly in integers, in whatever order blocks finish.
__device__ void count_gray(const Run& run, uint32_t* part, uint32_t* counts) {
  // Counted in shared memory first: the blocks of an image would otherwise all wait for the same few addresses.
  part[threadIdx.x] = 0;
  __syncthreads();
  for_pixels(run, [&](int64_t red, int64_t green, int64_t blue) {
    const float gray = gray_level<true>(static_cast<float>(run.in[red]), static_cast<float>(run.in[green]), static_cast<float>(run.in[blue]));
    atomicAdd(part + static_cast<int>(gray), 1u);
  });
  __syncthreads();
  if (part[threadIdx.x]) atomicAdd(counts + threadIdx.x, part[threadIdx.x]);
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads) count_gpu(const Run* runs, int64_t count, uint32_t* counts) {
  static_assert(kThreads == kLevels);  // a thread clears and adds one level
  __shared__ uint32_t part[kSharedChannels * kLevels];
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run run = runs[k];
    uint32_t* const of_run = counts + run.counts * kLevels;
    if (run.step.kind == Kind::contrast && run.channels == 3) count_gray(run, part, of_run);
    else count_run(run, part, of_run);
  }
}

// The sum of the levels in a histogram, by a warp.
__device__ uint64_t add_levels(const uint32_t* counts) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint64_t sum = 0;
  for (int v = lane; v < kLevels; v += 32) sum += uint64_t{counts[v]} * static_cast<uint64_t>(v);
  for (int d = 1; d < 32; d *= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, d);
  return sum;
}

// The table of autocontrast, by a warp.
__device__ void make_stretching_table(const uint32_t* counts, uint8_t* table) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int least = kLevels, largest = -1;
  for (int v = lane; v < kLevels; v += 32) {
    // Levels of a lane increase, so the last one found is its largest.
    if (counts[v] == 0) continue;
    least = min(least, v);
    largest = v;
  }
  for (int d = 1; d < 32; d *= 2) {
    least = min(least, __shfl_xor_sync(0xFFFFFFFFu, least, d));
    largest = max(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, d));
  }
  const Stretch stretch(static_cast<float>(least), static_cast<float>(largest), 255.0f, true);
  for (int v = lane; v < kLevels; v += 32) table[v] = static_cast<uint8_t>(stretch(static_cast<float>(v)));
}

// Fills the tables of a run and returns how many there are: one, or one for each channel. All threads of a block call it.
// Every block of an image makes the tables for itself, which saves a launch that would store them.
__device__ int make_tables(const Run& run, const uint32_t* counts, uint8_t* tables, float* means) {
  const Kind kind = run.step.kind;
  const int warp = static_cast<int>(threadIdx.x) / 32, channels = static_cast<int>(run.channels);
  if (kind == Kind::autocontrast || kind == Kind::equalize || kind == Kind::equalize_opencv) {
    for (int c = warp; c < channels; c += kThreads / 32) {
      if (kind == Kind::autocontrast) make_stretching_table(counts + c * kLevels, tables + c * kLevels);
      else make_equalizing_table(counts + c * kLevels, run.pixels, kind == Kind::equalize, tables + c * kLevels);
    }
    return channels;
  }
  float mean = 0.0f;
  if (kind == Kind::contrast || kind == Kind::scale_contrast) {
    // One histogram of gray levels, or one for each channel whose means are weighted afterward.
    const int histograms = kind == Kind::contrast ? 1 : channels;
    for (int c = warp; c < histograms; c += kThreads / 32) {
      const auto sum = static_cast<double>(add_levels(counts + c * kLevels));
      if (threadIdx.x % 32 == 0) means[c] = static_cast<float>(sum / static_cast<double>(run.pixels));
    }
    __syncthreads();
    mean = kind == Kind::contrast ? means[0] : gray_of_means(means, channels);
  }
  // All other steps map levels to levels, whatever the channel.
  tables[threadIdx.x] = level_after(run.step, mean, static_cast<int>(threadIdx.x));
  return 1;
}

// Saturation by torchvision's blend with gray, or by a matrix.
__device__ void saturate_colors(const Run& run) {
  const bool blends = run.step.kind == Kind::saturation;
  const color_jitter::Step step = jitter_step(run.step);
  for_pixels(run, [&](int64_t red, int64_t green, int64_t blue) {
    const uint8_t level[3] = {run.in[red], run.in[green], run.in[blue]};
    uint8_t changed[3];
    // As on the CPU: matrices whose factors fit are applied in integers, and the results of both devices are equal.
    if (!blends && run.fixed) {
      run.fixed.apply<3>(level, changed);
    } else {
      const float color[3] = {static_cast<float>(level[0]), static_cast<float>(level[1]), static_cast<float>(level[2])};
      float result[3];
      if (blends) {
        const float gray = gray_level<true>(color[0], color[1], color[2]);
        for (int c = 0; c < 3; ++c) result[c] = color_jitter::blend<true>(color[c], gray, step, 255.0f);
      } else {
        run.matrix.apply<3, 3>(color, result);
      }
      for (int c = 0; c < 3; ++c) changed[c] = saturate<uint8_t>(result[c]);
    }
    run.out[red] = changed[0];
    run.out[green] = changed[1];
    run.out[blue] = changed[2];
  });
}

// A warp for each row.
__device__ void sharpen(const Run& run) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t step = run.channels, row = run.width * step;
  const bool inside = run.height > 2 && run.width > 2;
  const Sharpen functor{run.step.rest, 255.0f};
  for (int64_t y = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32; y < run.height; y += int64_t{gridDim.x} * (kThreads / 32)) {
    const uint8_t* const in = run.in + y * row;
    uint8_t* const out = run.out + y * row;
    const bool is_border = !inside || y == 0 || y == run.height - 1;
    for (int64_t x = lane; x < row; x += 32) {
      // Pillow leaves the border of one pixel unchanged.
      if (is_border || x < step || x >= row - step) {
        out[x] = in[x];
        continue;
      }
      const float middle = static_cast<float>(in[x]);
      // The middle counts five times: three here, once among the nine below, and once in value().
      float sum = 3.0f * middle;
#pragma unroll
      for (int dx = -1; dx <= 1; ++dx) {
        const uint8_t* const at = in + x + dx * step;
        sum += static_cast<float>(at[-row]) + static_cast<float>(at[0]) + static_cast<float>(at[row]);
      }
      out[x] = saturate<uint8_t>(functor.value<true>(middle, sum));
    }
  }
}

__global__ void __launch_bounds__(kThreads) apply_gpu(const Run* runs, int64_t count, const uint32_t* counts) {
  __shared__ uint8_t tables[kSharedChannels * kLevels];
  __shared__ float means[kSharedChannels];
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run run = runs[k];
    if (run.step.kind == Kind::sharpness) {
      sharpen(run);
    } else if (run.step.kind == Kind::saturation || run.step.kind == Kind::scale_saturation) {
      saturate_colors(run);
    } else {
      __syncthreads();  // the tables of the run before are no longer read
      const int count_of_tables = make_tables(run, counts + run.counts * kLevels, tables, means);
      __syncthreads();
      LevelRun levels = run;
      // The same table for all channels: the image is one run of bytes.
      if (count_of_tables == 1) {
        levels.pixels *= levels.channels;
        levels.channels = 1;
      }
      map_run(levels, tables, count_of_tables * kLevels);
    }
  }
}

// The steps of a turn: those that depend on histograms, the others, and the warps.
// Steps of different images never depend on each other, and those of one image follow in turns, so the order of launches on the stream is
// all the synchronization there is.
struct Turn {
  std::vector<Run> counted, others;
  std::vector<WarpItem<2, AffineMap<2>>> warps;
};

class Launcher {
 public:
  Launcher(const Arguments& arguments, const Samples& in, const Samples& out) : arguments_(arguments), in_(in), out_(out) {}

  void launch() {
    int64_t bytes = 0;
    bool needs_scratch = false;
    std::vector<std::vector<Step>> steps;
    std::vector<float> fills;
    std::vector<size_t> first_fills;
    for (int64_t i = 0; i < in_.size(); ++i) {
      // Read once, on the host: they decide what is launched.
      steps.push_back(arguments_.steps(i));
      if (steps.back().empty()) steps.back().push_back({});  // a copy
      needs_scratch |= steps.back().size() > 1;
      bytes += in_.volume(i);
      first_fills.push_back(fills.size());
      const std::vector<float> of_sample = arguments_.fills(i);
      fills.insert(fills.end(), of_sample.begin(), of_sample.end());
    }
    if (bytes == 0) return;
    // Steps alternate between the output and this memory, such that the last one writes the output.
    const CudaBuffer scratch(needs_scratch ? bytes : 0);
    const CudaTable<float> fill_table(fills);
    int64_t sample_begin = 0;
    for (int64_t i = 0; i < in_.size(); sample_begin += in_.volume(i++)) {
      const Image image = arguments_.image(i);
      const int64_t volume = image.volume();
      const size_t first = first_fills[i], next = i + 1 < in_.size() ? first_fills[i + 1] : fills.size();
      for (int64_t f = 0; f < arguments_.frames(i) && volume > 0; ++f) {
        const uint8_t* from = static_cast<const uint8_t*>(in_.data(i)) + f * volume;
        for (size_t k = 0; k < steps[i].size(); ++k) {
          // Counted from the last step, so it is this one that writes the output, however many there are.
          auto* const base =
              (steps[i].size() - k) % 2 == 1 ? static_cast<uint8_t*>(out_.data(i)) : static_cast<uint8_t*>(scratch.data()) + sample_begin;
          uint8_t* const to = base + f * volume;
          add(image, steps[i][k], k, fills[first], next - first > 1 ? fill_table.data() + first : nullptr, from, to);
          from = to;
        }
      }
    }
    run();
  }

 private:
  void add(const Image& image, const Step& step, size_t turn, float fill, const float* fills, const uint8_t* in, uint8_t* out) {
    if (turns_.size() <= turn) turns_.resize(turn + 1);
    if (step.kind == Kind::filter) fail("byte_steps: a filter is not a step on a GPU");
    if (step.kind == Kind::warp) {
      if (arguments_.interp() > Interp::linear) fail("byte_steps: a warp on a GPU is linear or nearest");
      const int64_t plane = image.pixels() * image.inner();
      for (int64_t p = 0; p < image.planes(); ++p)
        turns_[turn].warps.push_back(
            arguments_.warp(image, step, fill, fills == nullptr ? nullptr : fills + (image.planar ? p : 0), in + p * plane, out + p * plane));
      return;
    }
    // The tables of all channels must fit in the shared memory of a block.
    if (image.channels > kSharedChannels) fail("byte_steps: a step on a GPU is for up to ", kSharedChannels, " channels");
    Run run{{in, out, image.pixels(), image.channels}, image.height, image.width, image.planar, step, {}, FixedMatrix(ColorMatrix{}), 0};
    if (step.kind == Kind::scale_saturation) {
      run.matrix = color::twist(1.0, 1.0, step.numbers[0], 0.0, 0.0);
      run.fixed = FixedMatrix(run.matrix);
    }
    // Planes are images of one channel unless the step mixes them.
    const bool splits = image.planar && (step.kind == Kind::sharpness || (needs_counts(step.kind) && step.kind != Kind::contrast));
    if (splits) run.channels = 1;
    for (int64_t p = 0; p < (splits ? image.channels : 1); ++p) {
      if (needs_counts(step.kind)) {
        run.counts = histograms_;
        histograms_ += step.kind == Kind::contrast ? 1 : run.channels;
      }
      // Apart, so count_gpu gets a contiguous part of the table of runs.
      (needs_counts(step.kind) ? turns_[turn].counted : turns_[turn].others).push_back(run);
      run.in += image.pixels();
      run.out += image.pixels();
    }
  }

  void run() {
    std::vector<Run> runs;
    for (const Turn& turn : turns_) {
      runs.insert(runs.end(), turn.counted.begin(), turn.counted.end());
      runs.insert(runs.end(), turn.others.begin(), turn.others.end());
    }
    // One table for all turns, because each upload costs the host microseconds.
    const CudaTable<Run> run_table(runs);
    // All histograms of all turns are cleared with one memset.
    const CudaBuffer counts(histograms_ * kLevels * 4);
    const cudaStream_t stream = current_cuda_stream();
    if (histograms_ > 0) check_cuda(cudaMemsetAsync(counts.data(), 0, histograms_ * kLevels * 4, stream), "byte_steps");
    const Run* next_run = run_table.data();
    for (const Turn& turn : turns_) {
      const auto items = static_cast<int64_t>(turn.warps.size()), counted = static_cast<int64_t>(turn.counted.size()),
                 count = counted + static_cast<int64_t>(turn.others.size());
      int64_t tiles = 0, most = 0;
      for (const auto& item : turn.warps) tiles = std::max(tiles, warp::tile_count(item));
      for (const auto* part : {&turn.counted, &turn.others})
        for (const Run& run : *part) most = std::max(most, run.pixels * run.channels);
      if (items > 0) {
        const KernelTable<WarpItem<2, AffineMap<2>>> table(turn.warps);
        launch_warp<2, false>(table.rows(), turn.warps.data(), items, tiles, DType::uint8, DType::uint8, stream);
      }
      // Twice the pixels of apply_gpu for each block, which ends with atomic additions to the histogram of the image.
      if (counted > 0)
        count_gpu<<<batch_grid(most, kThreads * 128, counted), kThreads, 0, stream>>>(next_run, counted, static_cast<uint32_t*>(counts.data()));
      if (count > 0)
        apply_gpu<<<batch_grid(most, kThreads * 64, count), kThreads, 0, stream>>>(next_run, count, static_cast<const uint32_t*>(counts.data()));
      next_run += count;
    }
    check_launch("byte_steps");
  }

  const Arguments& arguments_;
  const Samples &in_, &out_;
  std::vector<Turn> turns_;
  int64_t histograms_ = 0;
};

void byte_steps_cuda(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& steps, const Tensor& fill_value, int64_t interp_type,
                     int64_t border, bool fades, bool planar, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  if (in.dtype() != DType::uint8) fail(Error::Type, "byte_steps: images must be uint8");
  check_same("byte_steps", out, in);
  Launcher(Arguments(in, steps, fill_value, interp_type, border, fades, planar), in, out).launch();
}

}  // namespace
}  // namespace ndd::byte_steps
NDD_KERNEL(byte_steps, CUDA, ndd::byte_steps::byte_steps_cuda)
