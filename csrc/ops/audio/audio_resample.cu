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

// A thread for each output. Inputs and weights come from the caches, whose loads limit the rate to 2 taps a clock; half of that is expected.
__global__ void __launch_bounds__(kThreads)
    resample_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count, Scaling load, DType in, DType out) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run& run = runs[k];
    for (int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x; e < run.outputs * run.channels; e += int64_t{gridDim.x} * kThreads) {
      const int64_t o = e / run.channels, channel = e - o * run.channels;
      const SincPosition position = position_of(run.table, o);
      const float* row = run.weights + position.phase * run.table.taps;
      const int64_t begin = position.first < 0 ? -position.first : 0;
      const int64_t end = run.length - position.first < run.table.taps ? run.length - position.first : run.table.taps;
      float sum = 0.0f, next = 0.0f;
      for (int64_t t = begin; t < end; ++t) {
        const float value = load(load_element(run.in, in, (position.first + t) * run.channels + channel));
        sum += value * row[t];
        if (!run.table.exact) next += value * row[run.table.taps + t];
      }
      if (!run.table.exact) sum += position.next * (next - sum);
      store_element(sum, run.out, out, e);
    }
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
