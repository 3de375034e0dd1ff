// SPDX-License-Identifier: Apache-2.0
// equalize: the levels of each channel are mapped such that they become equally frequent. On the GPU in three launches: histograms, tables, lookups; each
// depends on all blocks of the one before.
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
#include "ops/color/level_runs.cuh"
#endif

namespace ndd::equalize_kernels {
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
using namespace level_runs;

struct TableRun : LevelRun {
  int64_t first;  // of its tables
};

__global__ void __launch_bounds__(kThreads) count_gpu(const TableRun* runs, int64_t count, uint32_t* counts) {
  __shared__ uint32_t part[kSharedChannels * kLevels];
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) count_run(runs[k], part, counts + runs[k].first * kLevels);
}

// equalizing_table or stepped_table, by a warp for each table.
__global__ void __launch_bounds__(kThreads) tables_gpu(const uint32_t* counts, const int64_t* totals, int64_t count, bool stepped, uint8_t* tables) {
  for (int64_t k = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32; k < count; k += int64_t{gridDim.x} * kThreads / 32)
    make_equalizing_table(counts + k * kLevels, totals[k], stepped, tables + k * kLevels);
}

__global__ void __launch_bounds__(kThreads) map_gpu(const TableRun* runs, int64_t count, const uint8_t* tables) {
  __shared__ uint8_t shared[kSharedChannels * kLevels];
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const TableRun run = runs[k];
    map_by_tables(run, tables + run.first * kLevels, shared);
  }
}

void equalize_gpu(const Samples& in, const Samples& out, int64_t leading, bool interleaved, bool stepped) {
  std::vector<TableRun> runs;
  std::vector<int64_t> totals;
  int64_t max_bytes = 0;
  for (int64_t i = 0; i < in.size(); ++i) {
    const PixelPlanes p(in, i, leading, interleaved);
    const int64_t bytes = p.volume();
    for (int64_t k = 0; k < p.planes && bytes > 0; ++k) {
      runs.push_back({{static_cast<const uint8_t*>(in.data(i)) + k * bytes, static_cast<uint8_t*>(out.data(i)) + k * bytes, p.pixels, p.channels},
                      static_cast<int64_t>(totals.size())});
      totals.insert(totals.end(), p.channels, p.pixels);
    }
    max_bytes = std::max(max_bytes, bytes);
  }
  if (runs.empty()) return;
  const int64_t tables = static_cast<int64_t>(totals.size()), count = static_cast<int64_t>(runs.size());
  const CudaTable<TableRun> table(runs);
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
  // The channels are counted in one pass over the pixels, and mapped in another.
  count_levels(in, pixels, channels, counts.data());
  for (int64_t c = 0; c < channels; ++c)
    (stepped ? stepped_table : equalizing_table)(counts.data() + c * kLevels, pixels, tables.data() + c * kLevels);
  map_levels(in, pixels, channels, tables.data(), out);
}

void equalize(const Tensor& input, const MaybeTensor& input_shapes, int64_t leading, bool interleaved, bool stepped, const Tensor& output,
              const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  if (in.dtype() != DType::uint8) fail(Error::Type, "equalize", ": images must be uint8");
  check_same("equalize", out, in);
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

}  // namespace ndd::equalize_kernels

#ifndef __NVCC__  // of the CPU half alone
void ndd::equalize_bytes(const uint8_t* in, int64_t pixels, int64_t channels, bool stepped, uint8_t* out) {
  equalize_kernels::map_equalized(in, pixels, channels, stepped, out);
}
#endif

NDD_KERNELS(equalize, ndd::equalize_kernels::equalize)
