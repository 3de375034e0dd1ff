// SPDX-License-Identifier: Apache-2.0
// Reductions of a few neighboring elements each, such as the channels of a pixel: a thread folds an output. Its elements lie `count` apart from those of
// its neighbors, so a block first reads them into shared memory, in 16-byte accesses.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/elementwise/vectors.cuh"
#include "ndd/reduce/reduce.cuh"

namespace ndd::reduce {

constexpr int kGroupThreads = 256, kGroupBytes = 12288, kMaxGroup = 16;  // three loads of 16 bytes a thread are in flight together

// Whether outputs are folds of up to 16 neighbors, one behind the other.
inline bool in_groups(const std::vector<GpuSample>& samples, const GpuTypes& types) {
  return std::all_of(samples.begin(), samples.end(), [&](const GpuSample& sample) {
    const Reduction& shape = sample.shape;
    return shape.count > 1 && shape.count <= kMaxGroup && shape.count * item_bytes(types.in) * 16 <= kGroupBytes && shape.reduced == 1 &&
           shape.reduced_stride[0] == 1 && shape.kept == 1 && shape.kept_stride[0] == shape.count;
  });
}

// Reads `bytes` at `from` into `stage`, at the same position within 16 bytes.
__device__ inline void stage_bytes(const char* from, int bytes, uint4* stage) {
  const int before = static_cast<int>(reinterpret_cast<uintptr_t>(from) % 16), vectors = (before + bytes + 15) / 16;
  const char* const aligned = from - before;
  const auto whole = [&](int v) { return 16 * v >= before && 16 * v + 16 <= before + bytes; };
  constexpr int kLoads = kGroupBytes / 16 / kGroupThreads;
  uint4 value[kLoads];
#pragma unroll
  for (int k = 0; k < kLoads; ++k) {
    const int v = k * kGroupThreads + static_cast<int>(threadIdx.x);
    if (whole(v)) value[k] = __ldg(reinterpret_cast<const uint4*>(aligned) + v);
  }
#pragma unroll
  for (int k = 0; k < kLoads; ++k) {
    const int v = k * kGroupThreads + static_cast<int>(threadIdx.x);
    if (whole(v)) stage[v] = value[k];
  }
  // Bytes of the first and last vector that are not whole; those of a 769th one too.
  for (int b = static_cast<int>(threadIdx.x); b < 2 * 16; b += kGroupThreads) {
    const int at = b < 16 ? b : 16 * (vectors - 1) + b - 16;
    if (at >= before && at < before + bytes && (b >= 16 ? vectors > 1 : true) && !(whole(at / 16) && at / 16 < kLoads * kGroupThreads))
      reinterpret_cast<char*>(stage)[at] = from[at - before];
  }
}

template <class Fold>
__global__ void __launch_bounds__(kGroupThreads)
    fold_groups(const __grid_constant__ TableRows<GpuSample> table, int64_t count, Fold fold, GpuTypes types, int item) {
  __shared__ uint4 stage[kGroupBytes / 16 + 1];
  const GpuSample* const samples = table.data();
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const GpuSample& sample = samples[k];
    // `together` outputs fit in the stage, a multiple of 16 so that the next block begins with the same alignment.
    const int group = static_cast<int>(sample.shape.count), together = kGroupBytes / (group * item) / 16 * 16;
    const int64_t outputs = sample.shape.outputs;
    for (int64_t first = int64_t{blockIdx.x} * together; first < outputs; first += int64_t{gridDim.x} * together) {
      const int here = static_cast<int>(min(int64_t{together}, outputs - first));
      const char* const from = static_cast<const char*>(sample.in) + first * group * item;
      stage_bytes(from, here * group * item, stage);
      __syncthreads();
      for (int g = static_cast<int>(threadIdx.x); g < here; g += kGroupThreads) {
        const double center = Fold::kCentered ? center_of(sample, types, first + g) : 0.0;
        auto total = fold.identity(types.in);
        for_dtype(types.in, [&](auto tag) {
          using T = typename decltype(tag)::type;
          const T* const element =
              reinterpret_cast<const T*>(reinterpret_cast<const char*>(stage) + reinterpret_cast<uintptr_t>(from) % 16) + g * group;
          auto local = fold.template start<T>();
#pragma unroll 1
          for (int e = 0; e < group; ++e) fold.template take<T>(local, element[e], center);
          total = fold.merge(total, fold.template total<T>(local));
        });
        fold.store(sample, total, types, first + g);
      }
      __syncthreads();
    }
  }
}

template <class Fold>
void launch_groups(const char* op, const std::vector<GpuSample>& samples, const Fold& fold, const GpuTypes& types) {
  constexpr int64_t kResidentBlocks = 6;  // of a multiprocessor
  int64_t most = 0;
  for (const GpuSample& sample : samples) most = std::max(most, sample.shape.outputs * sample.shape.count);
  const auto item = static_cast<int>(item_bytes(types.in));
  const KernelTable<GpuSample> table(samples);
  const auto count = static_cast<int64_t>(samples.size());
  const dim3 grid = batch_grid(most * item, kGroupBytes, count, std::max<int64_t>(1, kResidentBlocks * multiprocessors() / count));
  fold_groups<Fold><<<grid, kGroupThreads, 0, current_cuda_stream()>>>(table.rows(), count, fold, types, item);
  check_launch(op);
}

}  // namespace ndd::reduce
