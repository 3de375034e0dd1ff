// SPDX-License-Identifier: Apache-2.0
// Conversion between element types, bound by memory on both devices. Large results of the CPU bypass its caches.
#include <algorithm>

#include "ndd/elementwise/convert.h"
#include "ndd/elementwise/streaming.h"
#include "ndd/kernel.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#include "ndd/elementwise/batch_tiles.cuh"
#include "ndd/elementwise/saturate.h"
#include "ndd/elementwise/tiles.cuh"
#include "ndd/elementwise/vectors.cuh"
#endif

namespace ndd::cast_kernels {
namespace {

// Bound by memory: 16 VGA images of uint8 to float32 (74 MB) take 1.9 ms of two threads.
constexpr double kNanosecondsPerElement = 0.2;
constexpr int64_t kRow = 1024;  // elements

// The same, with stores that bypass the caches: a result larger than them would evict the input.
void stream_run(const char* from, DType in, int64_t n, char* to, DType out) {
  alignas(64) char row[kRow * 8];
  for (int64_t begin = 0; begin < n; begin += kRow) {
    const int64_t count = std::min(kRow, n - begin);
    convert_run(from + begin * item_bytes(in), in, count, row, out);
    stream_copy(to + begin * item_bytes(out), row, count * item_bytes(out));
  }
  stream_fence();
}

#ifdef __CUDACC__
constexpr int kResident = 4;  // blocks of a multiprocessor, as in pointwise.h

// Converts through T, which holds every value of the input's type.
template <class T>
__device__ void convert_tiles(const void* from, DType in, int64_t n, void* to, DType out) {
  tiles::for_each<2>(to, item_bytes(out), n, [&](auto at) {
    T values[decltype(at)::kRows][decltype(at)::kElements];
    tiles::load(from, in, at, values, [](auto value) {
      if constexpr (is_half<decltype(value)>) return static_cast<T>(static_cast<float>(value));
      else return static_cast<T>(value);
    });
    tiles::store(values, to, out, at, tiles::Saturated{});
  });
}

// Whether the pair of types is common and has its own loop. According to the machine code these are bound by memory, as are the others without 64-bit types.
bool is_common(DType in, DType out) {
  return for_common_pair(in, out, [](auto, auto) {});
}

__global__ void __launch_bounds__(kVectorThreads, kResident) convert_gpu(const void* from, DType in, int64_t n, void* to, DType out) {
  for_common_pair(in, out, [&](auto in_tag, auto out_tag) {
    using In = typename decltype(in_tag)::type;
    using Out = typename decltype(out_tag)::type;
    map_vectors(static_cast<const In*>(from), static_cast<Out*>(to), n, blockIdx.x, gridDim.x, [](In value) { return saturate<Out>(value); });
  });
}

__global__ void __launch_bounds__(kVectorThreads, kResident) convert_others_gpu(const void* from, DType in, int64_t n, void* to, DType out) {
  // The narrowest type that is exact: double does not hold all 64-bit integers, float no 32-bit ones.
  if (in == DType::int64) return convert_tiles<int64_t>(from, in, n, to, out);
  if (in == DType::uint64) return convert_tiles<uint64_t>(from, in, n, to, out);
  if (in == DType::int32 || in == DType::uint32 || in == DType::float64) return convert_tiles<double>(from, in, n, to, out);
  convert_tiles<float>(from, in, n, to, out);
}
#endif

void convert_all(const char* op, const Tensor& input, const MaybeTensor& input_shapes, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  check_outputs(op, out, in);
#ifdef __CUDACC__
  if (input.is_cuda()) {
    // The samples of a batch lie behind each other in both tensors, in the same places: one run of elements.
    // A packed buffer may be longer than its samples.
    const int64_t n = std::min(input.numel(), output.numel());
    if (n == 0) return;
    const auto kernel = is_common(in.dtype(), out.dtype()) ? convert_gpu : convert_others_gpu;
    const unsigned blocks = resident_blocks(batch_tiles(n, tiles::elements<2>, 1), kResident);
    kernel<<<blocks, kVectorThreads, 0, current_cuda_stream()>>>(input.data_ptr(), in.dtype(), n, output.data_ptr(), out.dtype());
    return check_launch(op);
  }
#endif
  const bool streamed = exceeds_caches(output.numel() * out.item_bytes());
  const double cost = in.size() > 0 ? kNanosecondsPerElement * static_cast<double>(in.volume(0)) : 0;
  launch_cpu(op, in.size(), cost, {}, [=](int64_t i) {
    const char* from = static_cast<const char*>(in.data(i));
    char* to = static_cast<char*>(out.data(i));
    if (streamed) stream_run(from, in.dtype(), in.volume(i), to, out.dtype());
    else convert_run(from, in.dtype(), in.volume(i), to, out.dtype());
  });
}

void cast(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& output, const MaybeTensor& output_shapes) {
  convert_all("cast", input, input_shapes, output, output_shapes);
}

// The second input gives its type alone, which the output has already.
void cast_like(const Tensor& input, const MaybeTensor& input_shapes, const Tensor&, const MaybeTensor&, const Tensor& output,
               const MaybeTensor& output_shapes) {
  convert_all("cast_like", input, input_shapes, output, output_shapes);
}

}  // namespace
}  // namespace ndd::cast_kernels
NDD_KERNELS(cast, ndd::cast_kernels::cast)
NDD_KERNELS(cast_like, ndd::cast_kernels::cast_like)
