// SPDX-License-Identifier: Apache-2.0
// blend_batch on CUDA: both images of a pair are loaded before either is used, 16 bytes of each or more for a thread. Bound by the bandwidth of memory.
#include "ops/generic/blend_batch.h"

#include <vector>

#include "ndd/cuda.h"
#include "ndd/elementwise/batch_tiles.cuh"
#include "ndd/elementwise/saturate.h"
#include "ndd/elementwise/vectors.cuh"
#include "ndd/kernel.h"

namespace ndd::blend_batch_kernels {
namespace {

constexpr int kThreads = 256, kResident = 4;
// Bytes of each image for a thread, at least. Both images are loaded before the first is used: 8 KB in flight for each block, 32 KB for the four of a
// multiprocessor, which covers the latency of an H100's memory at full bandwidth (computed).
constexpr int kBytes = 16;
template <class In>
constexpr int kElements = kBytes / (sizeof(In) < 2 ? 1 : 2);

// A sample: out = weight * first + rest * second.
struct Blend {
  const void *first, *second;
  void* out;
  float weight, rest;
};

template <class In, class Out>
__global__ void __launch_bounds__(kThreads, kResident)
    blend_gpu(const __grid_constant__ TableRows<Blend> blends, const __grid_constant__ BatchTiles tiles, int64_t count) {
  for_each_tile(tiles, [&](uint32_t sample, uint32_t tile) {
    constexpr int kCount = kElements<In>;
    const Blend blend = blends[sample];
    const int64_t at = (int64_t{tile} * kThreads + threadIdx.x) * kCount, n = count - at;
    if (n <= 0) return;
    // Elements behind the end are blended too, as zeros, and not stored: a loop over `n` would not be unrolled.
    In first[kCount] = {}, second[kCount] = {};
    load_some(static_cast<const In*>(blend.first) + at, n, first);
    load_some(static_cast<const In*>(blend.second) + at, n, second);
    Out out[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k)
      out[k] = saturate<Out>(blend_pair(static_cast<float>(first[k]), blend.weight, static_cast<float>(second[k]), blend.rest));
    store_some(out, n, static_cast<Out*>(blend.out) + at);
  });
}

void blend_batch_cuda(const Tensor& images, const Tensor& others, const Tensor& order, const Tensor& shares, const Tensor& output) {
  const BlendArgs args(images, others, order, shares, output);
  const int64_t count = args.out.size() > 0 ? args.out.volume(0) : 0;
  if (count == 0) return;
  std::vector<Blend> blends;
  blends.reserve(static_cast<size_t>(args.out.size()));
  for (int64_t i = 0; i < args.out.size(); ++i)
    blends.push_back({args.in.data(i), args.partners.data(args.partner(i)), args.out.data(i), args.share(i, 0), args.share(i, 1)});
  const KernelTable<Blend> table(blends);
  const auto launch = [&](auto in, auto out) {
    using In = typename decltype(in)::type;
    using Out = typename decltype(out)::type;
    const BatchTiles tiles = batch_tiles(count, kThreads * kElements<In>, args.out.size());
    // A sample of more tiles than the limit would need a loop; it would have 10^12 elements.
    if (int64_t{tiles.across.value} * kThreads * kElements<In> < count) fail("blend_batch: the batch is too large");
    blend_gpu<In, Out><<<resident_blocks(tiles, kResident), kThreads, 0, current_cuda_stream()>>>(table.rows(), tiles, count);
  };
  const DType in = args.in.dtype(), out = args.out.dtype();
  if (in == DType::uint8 && out == DType::uint8) launch(TypeTag<uint8_t>{}, TypeTag<uint8_t>{});
  else if (in == DType::uint8 && out == DType::float32) launch(TypeTag<uint8_t>{}, TypeTag<float>{});
  else if (in == DType::float32 && out == DType::float32) launch(TypeTag<float>{}, TypeTag<float>{});
  else if (in == DType::float16 && out == DType::float16) launch(TypeTag<Half>{}, TypeTag<Half>{});
  else fail(Error::Type, "blend_batch: no kernel for these types");
  check_launch("blend_batch");
}

}  // namespace
}  // namespace ndd::blend_batch_kernels
NDD_KERNEL(blend_batch, CUDA, ndd::blend_batch_kernels::blend_batch_cuda)
