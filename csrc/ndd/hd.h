// SPDX-License-Identifier: Apache-2.0
// NDD_HD marks arithmetic that the CPU and the GPU share.
#pragma once

#ifdef __CUDACC__
#define NDD_HD __host__ __device__ __forceinline__
#else
#define NDD_HD inline __attribute__((always_inline))
#endif

// a * b + c, rounded after each step: a fused multiply-add would move a nearest neighbor that lies on the boundary of two pixels, and nvcc fuses
// where the CPU does not. Host code is compiled with -ffp-contract=off.
NDD_HD float mul_then_add(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(__fmul_rn(a, b), c);
#else
  const float product = a * b;
  return product + c;
#endif
}

// NDD_CUDA says that the library has CUDA kernels: tensors may be on a GPU. Code for the host needs no more, code for the device needs __CUDACC__.
#if defined(USE_CUDA) || defined(__CUDACC__)
#define NDD_CUDA
#endif
