// SPDX-License-Identifier: Apache-2.0
// Histograms of the levels of uint8 images on the GPU, tables made of them, and lookups, for equalize and byte_steps.
#pragma once

#include <cstdint>

#include "ndd/elementwise/lut.h"

namespace ndd::level_runs {

constexpr int kThreads = 256;
constexpr int kSharedChannels = 16;  // their histograms take 16 KB of shared memory; images with more channels use global memory

// Pixels with interleaved channels.
struct LevelRun {
  const uint8_t* in;
  uint8_t* out;
  int64_t pixels, channels;
};

// f(at, channel, whole) for the bytes of a run, by all threads of the blocks along x: 16 at a time where they are aligned (`whole`), single ones before
// and behind. `at` is the place of the first byte and `channel` its channel.
template <class F>
__device__ void for_levels(const LevelRun& run, F f) {
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

static __device__ Levels load_levels(const uint8_t* from) {
  const uint4 words = __ldg(reinterpret_cast<const uint4*>(from));
  return {{words.x, words.y, words.z, words.w}};
}

// Adds the histogram of each channel to `of_run`, by all threads of the blocks along x. An atomic addition in shared memory for each byte, some 7
// instructions. Lanes add to different copies of the histogram, because additions to one level are serialized: images have large areas of one level.
static __device__ void count_run(const LevelRun& run, uint32_t (&part)[kSharedChannels * kLevels], uint32_t* of_run) {
  if (run.channels > kSharedChannels) {
    for_levels(run, [&](int64_t at, int32_t channel, bool whole) {
      for (int j = 0; j < (whole ? 16 : 1); ++j) {
        atomicAdd(of_run + int64_t{channel} * kLevels + run.in[at + j], 1u);
        channel = channel + 1 < run.channels ? channel + 1 : 0;
      }
    });
    return;
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

// The table of equalize by OpenCV's rule or, if `stepped`, by Pillow's, from a histogram of `total` pixels. By a warp: a lane has eight levels.
static __device__ void make_equalizing_table(const uint32_t* counts, int64_t total, bool stepped, uint8_t* table) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int64_t below[8], sum = 0;  // up to and with each level
  for (int j = 0; j < 8; ++j) below[j] = sum += counts[lane * 8 + j];
  // A scan over the lanes, for the pixels of the darker ones.
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
      const int64_t here = counts[lane * 8 + j];
      if (here > 0 && below[j] == total) brightest = here;
    }
    for (int d = 1; d < 32; d *= 2) {
      const int64_t other = __shfl_xor_sync(0xFFFFFFFFu, brightest, d);
      brightest = other > brightest ? other : brightest;
    }
    const int64_t step = (total - brightest) / 255;
    for (int j = 0; j < 8; ++j) {
      const int64_t darker = below[j] - counts[lane * 8 + j], level = step == 0 ? lane * 8 + j : (darker + step / 2) / step;
      table[lane * 8 + j] = static_cast<uint8_t>(level < kLevels - 1 ? level : kLevels - 1);
    }
    return;
  }
  for (int d = 1; d < 32; d *= 2) {
    const int other = __shfl_xor_sync(0xFFFFFFFFu, first, d);
    first = other < first ? other : first;
  }
  int64_t darkest = 0;
  for (int j = 0; j < 8; ++j) darkest = lane * 8 + j == first ? below[j] : darkest;
  // From the lane that has this level.
  darkest = __shfl_sync(0xFFFFFFFFu, darkest, first / 8);
  const int64_t rest = total - darkest;
  const float scale = 255.0f / static_cast<float>(rest);
  for (int j = 0; j < 8; ++j) {
    const int64_t above = below[j] > darkest ? below[j] - darkest : 0;
    const float level = rest == 0 ? static_cast<float>(first) : rintf(fminf(static_cast<float>(above) * scale, 255.0f));
    table[lane * 8 + j] = static_cast<uint8_t>(level);
  }
}

// Replaces the levels by all threads of the blocks along x: 16 bytes per thread and step, through tables of all channels in shared memory; about 7
// instructions a byte.
static __device__ void map_run(const LevelRun& run, const uint8_t* shared, int entries) {
  // for_levels() aligns the input; the output is aligned with it if it lies at the same place within 16 bytes.
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

// The same with the tables of all channels in global memory, by whole blocks. Tables of so many channels that they do not fit into shared memory are read
// through the caches.
static __device__ void map_by_tables(const LevelRun& run, const uint8_t* tables, uint8_t (&shared)[kSharedChannels * kLevels]) {
  if (run.channels > kSharedChannels) {
    for_levels(run, [&](int64_t at, int32_t channel, bool whole) {
      for (int j = 0; j < (whole ? 16 : 1); ++j) {
        run.out[at + j] = tables[int64_t{channel} * kLevels + run.in[at + j]];
        channel = channel + 1 < run.channels ? channel + 1 : 0;
      }
    });
    return;
  }
  const int entries = static_cast<int>(run.channels) * kLevels;
  __syncthreads();
  for (int v = threadIdx.x; v < entries; v += kThreads) shared[v] = tables[v];
  __syncthreads();
  map_run(run, shared, entries);
}

}  // namespace ndd::level_runs
