// SPDX-License-Identifier: Apache-2.0
#include "ops/audio/audio_resample.h"

#include <algorithm>
#include <map>

#include "ndd/cuda.h"
#include "ndd/elementwise/elements.cuh"

namespace ndd::audio {
namespace {

constexpr int kThreads = 256;

struct Run {
  const void* in;
  void* out;
  int64_t length, outputs, channels;
  SincTable table;
  const float* weights;
};

// Output o of a channel. `signal` is the channel's first element; elements are `step` apart.
template <class T>
__device__ __forceinline__ float resample_at(const Run& run, const T* signal, int64_t step, int64_t o, const Scaling& load) {
  const SincPosition position = position_of(run.table, o);
  const auto begin = static_cast<int32_t>(position.first < 0 ? -position.first : 0);
  const auto end = static_cast<int32_t>(min(run.length - position.first, run.table.taps));
  const float* const row = run.weights + position.phase * run.table.taps;
  const T* from = signal + (position.first + begin) * step;
  float sum = 0.0f;
  if (run.table.exact) {
#pragma unroll 4
    for (int32_t t = begin; t < end; ++t, from += step) sum += load(static_cast<float>(*from)) * __ldg(row + t);
    return sum;
  }
  float next = 0.0f;
  const float* const next_row = row + run.table.taps;
#pragma unroll 4
  for (int32_t t = begin; t < end; ++t, from += step) {
    const float value = load(static_cast<float>(*from));
    sum += value * __ldg(row + t);
    next += value * __ldg(next_row + t);
  }
  return sum + position.next * (next - sum);
}

// A thread for each output. The loop over the taps has no branch on the type and no 64-bit index, which took most of its instructions. Inputs and weights
// come from the caches, whose loads limit the rate to 2 taps a clock; half of that is expected.
__global__ void __launch_bounds__(kThreads)
    resample_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count, Scaling load, DType in, DType out) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run run = runs[k];
    for_dtype(in, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* const data = static_cast<const T*>(run.in);
      for (int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x; e < run.outputs * run.channels; e += int64_t{gridDim.x} * kThreads) {
        const int64_t o = run.channels == 1 ? e : e / run.channels, channel = e - o * run.channels;
        store_element(resample_at(run, data + channel, run.channels, o, load), run.out, out, e);
      }
    });
  }
}

void audio_resample(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& ratio, double quality, bool antialias,
                    const Tensor& output, const MaybeTensor& output_shapes) {
  const ResampleJob job = resample_job(input, input_shapes, ratio, quality, antialias, output, output_shapes);
  // Filters are cached and shared, so each is uploaded once. `filters` keeps them alive until the copies are enqueued.
  std::map<const SincFilter*, CudaTable<float>> tables;
  std::vector<std::shared_ptr<const SincFilter>> filters;
  std::vector<Run> runs;
  int64_t max_outputs = 0;
  for (int64_t i = 0; i < job.in.size(); ++i) {
    if (job.out.volume(i) == 0) continue;
    filters.push_back(job.filter(i));
    const SincFilter* filter = filters.back().get();
    auto table_of_filter = tables.find(filter);
    if (table_of_filter == tables.end())
      table_of_filter = tables.emplace(filter, CudaTable<float>(std::vector<float>(filter->weights.begin(), filter->weights.end()))).first;
    runs.push_back(
        {job.in.data(i), job.out.data(i), job.in.shape(i)[0], job.out.shape(i)[0], job.channels(i), filter->table, table_of_filter->second.data()});
    max_outputs = std::max(max_outputs, job.out.volume(i));
  }
  if (runs.empty()) return;
  const KernelTable<Run> table(runs);
  const dim3 grid = batch_grid(max_outputs, kThreads, runs.size());
  resample_gpu<<<grid, kThreads, 0, current_cuda_stream()>>>(table.rows(), static_cast<int64_t>(runs.size()), job.load, job.in.dtype(),
                                                             job.out.dtype());
  check_launch("audio_resample");
}

}  // namespace
}  // namespace ndd::audio
NDD_KERNEL(audio_resample, CUDA, ndd::audio::audio_resample)
