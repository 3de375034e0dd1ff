// SPDX-License-Identifier: Apache-2.0
// Combines one value of every thread of a block.
#pragma once

namespace ndd {

// Merges by halves, always in the same order, so a sum has the same bits in every run. All threads receive the result. `shared` is in shared memory and
// may be used again immediately.
template <int threads, class T, class Merge>
__device__ __forceinline__ T reduce_block(T (&shared)[threads], T value, Merge merge) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] = merge(shared[threadIdx.x], shared[threadIdx.x + half]);
    __syncthreads();
  }
  const T result = shared[0];
  __syncthreads();  // every thread has read the result before the next call writes
  return result;
}

}  // namespace ndd
