// SPDX-License-Identifier: Apache-2.0
#include "ops/audio/bands.h"

#ifdef __CUDACC__
#include <map>

#include "ndd/launch_runs.cuh"

namespace ndd::audio {
namespace {

constexpr int kThreads = 256;

// A sample, as the kernel sees it.
struct Run {
  const float* in;
  float* out;
  int64_t extent, inner, rows, volume;  // volume of the output
  const BandRow* bands;
  const float* weights;
};

// A thread for each output. Neighbors read neighboring columns, and rows overlap, so the input comes from the caches; its bytes bound the time.
__global__ void __launch_bounds__(kThreads) apply(const __grid_constant__ TableRows<Run> runs, int64_t count) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run run = runs[k];
    for (int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x; e < run.volume; e += int64_t{gridDim.x} * kThreads) {
      const int64_t column = e % run.inner, m = e / run.inner % run.rows, o = e / run.inner / run.rows;
      const BandRow row = run.bands[m];
      const float* in = run.in + (o * run.extent + row.first) * run.inner + column;
      float sum = 0.0f;
      for (int32_t j = 0; j < row.count; ++j, in += run.inner) sum += run.weights[row.offset + j] * *in;
      run.out[e] = sum;
    }
  }
}

}  // namespace

void apply_bands_gpu(const std::string& op, const Samples& in, const Samples& out, int64_t axis, const BandsOf& bands_of) {
  // Samples with the same extent share one uploaded map.
  std::map<int64_t, std::pair<CudaTable<BandRow>, CudaTable<float>>> tables;
  std::vector<Run> runs;
  for (int64_t i = 0; i < in.size(); ++i) {
    if (out.volume(i) == 0) continue;
    const AxisShape shape(in, i, axis);
    auto found = tables.find(shape.extent);
    const BandsPtr bands = bands_of(shape.extent);
    if (found == tables.end())
      found = tables.emplace(shape.extent, std::make_pair(CudaTable<BandRow>(bands->rows), CudaTable<float>(bands->weights))).first;
    runs.push_back({static_cast<const float*>(in.data(i)), static_cast<float*>(out.data(i)), shape.extent, shape.inner,
                    static_cast<int64_t>(bands->rows.size()), out.volume(i), found->second.first.data(), found->second.second.data()});
  }
  launch_runs(op.c_str(), runs, &Run::volume, kThreads,
              [](dim3 grid, const auto& rows, int64_t count) { apply<<<grid, kThreads, 0, current_cuda_stream()>>>(rows, count); });
}

}  // namespace ndd::audio
#endif
