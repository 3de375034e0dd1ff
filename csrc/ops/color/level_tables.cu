// SPDX-License-Identifier: Apache-2.0
// Tables of levels, one for each sample or for each of its channels. The operator lookup_table has one table for all samples.
#include <vector>

#include "ndd/args.h"
#include "ndd/elementwise/lut.h"
#include "ndd/kernel.h"
#include "ndd/samples.h"
#include "ndd/stream/stream.h"
#ifdef __CUDACC__
#include "ndd/launch_runs.cuh"
#include "ops/color/level_runs.cuh"
#endif

namespace ndd::level_tables_kernels {
namespace {

constexpr double kNanosecondsPerElement = 0.2;

// The channels that have a table each; otherwise all have the same.
int64_t tables_of(const Samples& in, int64_t i, int64_t columns) {
  const int64_t channels = columns / kLevels, own = in.ndim() == 3 ? in.shape(i)[2] : 1;
  if (channels != 1 && channels != own) fail("level_tables: there are tables for ", channels, " channels, sample ", i, " has ", own);
  return channels;
}

#ifdef __CUDACC__
using namespace level_runs;

__global__ void __launch_bounds__(kThreads)
    map_gpu(const __grid_constant__ TableRows<LevelRun> runs, int64_t count, int64_t columns, const uint8_t* tables) {
  __shared__ uint8_t shared[kSharedChannels * kLevels];
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) map_by_tables(runs[k], tables + k * columns, shared);
}

// Tables come from the host and are uploaded together; a run is a sample.
void map_levels_gpu(const Samples& in, const Tensor& tables, const Samples& out) {
  const int64_t columns = tables.size(1);
  std::vector<LevelRun> runs;
  for (int64_t i = 0; i < in.size(); ++i) {
    const int64_t channels = tables_of(in, i, columns);
    runs.push_back({static_cast<const uint8_t*>(in.data(i)), static_cast<uint8_t*>(out.data(i)), in.volume(i) / channels, channels});
  }
  const auto* const levels = static_cast<const uint8_t*>(tables.data_ptr());
  const CudaTable<uint8_t> table(std::vector<uint8_t>(levels, levels + tables.numel()));
  const auto bytes = [](const LevelRun& run) { return run.pixels * run.channels; };
  launch_runs("level_tables", runs, bytes, kThreads * 32, [&](dim3 grid, const auto& rows, int64_t count) {
    map_gpu<<<grid, kThreads, 0, current_cuda_stream()>>>(rows, count, columns, table.data());
  });
}
#endif

// `input` is uint8 (N, H, W, C) or ragged; `tables` is uint8, (N, 256) or (N, C * 256).
void level_tables(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& tables, const Tensor& output,
                  const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  if (in.dtype() != DType::uint8 || out.dtype() != DType::uint8 || tables.dtype() != DType::uint8) fail("level_tables: images must be uint8");
  check_outputs("level_tables", out, in);
  if (in.size() == 0) return;
  check_numbers(tables);
  if (tables.dim() != 2 || tables.size(1) == 0 || tables.size(0) != in.size() || tables.size(1) % kLevels != 0)
    fail("level_tables: expected a table of ", kLevels, " levels for each of ", in.size(), " samples");
#ifdef __CUDACC__
  if (input.is_cuda()) return map_levels_gpu(in, tables, out);
#endif
  const int64_t columns = tables.size(1);
  launch_cpu("level_tables", in.size(), kNanosecondsPerElement * static_cast<double>(in.volume(0)), {input}, [=, rows = Tensor(tables)](int64_t i) {
    const int64_t channels = tables_of(in, i, columns);
    map_levels(static_cast<const uint8_t*>(in.data(i)), in.volume(i) / channels, channels, static_cast<const uint8_t*>(rows.data_ptr()) + i * columns,
               static_cast<uint8_t*>(out.data(i)));
  });
}

}  // namespace
}  // namespace ndd::level_tables_kernels
NDD_KERNELS(level_tables, ndd::level_tables_kernels::level_tables)
