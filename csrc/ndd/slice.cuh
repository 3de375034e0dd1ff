// SPDX-License-Identifier: Apache-2.0
// The slice driver on the GPU: a thread for each element of the output.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "ndd/cuda.h"
#include "ndd/elements.cuh"

namespace ndd {

struct Slice;
struct SliceBatch;
struct Channel;

namespace slice_detail {

constexpr int kSliceThreads = 256;
constexpr int kElementsPerThread = 4;

// Index is 32 bits wide where that suffices: a 64-bit division costs ten times as much.
template <class Index, class S, class C>
__device__ void slice_element(const S& s, const C* channels, DType in, DType out, Index e) {
  Index rest = e;
  int64_t from = s.origin, to = 0, channel = 0;
  bool inside = true;
  for (int d = s.ndim - 1; d >= 0; --d) {
    const Index extent = static_cast<Index>(s.extent[d]), outer = rest / extent;
    const int64_t at = rest - outer * extent;
    rest = outer;
    inside = inside && at >= s.begin[d] && at < s.end[d];
    from += at * s.stride[d];
    to += at * s.out_stride[d];
    if (d == s.channel) channel = at;
  }
  const C& values = channels[s.channels + channel];
  if (!inside) store_element(values.fill, s.out, out, to);
  else if (s.copies) copy_element(s.in, from, s.out, to, out);
  else store_element(values(load_element(s.in, in, from)), s.out, out, to);
}

template <class S, class C>
__global__ void slice_gpu(const S* slices, int64_t count, const C* channels, DType in, DType out) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const S& s = slices[k];
    const int64_t volume = s.volume(), step = int64_t{gridDim.x} * kSliceThreads;
    for (int64_t e = int64_t{blockIdx.x} * kSliceThreads + threadIdx.x; e < volume; e += step) {
      if (volume <= UINT32_MAX) slice_element<uint32_t>(s, channels, in, out, static_cast<uint32_t>(e));
      else slice_element<uint64_t>(s, channels, in, out, static_cast<uint64_t>(e));
    }
  }
}

}  // namespace slice_detail

// All slices in one launch, a row of blocks for each.
template <class Batch>
void launch_slices(const std::string& op, const Batch& batch, DType in, DType out) {
  using namespace slice_detail;
  int64_t most = 0;
  for (const auto& slice : batch.slices) most = std::max(most, slice.volume());
  if (most == 0) return;
  const CudaTable slices(batch.slices);
  const CudaTable channels(batch.channels);
  const int64_t count = static_cast<int64_t>(batch.slices.size()), blocks = (most + kSliceThreads * kElementsPerThread - 1) / (kSliceThreads * kElementsPerThread);
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>(blocks, 1 << 16)), static_cast<unsigned>(std::min<int64_t>(count, 65535)));
  slice_gpu<<<grid, kSliceThreads, 0, current_cuda_stream()>>>(slices.data(), count, channels.data(), in, out);
  check_launch(op.c_str());
}

}  // namespace ndd
