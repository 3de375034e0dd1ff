// SPDX-License-Identifier: Apache-2.0
// CUDA side of the stencil driver: one launch per axis for the whole ragged batch, staged as float between the axes. The borders and the order of
// the sum are those of stencil.h.
#pragma once

#include <cstdint>

#include "ndd/elements.cuh"
#include "ndd/stencil.h"

namespace ndd {
namespace stencil {

// One sample's pass over one axis: elements `stride` apart are neighbours.
struct Pass {
  const void* in;
  void* out;
  const float* half;  // radius + 1 weights, centre first
  int64_t elements, extent, stride;
  int32_t radius;
};

NDD_HD int64_t neighbour(const Pass& pass, int64_t element, int64_t position, int64_t shift) {
  return element + (reflect_101(position + shift, pass.extent) - position) * pass.stride;
}

template <class Load>  // Load: element index -> float
NDD_HD float weighted_element(const Pass& pass, int64_t element, Load load) {
  const int64_t position = element / pass.stride % pass.extent;
  float sum = pass.half[0] * load(element);
  for (int32_t k = 1; k <= pass.radius; ++k)
    sum += pass.half[k] * (load(neighbour(pass, element, position, -k)) + load(neighbour(pass, element, position, k)));
  return sum;
}

static __global__ void __launch_bounds__(256) pass_kernel(const Pass* passes, int64_t count, DType in, DType out) {
  for (int64_t n = blockIdx.y; n < count; n += gridDim.y) {
    const Pass pass = passes[n];
    for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < pass.elements; e += int64_t{gridDim.x} * blockDim.x)
      store_element(weighted_element(pass, e, [&](int64_t i) { return load_element(pass.in, in, i); }), pass.out, out, e);
  }
}

}  // namespace stencil

// One pass over one axis of every image. `passes` is in device memory; `elements` is the largest count of an image.
inline void launch_stencil(const stencil::Pass* passes, int64_t count, int64_t elements, DType in, DType out, cudaStream_t stream) {
  if (count == 0 || elements == 0) return;
  const int64_t blocks = (elements + 255) / 256;
  const dim3 grid(static_cast<unsigned>(blocks < 65536 ? blocks : 65536), static_cast<unsigned>(count < 65535 ? count : 65535));
  stencil::pass_kernel<<<grid, 256, 0, stream>>>(passes, count, in, out);
}

}  // namespace ndd
