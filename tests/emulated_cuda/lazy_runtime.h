// SPDX-License-Identifier: Apache-2.0
// The part of CUDA's runtime that the image decoders use, with streams that are late: each is a thread, which does every piece of work a moment after
// it was handed over. Whoever forgets to wait for a stream reads garbage. It stands in for cuda_runtime.h and comes first in the decoders' sources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <nvimgcodec.h>

#include "ndd/tensor.h"

// Of its own, because the emulator of the kernels, which may be in the same library, has some of these names too.
namespace ndd_lazy {

struct Stream;
struct Event;
typedef Event* cudaEvent_t;

enum cudaError_t { cudaSuccess = 0, cudaErrorNotReady = 600 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1 };
enum { cudaEventDisableTiming = 2, cudaEventBlockingSync = 1, cudaStreamNonBlocking = 1, cudaHostAllocDefault = 0 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16, cudaDevAttrComputeCapabilityMajor = 75 };

cudaError_t cudaGetDevice(int* device);
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 9, cudaSuccess; }
cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t status);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned flags);
cudaError_t cudaEventQuery(cudaEvent_t event);
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed = 2 };
inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) { return *status = cudaStreamCaptureStatusNone, cudaSuccess; }
inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
inline cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) { return *id = reinterpret_cast<uintptr_t>(stream), cudaSuccess; }

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// What torch offers of CUDA.
inline int allocate(uint64_t, void**) { return 1; }
inline int release(void*) { return 1; }
#define aoti_torch_cuda_caching_allocator_raw_alloc ::ndd_lazy::allocate
#define aoti_torch_cuda_caching_allocator_raw_delete ::ndd_lazy::release

// The library's CPU decoders work in the place of the GPU's, into memory of the host.
#define NVIMGCODEC_BACKEND_KIND_HW_GPU_ONLY NVIMGCODEC_BACKEND_KIND_CPU_ONLY
#define NVIMGCODEC_BACKEND_KIND_HYBRID_CPU_GPU NVIMGCODEC_BACKEND_KIND_CPU_ONLY
#define NVIMGCODEC_BACKEND_KIND_GPU_ONLY NVIMGCODEC_BACKEND_KIND_CPU_ONLY
#define NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_DEVICE NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_HOST

#define __CUDACC__
#define __host__
#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__

inline int min(int a, int b) { return a < b ? a : b; }

struct Index {
  unsigned x;
};
inline thread_local Index threadIdx, blockIdx, blockDim, gridDim;

// What rewrite.py makes of a launch: the threads one after another, when the stream comes to it.
class Launch {
 public:
  Launch(const char*, unsigned grid, unsigned block, size_t, cudaStream_t stream) : grid_(grid), block_(block), stream_(stream) {}
  void run(std::function<void()> kernel) const;

 private:
  unsigned grid_, block_;
  cudaStream_t stream_;
};

struct Kernel {
  explicit Kernel(int = 0) {}
};

inline bool on_device(const ndd::Tensor&) { return true; }

// Never freed: on a GPU the allocator would wait for the stream.
ndd::Tensor device_memory(int64_t bytes, int device);
inline void* stream_of(int) { return nullptr; }

// Returns when the stream of all calls has done everything.
void lazy_finish();

}  // namespace ndd_lazy

using namespace ndd_lazy;
