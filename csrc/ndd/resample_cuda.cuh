// SPDX-License-Identifier: Apache-2.0
// What the resampling kernels share: the weights of some output elements of an axis, made in shared memory by the block that needs them. Arithmetic is
// that of resample.h, up to the order of sums of weights.
#pragma once
#include <algorithm>
#include <cstdint>

#include "ndd/cuda.h"
#include "ndd/elements.cuh"
#include "ndd/resample.h"

namespace ndd {
namespace resample_gpu {

constexpr int kThreads = 256;

NDD_HD int32_t clamped_start(const Axis& a, int64_t first) {
  // Far outside, every tap reads the border: any start beyond the kernel's width does.
  const int64_t least = -static_cast<int64_t>(a.taps);
  return static_cast<int32_t>(first < least ? least : first > a.in ? a.in : first);
}

// Taps that lie in the source; those outside add their weights to the border element.
NDD_HD int32_t inner_taps(const Axis& a) { return a.taps < a.in ? a.taps : static_cast<int32_t>(a.in); }

#ifdef __CUDACC__
// The kernel of an axis at multiples of 1/32. Only those that are not lines between such points are read; the block waits behind this.
__device__ inline void write_knots(Filter filter, int thread, float* knots) {
  if (filter != Filter::cubic && filter != Filter::lanczos3 && filter != Filter::gaussian) return;
  if (thread >= 0 && thread < kMostKnots) knots[thread] = ComputedKnots{filter}[thread];
}

// Normalised weights of the outputs [first_output, first_output + count) of an axis, by groups of eight lanes; behind its end the last one is repeated.
// Element k of output o has weights[at(o, k)] and lies at starts[o] + k in the source.
template <class At>
__device__ void write_weights(const Axis& a, int64_t first_output, int count, const float* knots, int32_t* starts, float* weights, At at) {
  const int32_t in = static_cast<int32_t>(a.in), taps = inner_taps(a), lane = threadIdx.x % 8;
  for (int o = static_cast<int>(threadIdx.x) / 8; o / 4 * 4 < count; o += kThreads / 8) {  // the same number of rounds for all lanes of a warp
    float base = 0, sum = 0;
    const int64_t output = first_output + o < a.out ? first_output + o : a.out - 1;
    const int32_t first = clamped_start(a, first_tap(a, output, &base));
    const int32_t start = first < 0 ? 0 : first < in - taps ? first : in - taps;
    const bool wanted = o < count;
    if (wanted && lane == 0) starts[o] = start;
    for (int32_t k = lane; k < taps; k += 8) {
      const int32_t element = start + k, tap = element - first;
      float weight = tap >= 0 && tap < a.taps ? tap_weight(a, knots, tap, base) : 0.0f;
      if (element == 0)
        for (int32_t t = 0; t < a.taps && t < -first; ++t) weight += tap_weight(a, knots, t, base);
      if (element == in - 1)
        for (int32_t t = in > first ? in - first : 0; t < a.taps; ++t) weight += tap_weight(a, knots, t, base);
      if (wanted) weights[at(o, k)] = weight;
      sum += weight;
    }
    for (int bit = 1; bit < 8; bit *= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, bit);
    for (int32_t k = lane; wanted && k < taps; k += 8) weights[at(o, k)] /= sum;
  }
}
#endif

}  // namespace resample_gpu
}  // namespace ndd
