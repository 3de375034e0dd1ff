// SPDX-License-Identifier: Apache-2.0
// permute_batch: copies whole samples, whatever their type. The order comes from the CPU, where Python has checked it.
#include <algorithm>
#include <cstring>
#include <vector>

#include "ndd/args.h"
#include "ndd/kernel.h"
#ifdef __CUDACC__
#include "ndd/launch_runs.cuh"
#endif

namespace ndd::permute_batch_kernels {
namespace {

constexpr double kNanosecondsPerByte = 0.15;  // a copy, bound by memory

#ifdef __CUDACC__
struct Run {
  const char* from;
  char* to;
  int64_t bytes;
};

constexpr int kThreads = 256;

// 16 bytes a thread and step, where both ends are aligned: a copy at the bandwidth of the memory.
__global__ void run_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run run = runs[k];
    const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x, stride = int64_t{gridDim.x} * kThreads;
    // Samples of ragged batches may begin at any byte.
    const bool aligned = ((reinterpret_cast<uintptr_t>(run.from) | reinterpret_cast<uintptr_t>(run.to)) & 15) == 0;
    const int64_t blocks = aligned ? run.bytes / 16 : 0;
    for (int64_t b = first; b < blocks; b += stride) reinterpret_cast<uint4*>(run.to)[b] = reinterpret_cast<const uint4*>(run.from)[b];
    // The rest, or everything.
    for (int64_t b = blocks * 16 + first; b < run.bytes; b += stride) run.to[b] = run.from[b];
  }
}

void launch_gpu(const std::vector<Run>& runs) {
  launch_runs("permute_batch", runs, &Run::bytes, kThreads * 16,
              [](dim3 grid, const auto& rows, int64_t count) { run_gpu<<<grid, kThreads, 0, current_cuda_stream()>>>(rows, count); });
}
#endif

void permute_batch(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& numbers, const Tensor& output,
                   const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const Args<int64_t> indices(numbers);
  const auto source = [=](int64_t i) {
    // The numbers may be results of a kernel, so they are only known here.
    const int64_t k = indices(i);
    if (k < 0 || k >= in.size()) fail("permute_batch: indices must be from 0 to ", in.size() - 1, ", got ", k, " for sample ", i);
    if (out.dtype() != in.dtype() || out.volume(i) != in.volume(k))
      fail(Error::Value, "permute_batch: sample ", i, " of the output has a wrong size");
    return k;
  };
#ifdef __CUDACC__
  if (input.is_cuda()) {
    std::vector<Run> runs;
    for (int64_t i = 0; i < out.size(); ++i)
      runs.push_back({static_cast<const char*>(in.data(source(i))), static_cast<char*>(out.data(i)), out.volume(i) * out.item_bytes()});
    return launch_gpu(runs);
  }
#endif
  launch_cpu("permute_batch", out.size(), kNanosecondsPerByte * out.mean_volume() * static_cast<double>(out.item_bytes()), {}, [=](int64_t i) {
    const int64_t k = source(i);
    if (out.volume(i) > 0) std::memcpy(out.data(i), in.data(k), out.volume(i) * out.item_bytes());
  });
}

}  // namespace
}  // namespace ndd::permute_batch_kernels
NDD_KERNELS(permute_batch, ndd::permute_batch_kernels::permute_batch)
