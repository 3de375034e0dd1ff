// SPDX-License-Identifier: Apache-2.0
// NDD_HD marks arithmetic shared by the CPU and the GPU. It is always inlined, so on the CPU it is compiled for the instruction set of the loop that
// calls it (simd.h).
#pragma once

#ifdef __CUDACC__
#define NDD_HD __host__ __device__ __forceinline__
#else
#define NDD_HD inline __attribute__((always_inline))
#endif

// a * b + c, rounded after each step. A fused multiply-add would move a nearest neighbor that lies on the boundary of two pixels, and nvcc fuses
// where the CPU does not: host code is compiled with -ffp-contract=off.
NDD_HD float mul_then_add(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(__fmul_rn(a, b), c);
#else
  const float product = a * b;
  return product + c;
#endif
}

// NDD_CUDA is defined if the library has CUDA kernels, so tensors may be on a GPU. Host code only needs to test this; device code needs __CUDACC__.
#if defined(USE_CUDA) || defined(__CUDACC__)
#define NDD_CUDA
#endif
