// SPDX-License-Identifier: Apache-2.0
// out = multiplier * log10(max(10^(cutoff_db / multiplier), in / reference)); the reference may be the largest element of the sample.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ndd/elementwise/rows.h"
#include "ndd/kernel.h"
#include "ndd/simd.h"
#include "ops/math/float_functions.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#include "ndd/elementwise/elements.cuh"
#endif

namespace ndd::to_decibels_kernels {
namespace {

// Elements that are converted to float together.
// 8 KB, a quarter of the first-level cache: source, row and result fit in it together.
constexpr int64_t kRow = 2048;
constexpr int kLanes = 16;

struct Decibels {
  float least, multiplier;  // least: of the ratio

  // A reference of 0, of silence, leaves the values as they are.
  NDD_HD static float inverse(float reference) { return reference == 0.0f ? 1.0f : 1.0f / reference; }
  // A NaN fails the comparison and becomes the lower limit.
  NDD_HD float operator()(float value, float inverse_reference) const {
    const float ratio = value * inverse_reference, limited = ratio > least ? ratio : least;
    return static_cast<float>(float_functions::log_of(limited) * (0.4342944819032518 * multiplier));
  }
};

Decibels decibels_of(double cutoff_db, double multiplier) {
  auto least = static_cast<float>(std::pow(10.0, cutoff_db / multiplier));
  // A cutoff below what floats hold would let silence be -inf, which a model turns into NaN.
  if (least == 0.0f) least = std::numeric_limits<float>::denorm_min();
  return {least, static_cast<float>(multiplier)};
}

// The largest of the elements and 0 in each lane: enough lanes for the loop to vectorize, which gcc does not do for a single maximum of floats.
void find_largest(const float* row, int64_t n, float* largest) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const float* __restrict src = row;
    float lanes[kLanes];
    for (int l = 0; l < kLanes; ++l) lanes[l] = largest[l];
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int l = 0; l < kLanes; ++l) lanes[l] = src[i + l] > lanes[l] ? src[i + l] : lanes[l];
    for (; i < n; ++i) lanes[0] = src[i] > lanes[0] ? src[i] : lanes[0];
    for (int l = 0; l < kLanes; ++l) largest[l] = lanes[l];
  });
}

// Calls visit(row, first, n) with the elements of sample i as floats.
template <class Visit>
void for_each_row(const Samples& in, int64_t i, Visit visit) {
  const int64_t count = in.volume(i);
  // Floats are read in place, in one visit.
  if (in.dtype() == DType::float32) return visit(static_cast<const float*>(in.data(i)), 0, count);
  alignas(64) float row[kRow];
  const LoadRow load = row_loader(in.dtype());
  for (int64_t begin = 0; begin < count; begin += kRow) {
    const int64_t n = std::min(kRow, count - begin);
    load(static_cast<const char*>(in.data(i)) + begin * in.item_bytes(), n, row);
    visit(static_cast<const float*>(row), begin, n);
  }
}

void decibels_of_sample(const Samples& in, const Samples& out, int64_t i, Decibels decibels, float reference) {
  // 0 stands for the largest element, which takes a pass of its own.
  if (reference == 0.0f) {
    float largest[kLanes] = {};
    for_each_row(in, i, [&](const float* row, int64_t, int64_t n) { find_largest(row, n, largest); });
    // At least 0, as the lanes begin there: a sample of negative numbers has the reference 0, like silence.
    reference = *std::max_element(largest, largest + kLanes);
  }
  auto* result = static_cast<float*>(out.data(i));
  for_each_row(in, i, [&](const float* row, int64_t first, int64_t n) {
    with_simd([&]() NDD_ALWAYS_INLINE {
      const float* __restrict src = row;
      float* __restrict dst = result + first;
      const Decibels f = decibels;
      const float inverse = Decibels::inverse(reference);
      const int64_t count = n;
      for (int64_t k = 0; k < count; ++k) dst[k] = f(src[k], inverse);
    });
  });
}

#ifdef __CUDACC__
constexpr int kThreads = 256;

struct Run {
  const void* in;
  float* out;
  int64_t count;
};

// Floats that are not negative are ordered like their bits, for which there is an atomic maximum.
__global__ void __launch_bounds__(kThreads) largest_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count, DType in, int* largest) {
  // Each block finds its maximum first, so there is one global atomic per block.
  __shared__ int block_largest;
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run run = runs[k];
    if (threadIdx.x == 0) block_largest = 0;
    __syncthreads();
    float own = 0.0f;
    for (int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x; e < run.count; e += int64_t{gridDim.x} * kThreads) {
      const float value = load_element(run.in, in, e);
      own = value > own ? value : own;
    }
    atomicMax(&block_largest, __float_as_int(own));
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(largest + k, block_largest);
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads)
    decibels_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count, DType in, Decibels decibels, float reference, const int* largest) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run run = runs[k];
    const float inverse = Decibels::inverse(largest ? __int_as_float(largest[k]) : reference);
    for (int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x; e < run.count; e += int64_t{gridDim.x} * kThreads)
      run.out[e] = decibels(load_element(run.in, in, e), inverse);
  }
}

// The logarithm in double bounds the time: 40 instructions an element.
void launch_gpu(const Samples& in, const Samples& out, Decibels decibels, float reference) {
  std::vector<Run> runs;
  int64_t max_count = 0;
  for (int64_t i = 0; i < in.size(); ++i) {
    runs.push_back({in.data(i), static_cast<float*>(out.data(i)), in.volume(i)});
    max_count = std::max(max_count, in.volume(i));
  }
  if (max_count == 0) return;
  const KernelTable<Run> table(runs);
  const auto count = static_cast<int64_t>(runs.size());
  const dim3 grid = batch_grid(max_count, 4 * kThreads, count, 1 << 14);
  const CudaTable<int> largest(std::vector<int>(reference == 0.0f ? count : 1, 0));
  int* device_largest = const_cast<int*>(largest.data());
  if (reference == 0.0f) largest_gpu<<<grid, kThreads, 0, current_cuda_stream()>>>(table.rows(), count, in.dtype(), device_largest);
  decibels_gpu<<<grid, kThreads, 0, current_cuda_stream()>>>(table.rows(), count, in.dtype(), decibels, reference,
                                                             reference == 0.0f ? device_largest : nullptr);
  check_launch("to_decibels");
}
#endif

void to_decibels(const Tensor& input, const MaybeTensor& input_shapes, double cutoff_db, double multiplier, double reference, const Tensor& output,
                 const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const Decibels decibels = decibels_of(cutoff_db, multiplier);
  const auto fixed_reference = static_cast<float>(reference);
  if (out.dtype() != DType::float32) fail(Error::Type, "to_decibels: the output must be float32");
  check_outputs("to_decibels", out, in);
#ifdef __CUDACC__
  if (input.is_cuda()) return launch_gpu(in, out, decibels, fixed_reference);
#endif
  launch_cpu("to_decibels", in.size(), 1.5 * in.mean_volume(), {}, [=](int64_t i) { decibels_of_sample(in, out, i, decibels, fixed_reference); });
}

}  // namespace
}  // namespace ndd::to_decibels_kernels
NDD_KERNELS(to_decibels, ndd::to_decibels_kernels::to_decibels)
