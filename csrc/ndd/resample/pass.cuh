// SPDX-License-Identifier: Apache-2.0
// Resamples one axis through global memory: depth, and axes whose tiles do not fit in shared memory (reductions by 40 and more, hundreds of
// channels).
#pragma once
#include "ndd/resample/weights.cuh"

namespace ndd::resample_gpu {

// Weights in shared memory; longer kernels are processed in parts.
constexpr int kPassWeights = 4096;

// A sample viewed as [outer][axis][inner].
struct PassSample {
  const void* in;
  void* out;
  int64_t outer, inner;
  Axis axis;

  // A block computes a group of axis outputs and inner elements, 256 together.
  NDD_HD int32_t group() const { return inner < kThreads ? static_cast<int32_t>(inner) : kThreads; }
  NDD_HD int64_t inner_groups() const { return (inner + group() - 1) / group(); }
  NDD_HD int64_t groups() const {
    const int64_t outputs = kThreads / group();
    return (axis.out + outputs - 1) / outputs * inner_groups();
  }
};

#ifdef __CUDACC__
// In is the element type, or void for any.
template <class In>
__global__ void __launch_bounds__(kThreads) pass_kernel(const __grid_constant__ TableRows<PassSample> samples, int64_t count, DType in, DType out) {
  __shared__ float weights[kPassWeights], bases[kThreads], knots[kMaxKnots];
  __shared__ int32_t starts[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t i = blockIdx.y; i < count; i += gridDim.y) {
    const PassSample s = samples[i];
    if (s.outer == 0 || s.inner == 0 || s.axis.out == 0) continue;
    const Axis a = s.axis;
    // Neighboring threads take neighboring inner elements, so their loads are contiguous.
    const int inner = s.group(), outputs = kThreads / inner, output = thread / inner;
    const int most = min(a.taps, kPassWeights / outputs);  // taps at a time
    const int64_t inner_groups = s.inner_groups(), groups = s.groups();
    for (int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
      const int64_t output_group = group / inner_groups, first = output_group * outputs, o = first + output;
      const int64_t j = (group - output_group * inner_groups) * inner + (thread - output * inner);
      // Threads without an output still take part in the barriers.
      const bool wanted = output < outputs && o < a.out && j < s.inner;
      __syncthreads();
      write_knots(a.filter, thread, knots);
      if (thread < outputs) {
        float base = 0;
        starts[thread] = clamped_start(a, first_tap(a, min(first + thread, a.out - 1), &base));
        bases[thread] = base;
      }
      __syncthreads();
      for (int64_t b = blockIdx.z; b < s.outer; b += gridDim.z) {
        float mixed = 0, sum = 0;
        for (int begin = 0; begin < a.taps; begin += most) {
          const int taps = min(most, a.taps - begin);
          // Weights that fit are computed once for all outer elements; parts of them have to be computed again.
          if (most < a.taps || b == blockIdx.z) {
            __syncthreads();
            for (int w = thread; w < outputs * taps; w += kThreads) weights[w] = tap_weight(a, knots, begin + w / outputs, bases[w % outputs]);
            __syncthreads();
          }
          if (!wanted) continue;
          const int64_t from = b * a.in * s.inner + j, start = starts[output] + begin;
          for (int k = 0; k < taps; ++k) {
            const float weight = weights[k * outputs + output];
            const int64_t at = from + clamp_index(start + k, a.in) * s.inner;
            if constexpr (std::is_void_v<In>) mixed += weight * load_element(s.in, in, at);
            else mixed += weight * read(static_cast<const In*>(s.in) + at);
            sum += weight;
          }
        }
        // Normalized at the end, because only now all weights have been added.
        if (wanted) store_element(mixed / sum, s.out, out, (b * a.out + o) * s.inner + j);
      }
    }
  }
}
#endif

}  // namespace ndd::resample_gpu
