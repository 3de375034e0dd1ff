// SPDX-License-Identifier: Apache-2.0
// out[before, c, behind] = in[before, behind] == c ? on : off
#include "ndd/elementwise/elements.cuh"
#include "ndd/kernel.h"
#include "ndd/slice/rows.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#endif

namespace ndd::one_hot_kernels {
namespace {

struct OneHot {
  const void* in;
  void* out;
  int64_t behind, classes, volume;  // volume: of the output

  // -1 if the number is not a class.
  NDD_HD int64_t class_of(DType dtype, int64_t k) const {
    int64_t found = -1;
    for_dtype(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T value = static_cast<const T*>(in)[k];
      if constexpr (is_floating<T>) {
        // Truncated: what is above -1 is class 0. NaN fails the comparison.
        const double v = static_cast<double>(value);
        if (v > -1.0 && v < static_cast<double>(classes)) found = static_cast<int64_t>(v);
      } else {
        const auto v = static_cast<int64_t>(value);  // a uint64 beyond int64 becomes negative
        if (v >= 0 && v < classes) found = v;
      }
    });
    return found;
  }
};

#ifdef __CUDACC__
// Bound by writing: 80 % of the bandwidth is expected where there are at least 16 classes, whose inputs then stay in the caches.
__global__ void one_hot_gpu(const OneHot* samples, int64_t count, DType in, DType out, float on, float off) {
  for (int64_t i = blockIdx.y; i < count; i += gridDim.y) {
    const OneHot s = samples[i];
    for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < s.volume; e += int64_t{gridDim.x} * blockDim.x) {
      // From the place in the output to that in the input, which has no axis of classes.
      const int64_t row = e / s.behind, c = row % s.classes, k = row / s.classes * s.behind + e % s.behind;
      store_element(s.class_of(in, k) == c ? on : off, s.out, out, e);
    }
  }
}
#endif

void one_hot(const Tensor& input, const MaybeTensor& input_shapes, int64_t axis, int64_t num_classes, double on_value, double off_value,
             const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  if (axis < 0 || axis >= out.ndim() || num_classes < 0)
    fail(Error::Value, "one_hot: the output has no axis ", axis, " for ", num_classes, " classes");
  check_outputs("one_hot", out, in.size(), [&](int64_t i) {
    if (out.shape(i)[axis] != num_classes)
      fail(Error::Value, "one_hot: sample ", i, " of the output must have ", num_classes, " elements along axis ", axis, ", got ",
           out.shape(i)[axis]);
    int64_t volume = 0;
    return __builtin_mul_overflow(in.volume(i), num_classes, &volume) ? -1 : volume;
  });
  const float on = static_cast<float>(on_value), off = static_cast<float>(off_value);
  const auto sample = [=](int64_t i) {
    int64_t behind = 1;
    for (int64_t d = axis + 1; d < out.ndim(); ++d) behind *= out.shape(i)[d];
    return OneHot{in.data(i), out.data(i), behind, num_classes, out.volume(i)};
  };
#ifdef __CUDACC__
  if (input.is_cuda()) {
    std::vector<OneHot> samples;
    int64_t max_volume = 0;
    for (int64_t i = 0; i < in.size(); ++i) {
      samples.push_back(sample(i));
      max_volume = std::max(max_volume, samples.back().volume);
    }
    if (max_volume == 0) return;
    const CudaTable<OneHot> table(samples);
    const dim3 grid = batch_grid(max_volume, 1024, in.size());
    one_hot_gpu<<<grid, 256, 0, current_cuda_stream()>>>(table.data(), in.size(), in.dtype(), out.dtype(), on, off);
    return check_launch("one_hot");
  }
#endif
  const int64_t bytes = out.item_bytes();
  launch_cpu("one_hot", in.size(), 0.05 * static_cast<double>(bytes) * out.mean_volume(), {}, [=](int64_t i) {
    const OneHot s = sample(i);
    if (s.volume == 0) return;
    int64_t ons = 0, offs = 0;  // room for one item of any type
    store_element(on, &ons, out.dtype(), 0);
    store_element(off, &offs, out.dtype(), 0);
    // `off` everywhere, then `on` in one place for each number.
    slice::repeat_item(reinterpret_cast<const char*>(&offs), static_cast<char*>(s.out), s.volume, bytes);
    for (int64_t k = 0; k < in.volume(i); ++k) {
      const int64_t c = s.class_of(in.dtype(), k);
      if (c >= 0) std::memcpy(static_cast<char*>(s.out) + ((k / s.behind * s.classes + c) * s.behind + k % s.behind) * bytes, &ons, bytes);
    }
  });
}

}  // namespace
}  // namespace ndd::one_hot_kernels
NDD_KERNELS(one_hot, ndd::one_hot_kernels::one_hot)
