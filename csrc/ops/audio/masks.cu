// SPDX-License-Identifier: Apache-2.0
// SpecAugment's masks (Park et al., 2019): bands of an axis are set to a number, which may be the mean of the sample.
#include <algorithm>
#include <cstring>

#include "ndd/args.h"
#include "ndd/elementwise/rows.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/kernel.h"
#include "ndd/random/random.h"
#include "ops/audio/bands.h"
#include "ops/audio/masks.h"
#ifdef __CUDACC__
#include "ndd/elementwise/elements.cuh"
#include "ndd/launch_runs.cuh"
#include "ndd/reduce/block.cuh"
#endif

namespace ndd::masks_kernels {
namespace {

using audio::AxisShape;
using audio::draw_masks;
using audio::fill_masks;
using audio::kMaxMasks;
using audio::Masks;

constexpr char kTimeMask[] = "time_mask", kFrequencyMask[] = "frequency_mask";
// In eight lanes, which are added in a fixed order: the result does not depend on the instruction set.
double mean_of(const Samples& in, int64_t i) {
  const int64_t count = in.volume(i);
  double total = 0.0;
  for_dtype(in.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* values = static_cast<const T*>(in.data(i));
    double sums[8] = {};
    int64_t k = 0;
    for (; k + 8 <= count; k += 8)
      // Through float32, as load_element() does on a GPU.
      for (int l = 0; l < 8; ++l) sums[l] += static_cast<double>(static_cast<float>(values[k + l]));
    for (; k < count; ++k) sums[0] += static_cast<double>(static_cast<float>(values[k]));
    for (const double sum : sums) total += sum;
  });
  return count > 0 ? total / static_cast<double>(count) : 0.0;
}

void mask_sample(const Samples& in, const Samples& out, int64_t i, int64_t axis, const Masks& masks, int64_t count, float value) {
  const int64_t bytes = in.item_bytes();
  const AxisShape shape(in, i, axis);
  if (in.volume(i) == 0) return;
  auto* to = static_cast<char*>(out.data(i));
  // Everything is copied first: masks may overlap, and filling part of a copy is cheaper than finding what lies between them.
  std::memcpy(to, in.data(i), in.volume(i) * bytes);
  for_dtype(in.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    fill_masks(masks, count, shape.outer, shape.extent, shape.inner, saturate<T>(value), reinterpret_cast<T*>(to));
  });
}

#ifdef __CUDACC__
constexpr int kThreads = 256;

// A sample. `extent` is that of the masked axis, `inner` the elements after it.
struct Run {
  const void* in;
  void* out;
  int64_t volume, extent, inner;
  float value;  // unless it is the mean
  Masks masks;
};

// One block for each sample, so the order of the sum, and with it its last bits, does not depend on the batch.
__global__ void __launch_bounds__(kThreads) means_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count, DType dtype, float* means) {
  __shared__ double shared[kThreads];
  for (int64_t r = blockIdx.x; r < count; r += gridDim.x) {
    const Run& run = runs[r];
    double sum = 0.0;
    for (int64_t e = threadIdx.x; e < run.volume; e += kThreads) sum += static_cast<double>(load_element(run.in, dtype, e));
    sum = reduce_block(shared, sum, [](double a, double b) { return a + b; });
    if (threadIdx.x == 0) means[r] = run.volume > 0 ? static_cast<float>(sum / static_cast<double>(run.volume)) : 0.0f;
  }
}

// Bound by memory as long as there are few masks, which every element is compared with.
__global__ void __launch_bounds__(kThreads)
    masks_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count, int64_t masks, DType dtype, const float* means) {
  for (int64_t r = blockIdx.y; r < count; r += gridDim.y) {
    const Run& run = runs[r];
    for (int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x; e < run.volume; e += int64_t{gridDim.x} * kThreads) {
      // The position along the masked axis.
      const int64_t k = e / run.inner % run.extent;
      if (run.masks.hide(k, masks)) store_element(means ? means[r] : run.value, run.out, dtype, e);
      else copy_element(run.in, e, run.out, e, dtype);
    }
  }
}
#endif

template <const char* op>
void mask_along(const Tensor& input, const MaybeTensor& input_shapes, int64_t axis, const Tensor& widest, const Tensor& probability, int64_t count,
                bool mean, const Tensor& value, const Tensor& words, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const Args<float> widths(widest), probabilities(probability), mask_values(value);
  if (axis < 0 || axis >= in.ndim()) fail(Error::Value, op, ": axis must be from 0 to ", in.ndim() - 1, ", got ", axis);
  if (count < 0 || count > kMaxMasks) fail(Error::Value, op, ": num_masks must be 0 to 64, got ", count);
  check_same(op, out, in);
  check_rows(op, "the widest mask", widths, in.size());
  check_rows(op, "p", probabilities, in.size());
  check_rows(op, "mask_value", mask_values, in.size());
  const int64_t* const drawn = drawn_words(op, words);
  const auto masks_of = [=](int64_t i) {
    const float width = widths(i), p = probabilities(i);
    if (!(width >= 0.0f)) fail(Error::Value, op, ": sample ", i, ": the widest mask must not be negative, got ", width);
    if (!(p >= 0.0f && p <= 1.0f)) fail(Error::Value, op, ": sample ", i, ": p must be from 0 to 1, got ", p);
    return draw_masks(Philox(drawn, i), count, width, p, in.shape(i)[axis]);
  };
#ifdef __CUDACC__
  if (input.is_cuda()) {
    std::vector<Run> runs;
    for (int64_t i = 0; i < in.size(); ++i) {
      const AxisShape shape(in, i, axis);
      runs.push_back({in.data(i), out.data(i), in.volume(i), shape.extent, shape.inner, mask_values(i), masks_of(i)});
    }
    return launch_runs(op, runs, &Run::volume, 1024, [&](dim3 grid, const auto& rows, int64_t samples) {
      const CudaBuffer means(samples * 4);
      auto* device_means = static_cast<float*>(means.data());
      if (mean) means_gpu<<<batch_grid(samples, 1, 1), kThreads, 0, current_cuda_stream()>>>(rows, samples, in.dtype(), device_means);
      masks_gpu<<<grid, kThreads, 0, current_cuda_stream()>>>(rows, samples, count, in.dtype(), mean ? device_means : nullptr);
    });
  }
#endif
  launch_cpu(op, in.size(), (mean ? 0.4 : 0.15) * in.mean_volume(), {words, value},
             [=](int64_t i) { mask_sample(in, out, i, axis, masks_of(i), count, mean ? static_cast<float>(mean_of(in, i)) : mask_values(i)); });
}

}  // namespace
}  // namespace ndd::masks_kernels
NDD_KERNELS(time_mask, ndd::masks_kernels::mask_along<ndd::masks_kernels::kTimeMask>)
NDD_KERNELS(frequency_mask, ndd::masks_kernels::mask_along<ndd::masks_kernels::kFrequencyMask>)
