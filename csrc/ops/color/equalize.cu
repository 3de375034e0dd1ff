// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "ndd/elementwise/lut.h"
#include "ndd/hd.h"
#include "ndd/kernel.h"
#include "ops/color/bytes.h"
#include "ops/color/levels.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#endif

namespace ndd {
namespace {

// A VGA image of three channels takes 0.24 ms, all but 0.03 of it for the histogram.
constexpr double kNanosecondsPerElement = 0.25;

// OpenCV's table, which makes the levels equally frequent: the number of pixels below or at a level, less those of the darkest level, scaled to 0 to 255.
NDD_HD void equalizing_table(const uint32_t* counts, int64_t total, uint8_t* table) {
  int first = 0;
  while (first < kLevels - 1 && counts[first] == 0) ++first;
  const int64_t rest = total - counts[first];
  if (rest == 0) {  // one level: it stays
    for (int v = 0; v < kLevels; ++v) table[v] = static_cast<uint8_t>(first);
    return;
  }
  const float scale = 255.0f / static_cast<float>(rest);
  int64_t below = 0;
  for (int v = 0; v < kLevels; ++v) {
    if (v > first) below += counts[v];
    table[v] = static_cast<uint8_t>(rintf(fminf(static_cast<float>(below) * scale, 255.0f)));
  }
}

// Pillow's table: the pixels, without those of the brightest level, are divided into 255 steps, and a level becomes the number of steps that the pixels
// below it fill. An image with fewer than 255 such pixels keeps its levels.
NDD_HD void stepped_table(const uint32_t* counts, int64_t total, uint8_t* table) {
  int last = kLevels - 1;
  while (last > 0 && counts[last] == 0) --last;
  const int64_t step = (total - counts[last]) / 255;
  int64_t below = 0;
  for (int v = 0; v < kLevels; below += counts[v++]) {
    const int64_t level = step == 0 ? v : (below + step / 2) / step;
    table[v] = static_cast<uint8_t>(level < kLevels - 1 ? level : kLevels - 1);
  }
}

#ifdef __CUDACC__
constexpr int kThreads = 256;
constexpr int kSharedChannels = 16;  // their histograms take 16 KB of shared memory; images with more channels use global memory

struct Run {
  const uint8_t* in;
  uint8_t* out;
  int64_t pixels, channels, first;  // of its tables
};

// f(at, channel, whole) for the bytes of a run, by all threads of the blocks along x: 16 at a time where they are aligned (`whole`), single ones before
// and behind.
// It is given the place of the first one and its channel.
template <class F>
__device__ void for_levels(const Run& run, F f) {
  const int64_t bytes = run.pixels * run.channels, before = (16 - static_cast<int64_t>(reinterpret_cast<uintptr_t>(run.in) % 16)) % 16;
  const int64_t head = before < bytes ? before : bytes, vectors = (bytes - head) / 16, behind = head + vectors * 16;
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x, stride = int64_t{gridDim.x} * kThreads;
  // The channel goes round by additions: a division takes 70 instructions.
  const auto step = static_cast<int32_t>(stride * 16 % run.channels), channels = static_cast<int32_t>(run.channels);
  auto channel = static_cast<int32_t>((head + first * 16) % run.channels);
  for (int64_t v = first; v < vectors; v += stride) {
    f(head + v * 16, channel, true);
    channel += step;
    if (channel >= channels) channel -= channels;
  }
  for (int64_t i = first; i < bytes - vectors * 16; i += stride) {
    const int64_t at = i < head ? i : i - head + behind;
    f(at, static_cast<int32_t>(at % run.channels), false);
  }
}

struct alignas(16) Levels {
  uint32_t word[4];
};

__device__ Levels load_levels(const uint8_t* from) {
  const uint4 words = __ldg(reinterpret_cast<const uint4*>(from));
  return {{words.x, words.y, words.z, words.w}};
}

// An atomic addition in shared memory for each byte, some 7 instructions. Lanes add to different copies of the histogram, because additions to one level are serialized: images have large areas of one level.
__global__ void __launch_bounds__(kThreads) count_gpu(const Run* runs, int64_t count, uint32_t* counts) {
  __shared__ uint32_t part[kSharedChannels * kLevels];
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run run = runs[k];
    uint32_t* of_run = counts + run.first * kLevels;
    if (run.channels > kSharedChannels) {
      for_levels(run, [&](int64_t at, int32_t channel, bool whole) {
        for (int j = 0; j < (whole ? 16 : 1); ++j) {
          atomicAdd(of_run + int64_t{channel} * kLevels + run.in[at + j], 1u);
          channel = channel + 1 < run.channels ? channel + 1 : 0;
        }
      });
      continue;
    }
    const int entries = static_cast<int>(run.channels) * kLevels, copies = min(4, kSharedChannels * kLevels / entries);
    for (int v = threadIdx.x; v < copies * entries; v += kThreads) part[v] = 0;
    __syncthreads();
    uint32_t* const own = part + static_cast<int>(threadIdx.x) % copies * entries;
    for_levels(run, [&](int64_t at, int32_t channel, bool whole) {
      int table = channel * kLevels;
      if (!whole) {
        atomicAdd(own + table + run.in[at], 1u);
        return;
      }
      const Levels levels = load_levels(run.in + at);
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        atomicAdd(own + table + (levels.word[j / 4] >> (j % 4 * 8) & 0xFF), 1u);
        table = table + kLevels < entries ? table + kLevels : 0;
      }
    });
    __syncthreads();
    for (int v = threadIdx.x; v < entries; v += kThreads) {
      uint32_t sum = 0;
      for (int c = 0; c < copies; ++c) sum += part[c * entries + v];
      if (sum) atomicAdd(of_run + v, sum);
    }
    __syncthreads();
  }
}

// equalizing_table or stepped_table, by a warp for each table: a lane has eight levels.
__global__ void __launch_bounds__(kThreads) tables_gpu(const uint32_t* counts, const int64_t* totals, int64_t count, bool stepped, uint8_t* tables) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t k = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32; k < count; k += int64_t{gridDim.x} * kThreads / 32) {
    int64_t below[8], sum = 0;  // up to and with each level
    for (int j = 0; j < 8; ++j) below[j] = sum += counts[k * kLevels + lane * 8 + j];
    int64_t before = sum;
    for (int d = 1; d < 32; d *= 2) {
      const int64_t other = __shfl_up_sync(0xFFFFFFFFu, before, d);
      if (lane >= d) before += other;
    }
    before -= sum;
    int first = kLevels - 1;  // the darkest level that occurs
    for (int j = 7; j >= 0; --j) {
      below[j] += before;
      if (below[j] > 0 && lane * 8 + j < first) first = lane * 8 + j;
    }
    if (stepped) {
      // The brightest level that occurs has all pixels up to it.
      int64_t brightest = 0;
      for (int j = 0; j < 8; ++j) {
        const int64_t here = counts[k * kLevels + lane * 8 + j];
        if (here > 0 && below[j] == totals[k]) brightest = here;
      }
      for (int d = 1; d < 32; d *= 2) {
        const int64_t other = __shfl_xor_sync(0xFFFFFFFFu, brightest, d);
        brightest = other > brightest ? other : brightest;
      }
      const int64_t step = (totals[k] - brightest) / 255;
      for (int j = 0; j < 8; ++j) {
        const int64_t darker = below[j] - counts[k * kLevels + lane * 8 + j], level = step == 0 ? lane * 8 + j : (darker + step / 2) / step;
        tables[k * kLevels + lane * 8 + j] = static_cast<uint8_t>(level < kLevels - 1 ? level : kLevels - 1);
      }
      continue;
    }
    for (int d = 1; d < 32; d *= 2) {
      const int other = __shfl_xor_sync(0xFFFFFFFFu, first, d);
      first = other < first ? other : first;
    }
    int64_t darkest = 0;
    for (int j = 0; j < 8; ++j) darkest = lane * 8 + j == first ? below[j] : darkest;
    darkest = __shfl_sync(0xFFFFFFFFu, darkest, first / 8);
    const int64_t rest = totals[k] - darkest;
    const float scale = 255.0f / static_cast<float>(rest);
    for (int j = 0; j < 8; ++j) {
      const int64_t above = below[j] > darkest ? below[j] - darkest : 0;
      const float level = rest == 0 ? static_cast<float>(first) : rintf(fminf(static_cast<float>(above) * scale, 255.0f));
      tables[k * kLevels + lane * 8 + j] = static_cast<uint8_t>(level);
    }
  }
}

// 16 bytes per thread and step, through tables in shared memory; about 7 instructions a byte.
__global__ void __launch_bounds__(kThreads) map_gpu(const Run* runs, int64_t count, const uint8_t* tables) {
  __shared__ uint8_t shared[kSharedChannels * kLevels];
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run run = runs[k];
    const uint8_t* of_run = tables + run.first * kLevels;
    if (run.channels > kSharedChannels) {
      for_levels(run, [&](int64_t at, int32_t channel, bool whole) {
        for (int j = 0; j < (whole ? 16 : 1); ++j) {
          run.out[at + j] = of_run[int64_t{channel} * kLevels + run.in[at + j]];
          channel = channel + 1 < run.channels ? channel + 1 : 0;
        }
      });
      continue;
    }
    const int entries = static_cast<int>(run.channels) * kLevels;
    __syncthreads();
    for (int v = threadIdx.x; v < entries; v += kThreads) shared[v] = of_run[v];
    __syncthreads();
    const bool aligned = reinterpret_cast<uintptr_t>(run.out) % 16 == reinterpret_cast<uintptr_t>(run.in) % 16;
    for_levels(run, [&](int64_t at, int32_t channel, bool whole) {
      int table = channel * kLevels;
      if (!whole) {
        run.out[at] = shared[table + run.in[at]];
        return;
      }
      const Levels levels = load_levels(run.in + at);
      Levels mapped{};
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        mapped.word[j / 4] |= static_cast<uint32_t>(shared[table + (levels.word[j / 4] >> (j % 4 * 8) & 0xFF)]) << (j % 4 * 8);
        table = table + kLevels < entries ? table + kLevels : 0;
      }
      if (aligned) {
        *reinterpret_cast<uint4*>(run.out + at) = {mapped.word[0], mapped.word[1], mapped.word[2], mapped.word[3]};
      } else {
#pragma unroll
        for (int j = 0; j < 16; ++j) run.out[at + j] = static_cast<uint8_t>(mapped.word[j / 4] >> (j % 4 * 8));
      }
    });
  }
}

void equalize_gpu(const Samples& in, const Samples& out, int64_t leading, bool interleaved, bool stepped) {
  std::vector<Run> runs;
  std::vector<int64_t> totals;
  int64_t max_bytes = 0;
  for (int64_t i = 0; i < in.size(); ++i) {
    const PixelPlanes p(in, i, leading, interleaved);
    const int64_t bytes = p.volume();
    for (int64_t k = 0; k < p.planes && bytes > 0; ++k) {
      runs.push_back({static_cast<const uint8_t*>(in.data(i)) + k * bytes, static_cast<uint8_t*>(out.data(i)) + k * bytes, p.pixels, p.channels,
                      static_cast<int64_t>(totals.size())});
      totals.insert(totals.end(), p.channels, p.pixels);
    }
    max_bytes = std::max(max_bytes, bytes);
  }
  if (runs.empty()) return;
  const int64_t tables = static_cast<int64_t>(totals.size()), count = static_cast<int64_t>(runs.size());
  const CudaTable<Run> table(runs);
  const CudaTable<int64_t> total(totals);
  const CudaBuffer counts(tables * kLevels * 4), maps(tables * kLevels);
  const cudaStream_t stream = current_cuda_stream();
  check_cuda(cudaMemsetAsync(counts.data(), 0, tables * kLevels * 4, stream), "equalize");
  const auto grid = [&](int64_t bytes_per_thread) { return batch_grid(max_bytes / (kThreads * bytes_per_thread), 1, count); };
  // The second pass finds the batch in the second-level cache where it fits.
  count_gpu<<<grid(128), kThreads, 0, stream>>>(table.data(), count, static_cast<uint32_t*>(counts.data()));
  tables_gpu<<<batch_grid(tables * 32, kThreads, 1), kThreads, 0, stream>>>(static_cast<const uint32_t*>(counts.data()), total.data(), tables,
                                                                            stepped, static_cast<uint8_t*>(maps.data()));
  map_gpu<<<grid(32), kThreads, 0, stream>>>(table.data(), count, static_cast<const uint8_t*>(maps.data()));
  check_launch("equalize");
}
#endif

void map_equalized(const uint8_t* in, int64_t pixels, int64_t channels, bool stepped, uint8_t* out) {
  std::vector<uint32_t> counts(channels * kLevels);
  std::vector<uint8_t> tables(channels * kLevels);
  count_levels(in, pixels, channels, counts.data());
  for (int64_t c = 0; c < channels; ++c)
    (stepped ? stepped_table : equalizing_table)(counts.data() + c * kLevels, pixels, tables.data() + c * kLevels);
  map_levels(in, pixels, channels, tables.data(), out);
}

void equalize(const Tensor& input, const MaybeTensor& input_shapes, int64_t leading, bool interleaved, bool stepped, const Tensor& output,
              const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
#ifdef __CUDACC__
  if (input.is_cuda()) return equalize_gpu(in, out, leading, interleaved, stepped);
#endif
  launch_cpu("equalize", in.size(), kNanosecondsPerElement * in.mean_volume(), {}, [=](int64_t i) {
    const PixelPlanes p(in, i, leading, interleaved);
    const int64_t bytes = p.volume();
    const uint8_t* from = static_cast<const uint8_t*>(in.data(i));
    uint8_t* to = static_cast<uint8_t*>(out.data(i));
    for (int64_t k = 0; k < p.planes; ++k, from += bytes, to += bytes) map_equalized(from, p.pixels, p.channels, stepped, to);
  });
}

}  // namespace

#ifndef __NVCC__  // of the CPU half alone
void equalize_bytes(const uint8_t* in, int64_t pixels, int64_t channels, bool stepped, uint8_t* out) {
  map_equalized(in, pixels, channels, stepped, out);
}
#endif

}  // namespace ndd
NDD_KERNELS(equalize, ndd::equalize)
