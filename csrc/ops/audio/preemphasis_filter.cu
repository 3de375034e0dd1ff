// SPDX-License-Identifier: Apache-2.0
// out[t] = in[t] - coefficient * in[t - 1], where a sample is one signal whatever its shape.
#include <algorithm>

#include "ndd/args.h"
#include "ndd/elementwise/rows.h"
#include "ndd/kernel.h"
#include "ndd/python_interface.h"
#include "ndd/simd.h"
#ifdef __CUDACC__
#include "ndd/elementwise/elements.cuh"
#include "ndd/launch_runs.cuh"
#endif

namespace ndd::preemphasis_filter_kernels {
namespace {

// Elements converted at a time: rows in the first-level cache.
constexpr int64_t kRow = 2048;

// What precedes the first element: 0, that element, or the second one.
NDD_ENUM("preemphasis_filter.Border", Border, int64_t, zero, clamp, reflect);

NDD_HD float emphasize(float value, float before, float coefficient) { return value - coefficient * before; }

// The index of the element that precedes the first one; -1 for a zero.
NDD_HD int64_t border_element(Border border, int64_t count) { return border == Border::zero ? -1 : border == Border::reflect && count > 1 ? 1 : 0; }

// values[-1] is the preceding element. The row is filtered from a copy, so the input may be read after the output is written.
void filter_row(const float* values, int64_t n, float coefficient, float* filtered) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const float* src = values;
    float* __restrict dst = filtered;
    const float c = coefficient;
    const int64_t count = n;
    for (int64_t k = 0; k < count; ++k) dst[k] = emphasize(src[k], src[k - 1], c);
  });
}

void filter_sample(const Samples& in, const Samples& out, int64_t i, float coefficient, Border border) {
  const int64_t count = in.volume(i);
  if (count == 0) return;
  // One element in front of the row, which itself starts on a cache line.
  alignas(64) float padded[kRow + 16], filtered[kRow];
  float* values = padded + 16;
  const LoadRow load = row_loader(in.dtype());
  const StoreRow store = row_storer(out.dtype());
  const auto* from = static_cast<const char*>(in.data(i));
  auto* to = static_cast<char*>(out.data(i));
  values[-1] = 0.0f;
  if (const int64_t k = border_element(border, count); k >= 0) load(from + k * in.item_bytes(), 1, values - 1);
  int64_t begin = 0;
  // Floats need no conversion, and are filtered straight from the input.
  if (in.dtype() == DType::float32 && out.dtype() == DType::float32) {
    const auto* src = reinterpret_cast<const float*>(from);
    auto* dst = reinterpret_cast<float*>(to);
    dst[0] = emphasize(src[0], values[-1], coefficient);
    return filter_row(src + 1, count - 1, coefficient, dst + 1);
  }
  // values[-1] carries the last element of a row over to the next one, in the type of the arithmetic, not of the output.
  for (; begin < count; begin += kRow) {
    const int64_t n = std::min(kRow, count - begin);
    load(from + begin * in.item_bytes(), n, values);
    filter_row(values, n, coefficient, filtered);
    store(filtered, n, to + begin * out.item_bytes());
    values[-1] = values[n - 1];
  }
}

#ifdef __CUDACC__
struct Run {
  const void* in;
  void* out;
  int64_t count;
  float coefficient;
};

// Every element is read twice, the second time from the first-level cache: bound by memory.
__global__ void __launch_bounds__(256) filter_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count, Border border, DType in, DType out) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run run = runs[k];
    for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < run.count; e += int64_t{gridDim.x} * blockDim.x) {
      const int64_t at = e > 0 ? e - 1 : border_element(border, run.count);
      store_element(emphasize(load_element(run.in, in, e), at < 0 ? 0.0f : load_element(run.in, in, at), run.coefficient), run.out, out, e);
    }
  }
}
#endif

void preemphasis_filter(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& coefficients, int64_t border, const Tensor& output,
                        const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const Args<float> coefficient(coefficients);
  const auto kind = static_cast<Border>(border);
  check_outputs("preemphasis_filter", out, in);
  check_rows("preemphasis_filter", "the coefficient", coefficient, in.size());
#ifdef __CUDACC__
  if (input.is_cuda()) {
    std::vector<Run> runs;
    for (int64_t i = 0; i < in.size(); ++i) runs.push_back({in.data(i), out.data(i), in.volume(i), coefficient(i)});
    return launch_runs("preemphasis_filter", runs, &Run::count, 1024, [&](dim3 grid, const auto& rows, int64_t count) {
      filter_gpu<<<grid, 256, 0, current_cuda_stream()>>>(rows, count, kind, in.dtype(), out.dtype());
    });
  }
#endif
  launch_cpu("preemphasis_filter", in.size(), 0.2 * in.mean_volume(), {}, [=](int64_t i) { filter_sample(in, out, i, coefficient(i), kind); });
}

}  // namespace
}  // namespace ndd::preemphasis_filter_kernels
NDD_KERNELS(preemphasis_filter, ndd::preemphasis_filter_kernels::preemphasis_filter)
