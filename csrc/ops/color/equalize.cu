// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "ndd/hd.h"
#include "ndd/kernel.h"
#include "ndd/lut.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#endif

namespace ndd {
namespace {

// A VGA image of three channels takes 0.24 ms, all but 0.03 of it for the histogram.
constexpr double kNanosecondsPerElement = 0.25;

// A table that makes the levels equally frequent: what is below a level, without the darkest one that occurs, stretched to 0 to 255.
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

// Planes of `pixels` pixels with interleaved channels.
struct Planes {
  int64_t planes, pixels, channels;
};

// `leading` dimensions count planes, the last one channels where they are interleaved.
Planes planes_of(const Samples& in, int64_t i, int64_t leading, bool interleaved) {
  const int64_t* shape = in.shape(i);
  Planes made{1, 1, interleaved ? shape[in.ndim() - 1] : 1};
  for (int64_t d = 0; d < in.ndim() - interleaved; ++d) (d < leading ? made.planes : made.pixels) *= shape[d];
  return made;
}

#ifdef __CUDACC__
constexpr int kThreads = 256;
constexpr int kSharedChannels = 16;  // histograms in 16 KB of shared memory

struct Run {
  const uint8_t* in;
  uint8_t* out;
  int64_t pixels, channels, first;  // of its tables
};

__global__ void count_gpu(const Run* runs, int64_t count, uint32_t* counts) {
  __shared__ uint32_t part[kSharedChannels * kLevels];
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run run = runs[k];
    const bool shared = run.channels <= kSharedChannels;
    const int64_t entries = run.channels * kLevels, bytes = run.pixels * run.channels;
    uint32_t* of_run = counts + run.first * kLevels;
    if (shared)
      for (int64_t v = threadIdx.x; v < entries; v += kThreads) part[v] = 0;
    __syncthreads();
    for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < bytes; i += int64_t{gridDim.x} * kThreads)
      atomicAdd((shared ? part : of_run) + i % run.channels * kLevels + run.in[i], 1u);
    __syncthreads();
    if (shared)
      for (int64_t v = threadIdx.x; v < entries; v += kThreads)
        if (part[v]) atomicAdd(of_run + v, part[v]);
    __syncthreads();
  }
}

__global__ void tables_gpu(const uint32_t* counts, const int64_t* totals, int64_t count, uint8_t* tables) {
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < count; k += int64_t{gridDim.x} * kThreads)
    equalizing_table(counts + k * kLevels, totals[k], tables + k * kLevels);
}

__global__ void map_gpu(const Run* runs, int64_t count, const uint8_t* tables) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run run = runs[k];
    const int64_t bytes = run.pixels * run.channels;
    for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < bytes; i += int64_t{gridDim.x} * kThreads)
      run.out[i] = tables[(run.first + i % run.channels) * kLevels + run.in[i]];
  }
}

void equalize_gpu(const Samples& in, const Samples& out, int64_t leading, bool interleaved) {
  std::vector<Run> runs;
  std::vector<int64_t> totals;
  int64_t most = 0;
  for (int64_t i = 0; i < in.size(); ++i) {
    const Planes p = planes_of(in, i, leading, interleaved);
    const int64_t bytes = p.pixels * p.channels;
    for (int64_t k = 0; k < p.planes && bytes > 0; ++k) {
      runs.push_back({static_cast<const uint8_t*>(in.data(i)) + k * bytes, static_cast<uint8_t*>(out.data(i)) + k * bytes, p.pixels, p.channels,
                      static_cast<int64_t>(totals.size())});
      totals.insert(totals.end(), p.channels, p.pixels);
    }
    most = std::max(most, bytes);
  }
  if (runs.empty()) return;
  const int64_t tables = static_cast<int64_t>(totals.size()), count = static_cast<int64_t>(runs.size());
  const CudaTable<Run> table(runs);
  const CudaTable<int64_t> total(totals);
  const CudaBuffer counts(tables * kLevels * 4), maps(tables * kLevels);
  const cudaStream_t stream = current_cuda_stream();
  check_cuda(cudaMemsetAsync(counts.data(), 0, tables * kLevels * 4, stream), "equalize");
  const auto grid = [&](int64_t per_thread) {
    return dim3(static_cast<unsigned>(std::clamp<int64_t>(most / (kThreads * per_thread), 1, 1 << 16)), static_cast<unsigned>(std::min<int64_t>(count, 65535)));
  };
  // Single bytes: both passes are bound by instructions, at some 30 % of the bandwidth. The second one finds the batch in the second-level cache
  // where it fits.
  count_gpu<<<grid(64), kThreads, 0, stream>>>(table.data(), count, static_cast<uint32_t*>(counts.data()));
  tables_gpu<<<static_cast<unsigned>(std::min<int64_t>((tables + kThreads - 1) / kThreads, 65535)), kThreads, 0, stream>>>(
      static_cast<const uint32_t*>(counts.data()), total.data(), tables, static_cast<uint8_t*>(maps.data()));
  map_gpu<<<grid(4), kThreads, 0, stream>>>(table.data(), count, static_cast<const uint8_t*>(maps.data()));
  check_launch("equalize");
}
#endif

void equalize(const Tensor& input, const MaybeTensor& input_shapes, int64_t leading, bool interleaved, const Tensor& output,
              const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
#ifdef __CUDACC__
  if (input.is_cuda()) return equalize_gpu(in, out, leading, interleaved);
#endif
  launch_cpu("equalize", in.size(), kNanosecondsPerElement * in.mean_volume(), {}, [=](int64_t i) {
    const Planes p = planes_of(in, i, leading, interleaved);
    std::vector<uint32_t> counts(p.channels * kLevels);
    std::vector<uint8_t> tables(p.channels * kLevels);
    const uint8_t* from = static_cast<const uint8_t*>(in.data(i));
    uint8_t* to = static_cast<uint8_t*>(out.data(i));
    for (int64_t k = 0; k < p.planes; ++k, from += p.pixels * p.channels, to += p.pixels * p.channels) {
      std::fill(counts.begin(), counts.end(), 0);
      count_levels(from, p.pixels, p.channels, counts.data());
      for (int64_t c = 0; c < p.channels; ++c) equalizing_table(counts.data() + c * kLevels, p.pixels, tables.data() + c * kLevels);
      map_levels(from, p.pixels, p.channels, tables.data(), to);
    }
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNELS(equalize, ndd::equalize)
