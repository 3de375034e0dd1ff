// SPDX-License-Identifier: Apache-2.0
#include "ops/math/arithmetic.h"

#include <vector>

#include "ndd/broadcast.h"
#include "ndd/kernel.h"
#include "ndd/rows.h"
#include "ndd/streaming.h"
#include "ops/math/arithmetic_rows.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#endif

namespace ndd {
namespace {

using namespace arithmetic_detail;

// A VGA image of float32 takes 0.3 ms.
constexpr double kNanoseconds = 0.3;

struct Types {
  DType left, right, out;
};

void compute_sample(ApplyRow apply, const Types& types, const Broadcast& shape, const void* left, const void* right, void* out, bool streamed) {
  if (shape.count == 0) return;
  const DType computed = computed_in(types.out);
  const int64_t out_bytes = item_bytes(types.out);
  Rows lefts(shape, 0, left, item_bytes(types.left), row_converter(types.left, computed), item_bytes(computed));
  Rows rights(shape, 1, right, item_bytes(types.right), row_converter(types.right, computed), item_bytes(computed));
  const bool half = types.out == DType::float16 || types.out == DType::bfloat16;
  const StoreRow store = half ? row_storer(types.out) : nullptr;
  alignas(64) float halves[kRow];
  alignas(64) char streaming[kRow * 8];
  const bool whole = !half && !streamed && !lefts.staged() && !rights.staged();
  // Streamed rows end at cache lines.
  int64_t n = whole ? shape.count : streamed ? kRow - kCacheLine / out_bytes + to_cache_line(out) / out_bytes : kRow;
  for (int64_t begin = 0; begin < shape.count; begin += n, n = kRow) {
    n = std::min(n, shape.count - begin);
    void* to = static_cast<char*>(out) + begin * out_bytes;
    void* result = streamed ? streaming : to;
    apply(lefts.at(begin, n), lefts.many(), rights.at(begin, n), rights.many(), n, half ? halves : result);
    if (half) store(halves, n, result);
    if (streamed) stream_copy(to, streaming, n * out_bytes);
  }
  if (streamed) stream_fence();
}

#ifdef __CUDACC__
struct Run {
  Broadcast shape;
  const void *left, *right;
  void* out;
};

template <class T>
__device__ T load_as(const void* data, DType dtype, int64_t i) {
  T value{};
  for_dtype(dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    if constexpr (is_half<In>) value = static_cast<T>(static_cast<float>(static_cast<const In*>(data)[i]));
    else value = static_cast<T>(static_cast<const In*>(data)[i]);
  });
  return value;
}

// Integers narrower than T keep its lowest bits.
template <class T>
__device__ void store_as(T value, void* data, DType dtype, int64_t i) {
  for_dtype(dtype, [&](auto tag) {
    using Out = typename decltype(tag)::type;
    if constexpr (is_half<Out>) static_cast<Out*>(data)[i] = static_cast<Out>(static_cast<float>(value));
    else static_cast<Out*>(data)[i] = static_cast<Out>(value);
  });
}

constexpr int kThreads = 256;
constexpr int kPerThread = 4;

template <class T>
__global__ void run_gpu(const Run* runs, int64_t count, Types types, Arithmetic operation) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run& run = runs[k];
    const int64_t stride = int64_t{gridDim.x} * kThreads;
    for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < run.shape.count; i += stride) {
      int64_t left, right;
      run.shape.locate(i, left, right);
      store_as<T>(apply(operation, load_as<T>(run.left, types.left, left), load_as<T>(run.right, types.right, right)), run.out, types.out, i);
    }
  }
}

void launch_gpu(Arithmetic operation, const Types& types, const std::vector<Run>& runs) {
  int64_t most = 0;
  for (const Run& run : runs) most = std::max(most, run.shape.count);
  if (most == 0) return;
  const CudaTable<Run> table(runs);
  const int64_t count = static_cast<int64_t>(runs.size()), blocks = (most + kThreads * kPerThread - 1) / (kThreads * kPerThread);
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>(blocks, 1 << 16)), static_cast<unsigned>(std::min<int64_t>(count, 65535)));
  const DType computed = computed_in(types.out);
  const auto launch = [&](auto kernel) { kernel<<<grid, kThreads, 0, current_cuda_stream()>>>(table.data(), count, types, operation); };
  if (computed == DType::float32) launch(run_gpu<float>);
  else if (computed == DType::float64) launch(run_gpu<double>);
  else if (computed == DType::uint64) launch(run_gpu<uint64_t>);
  else launch(run_gpu<uint32_t>);
  check_launch("arithmetic");
}
#endif

void arithmetic(const Tensor& left_values, const MaybeTensor& left_shapes, const Tensor& right_values, const MaybeTensor& right_shapes, int64_t code,
                const Tensor& out_values, const MaybeTensor& out_shapes) {
  const auto operation = static_cast<Arithmetic>(code);
  const Samples left(left_values, left_shapes), right(right_values, right_shapes), out(out_values, out_shapes);
  const Types types{left.dtype(), right.dtype(), out.dtype()};
  const ApplyRow apply = row_of(operation, computed_in(types.out));
  std::vector<Broadcast> shapes;
  const bool same = left.dense() && right.dense() && out.dense();
  for (int64_t i = 0; i < (same ? std::min<int64_t>(1, out.size()) : out.size()); ++i) shapes.push_back(broadcast("arithmetic", left, right, out, i));
  const auto left_at = [=](int64_t i) { return left.data(left.size() == 1 ? 0 : i); };
  const auto right_at = [=](int64_t i) { return right.data(right.size() == 1 ? 0 : i); };
#ifdef __CUDACC__
  if (out_values.is_cuda()) {
    std::vector<Run> runs;
    for (int64_t i = 0; i < out.size(); ++i) runs.push_back({shapes[same ? 0 : i], left_at(i), right_at(i), out.data(i)});
    return launch_gpu(operation, types, runs);
  }
#endif
  const double cost = kNanoseconds * out.mean_volume();
  const bool streamed = exceeds_caches(out_values.numel() * out.item_bytes());
  launch_cpu("arithmetic", out.size(), cost, {}, [=](int64_t i) {
    compute_sample(apply, types, shapes[same ? 0 : i], left_at(i), right_at(i), out.data(i), streamed);
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNELS(arithmetic, ndd::arithmetic)
