// SPDX-License-Identifier: Apache-2.0
// Shared by the resampling kernels: a block computes the weights it needs, for some output elements of an axis, in shared memory. The arithmetic is
// that of resample.h, except for the order in which weights are summed.
#pragma once
#include <algorithm>
#include <cstdint>

#include "ndd/cuda.h"
#include "ndd/elementwise/elements.cuh"
#include "ndd/elementwise/saturate.h"
#include "ndd/resample/resample.h"

namespace ndd::resample_gpu {

constexpr int kThreads = 256;

NDD_HD int32_t clamped_start(const Axis& a, int64_t first) {
  // Far outside, every tap reads the border element, so any start beyond the kernel's width will do.
  const int64_t least = -static_cast<int64_t>(a.taps);
  return static_cast<int32_t>(first < least ? least : first > a.in ? a.in : first);
}

// Taps inside the source; those outside add their weights to the border element.
NDD_HD int32_t inner_taps(const Axis& a) { return a.taps < a.in ? a.taps : static_cast<int32_t>(a.in); }

#ifdef __CUDACC__
// Loads an element through the read-only path, because kernels never write their input: such loads may be moved ahead of stores.
template <class In>
__device__ float read(const In* from) {
  if constexpr (is_half<In>) {
    return static_cast<float>(In::of_bits(__ldg(reinterpret_cast<const uint16_t*>(from))));
  } else {
    return static_cast<float>(__ldg(from));
  }
}

// The knots of an axis's kernel, at multiples of 1/32. Only kernels that are not linear between knots read them. The caller must synchronize the
// block afterwards.
__device__ inline void write_knots(Filter filter, int thread, float* knots) {
  if (filter != Filter::cubic && filter != Filter::lanczos3 && filter != Filter::gaussian) return;
  if (thread >= 0 && thread < kMaxKnots) knots[thread] = ComputedKnots{filter}[thread];
}

// Normalized weights of the outputs [first_output, first_output + count) of an axis, computed by half of a block's threads, four per output; after
// the end of the axis the last output is repeated. Element k of output o is source element starts[o] + k, with its weight at weights[o / 4 * group +
// o % 4 * stride + k * step].
__device__ inline void write_weights(const Axis& a, int32_t first_output, int count, int thread, const float* knots, int32_t* starts, float* weights,
                                     int group, int stride, int step) {
  constexpr int kLanes = 4;
  const int32_t in = static_cast<int32_t>(a.in), outputs = static_cast<int32_t>(a.out), taps = inner_taps(a), lane = thread % kLanes;
#pragma unroll 1
  for (int o = thread / kLanes; o / 8 * 8 < count; o += kThreads / 2 / kLanes) {  // the same number of rounds for all lanes of a warp
    float base = 0, sum = 0;
    const int32_t first = clamped_start(a, first_tap(a, min(first_output + o, outputs - 1), &base)), start = max(0, min(first, in - taps));
    const bool wanted = o < count;
    float* const to = weights + o / 4 * group + o % 4 * stride;
    if (wanted && lane == 0) starts[o] = start;
#pragma unroll 1
    for (int32_t k = lane; k < taps; k += kLanes) {
      const int32_t element = start + k, tap = element - first;
      // The border elements collect the taps beyond them: `t` to `last` are the taps that fall on this element.
      int32_t t = element == 0 || tap < 0 ? 0 : tap;
      const int32_t last = element == in - 1 || tap >= a.taps ? a.taps - 1 : tap;
      float weight = 0;
#pragma unroll 1
      for (; t <= last; ++t) weight += tap_weight(a, knots, t, base);
      if (wanted) to[k * step] = weight;
      sum += weight;
    }
    // The sum over the four lanes of an output.
    for (int bit = 1; bit < kLanes; bit *= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, bit);
    const float norm = 1 / sum;
#pragma unroll 1
    for (int32_t k = lane; wanted && k < taps; k += kLanes) to[k * step] *= norm;
  }
}

// Quotients of small numbers by a divisor known only at run time: exact while their product is below 2^32.
// Multiplies by the rounded-up reciprocal in 32 bits. (By 1 it would be 2^32, which does not fit.)
struct Divisor {
  unsigned int inverse;
  bool is_one;
  __device__ explicit Divisor(int by) : inverse(by == 1 ? 0 : 0xFFFFFFFFu / static_cast<unsigned int>(by) + 1), is_one(by == 1) {}
  __device__ int quotient(int n) const { return is_one ? n : static_cast<int>(uint64_t{static_cast<unsigned int>(n)} * inverse >> 32); }
};
#endif

}  // namespace ndd::resample_gpu
