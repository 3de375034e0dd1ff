// SPDX-License-Identifier: Apache-2.0
// Resampling a ragged batch on the GPU: one launch writes the weights of every axis of every sample, then one launch per axis mixes
// elements; a batch of nearest neighbours is one launch that copies. Arithmetic is that of resample.h; taps outside read the border.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "ndd/resample.h"
#include "ndd/saturate.h"

namespace ndd {

// A sample seen as [outer][depth][height][width][channels].
struct GpuResample {
  const void* in;
  void* out;
  float* mid[2];       // after the pass over depth, after the pass over height
  float* weights[3];   // [axis.out][axis.taps]
  int32_t* starts[3];  // [axis.out]
  int64_t outer, channels;
  Axis axes[3];
};

NDD_HD int64_t clamped_start(const Axis& a, int64_t first) {
  // Far outside, every tap reads the border: any start beyond the kernel's width does.
  const int64_t least = -static_cast<int64_t>(a.taps);
  return first < least ? least : first > a.in ? a.in : first;
}

// Weights of output element i of one axis, normalised.
NDD_HD void write_weights(const Axis& a, int64_t i, float* weights, int32_t* starts) {
  float base = 0, sum = 0, *w = weights + i * a.taps;
  starts[i] = static_cast<int32_t>(clamped_start(a, first_tap(a, i, &base)));
  for (int32_t k = 0; k < a.taps; ++k) sum += w[k] = tap_weight(a, ComputedKnots{a.filter}, k, base);
  for (int32_t k = 0; k < a.taps; ++k) w[k] /= sum;
}

// Element `at` of the output of the pass over `axis`, whose input rows hold `inner` elements.
template <class Index, class In>
NDD_HD float mixed_element(const Axis& a, const float* weights, const int32_t* starts, const In* in, Index inner, Index at) {
  const Index j = at % inner, line = at / inner, o = line % static_cast<Index>(a.out), b = line / static_cast<Index>(a.out);
  const In* from = in + static_cast<int64_t>(b) * a.in * static_cast<int64_t>(inner) + j;
  const float* w = weights + static_cast<int64_t>(o) * a.taps;
  const int64_t start = starts[o];
  float sum = 0;
  for (int32_t k = 0; k < a.taps; ++k) sum += w[k] * static_cast<float>(from[clamp_index(start + k, a.in) * static_cast<int64_t>(inner)]);
  return sum;
}

// Offset of the source element that output element `at` copies.
template <class Index>
NDD_HD int64_t nearest_element(const GpuResample& s, Index at) {
  const Index c = at % static_cast<Index>(s.channels);
  Index line = at / static_cast<Index>(s.channels);
  int64_t k[3];
  for (int a = 2; a >= 0; --a) {
    k[a] = clamp_index(s.starts[a][line % static_cast<Index>(s.axes[a].out)], s.axes[a].in);
    line /= static_cast<Index>(s.axes[a].out);
  }
  return (((line * s.axes[0].in + k[0]) * s.axes[1].in + k[1]) * s.axes[2].in + k[2]) * s.channels + c;
}

// Hands out a workspace in order; with a null base it only measures. Pieces start at multiples of 256 bytes.
struct Carver {
  char* base;
  size_t used = 0;
  template <class T>
  T* take(int64_t n) {
    T* p = reinterpret_cast<T*>(base + used);
    used += (static_cast<size_t>(n) * sizeof(T) + 255) / 256 * 256;
    return base ? p : nullptr;
  }
};

inline int first_pass(const std::vector<GpuResample>& jobs) {
  const auto flat = [](const GpuResample& s) { return s.axes[0].in == 1 && s.axes[0].out == 1; };
  return std::all_of(jobs.begin(), jobs.end(), flat) ? 1 : 0;
}

// Points every sample at its weights and its intermediate results. Samples without elements get outer = 0: no thread looks at them.
inline size_t carve(std::vector<GpuResample>& jobs, bool nearest, char* base) {
  Carver space{base};
  const int first = first_pass(jobs);
  for (GpuResample& s : jobs) {
    if (s.axes[0].in * s.axes[1].in * s.axes[2].in * s.channels == 0) s.outer = 0;
    for (int a = 0; a < 3; ++a) {
      s.weights[a] = space.take<float>(s.axes[a].out * s.axes[a].taps);
      s.starts[a] = space.take<int32_t>(s.axes[a].out);
    }
    if (nearest) continue;
    if (first == 0) s.mid[0] = space.take<float>(s.outer * s.axes[0].out * s.axes[1].in * s.axes[2].in * s.channels);
    s.mid[1] = space.take<float>(s.outer * s.axes[0].out * s.axes[1].out * s.axes[2].in * s.channels);
  }
  return space.used;
}

#ifdef __CUDACC__
namespace resample_gpu {

constexpr unsigned kThreads = 256;

// Samples along y, elements of the largest one along x; smaller samples leave their last blocks idle.
inline dim3 grid(int64_t samples, int64_t most_elements) {
  const int64_t x = (most_elements + kThreads - 1) / kThreads;
  return dim3(static_cast<unsigned>(std::clamp<int64_t>(x, 1, 65535)), static_cast<unsigned>(std::min<int64_t>(samples, 65535)));
}

// Calls f(at) for this thread's share of [0, n), with 32-bit indices where they suffice: a 64-bit division costs several times as much.
template <class F>
__device__ void for_each_element(int64_t n, F f) {
  const int64_t first = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x, step = gridDim.x * static_cast<int64_t>(blockDim.x);
  if (n <= INT32_MAX) {
    for (int64_t at = first; at < n; at += step) f(static_cast<uint32_t>(at));
  } else {
    for (int64_t at = first; at < n; at += step) f(static_cast<uint64_t>(at));
  }
}

static __global__ void write_weights_kernel(const GpuResample* samples, int64_t count) {
  for (int64_t i = blockIdx.y; i < count; i += gridDim.y) {
    const GpuResample& s = samples[i];
    for (int axis = 0; axis < 3; ++axis) {
      const Axis a = s.axes[axis];
      for_each_element(a.out, [=](auto o) { write_weights(a, o, s.weights[axis], s.starts[axis]); });
    }
  }
}

template <class In, class Out>
__global__ void mix_axis_kernel(const GpuResample* samples, int64_t count, int axis, int first_axis) {
  for (int64_t i = blockIdx.y; i < count; i += gridDim.y) {
    const GpuResample& s = samples[i];
    const Axis a = s.axes[axis];
    int64_t outer = s.outer, inner = s.channels;
    for (int k = 0; k < axis; ++k) outer *= s.axes[k].out;
    for (int k = axis + 1; k < 3; ++k) inner *= s.axes[k].in;
    const In* in = static_cast<const In*>(axis == first_axis ? s.in : s.mid[axis - 1]);
    Out* out = static_cast<Out*>(axis == 2 ? s.out : s.mid[axis]);
    const float* weights = s.weights[axis];
    const int32_t* starts = s.starts[axis];
    for_each_element(outer * a.out * inner, [=](auto at) {
      using Index = decltype(at);
      out[at] = saturate<Out>(mixed_element<Index, In>(a, weights, starts, in, static_cast<Index>(inner), at));
    });
  }
}

template <class Unit>
__global__ void nearest_kernel(const GpuResample* samples, int64_t count) {
  for (int64_t i = blockIdx.y; i < count; i += gridDim.y) {
    const GpuResample& s = samples[i];
    const Unit* in = static_cast<const Unit*>(s.in);
    Unit* out = static_cast<Unit*>(s.out);
    for_each_element(s.outer * s.axes[0].out * s.axes[1].out * s.axes[2].out * s.channels,
                     [&](auto at) { out[at] = in[nearest_element(s, at)]; });
  }
}

}  // namespace resample_gpu
#endif

}  // namespace ndd
