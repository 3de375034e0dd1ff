// SPDX-License-Identifier: Apache-2.0
// NDD_HD marks arithmetic that the CPU and the GPU share.
#pragma once

#ifdef __CUDACC__
#define NDD_HD __host__ __device__ __forceinline__
#else
#define NDD_HD inline __attribute__((always_inline))
#endif

// NDD_CUDA says that the library has CUDA kernels: tensors may be on a GPU. Code for the host needs no more, code for the device needs __CUDACC__.
#if defined(USE_CUDA) || defined(__CUDACC__)
#define NDD_CUDA
#endif
