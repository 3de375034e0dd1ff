// SPDX-License-Identifier: Apache-2.0
// What the CUDA kernels of csrc use of CUDA, on the CPU: this header takes the place of cuda_runtime.h (rewrite.py copies it) and comes first in
// every .cu. Blocks run one after another; the threads of a block are fibers of one thread of the host, each until its next barrier.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>

#include "ndd/tensor.h"

#define __CUDACC__
#define NDD_CUDA  // ndd/hd.h has been read above
#define __CUDA_ARCH__ 900
#define __host__
#define __device__
#define __global__ __attribute__((unused))
#define __forceinline__ inline __attribute__((always_inline))
#define __grid_constant__
#define NDD_TABLE_BYTES 256  // larger tables of launchers go to device memory, so tests cover both ways
#define __launch_bounds__(...)  // class Kernel checks it

// There are no streams: all work is done when the launch returns.
typedef struct CUstream_st* cudaStream_t;

// Names and numbers are CUDA's.
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidConfiguration = 9, cudaErrorLaunchFailure = 719 };
enum cudaMemcpyKind { cudaMemcpyHostToHost = 0, cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned int x, y;
};
struct alignas(16) uint4 {
  unsigned int x, y, z, w;
};
struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace ndd_emulator {

class Launch {
 public:
  // `site` is "file:line kernel".
  Launch(const char* site, dim3 grid, dim3 block, size_t shared_bytes = 0, cudaStream_t = nullptr)
      : site_(site), grid_(grid), block_(block), shared_bytes_(shared_bytes) {}
  void run(const std::function<void()>& thread) const;

 private:
  const char* site_;
  dim3 grid_, block_;
  size_t shared_bytes_;
};

// Whether kernels shall take this tensor of the CPU for one of a GPU.
bool emulates();
inline bool on_device(const ndd::Tensor& tensor) { return tensor.is_cuda() || emulates(); }

// Memory of the emulated device, full of garbage.
ndd::Tensor device_memory(int64_t bytes, int device);
inline void* stream_of(int) { return nullptr; }

// Memory of the block, the same for all its threads.
void* shared_bytes(int key, size_t bytes, size_t alignment);
void* dynamic_shared_bytes();
template <class T>
T& shared(int key) {
  static_assert(std::is_trivially_copyable_v<T>);
  return *static_cast<T*>(shared_bytes(key, sizeof(T), alignof(T)));
}
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(dynamic_shared_bytes());
}

// Stands at the start of every kernel (rewrite.py): from here on it is device code that runs.
class Kernel {
 public:
  explicit Kernel(unsigned int most_threads = 1024, unsigned int = 0);
  ~Kernel();
};

// A fault of device code: it ends the launch, and check_launch reports it.
[[noreturn]] void fault(const std::string& what);
// An atomic access, and a __threadfence(), by device code, for emulated_memory.cpp.
void atomic_access(const void* at, size_t bytes);
void fence();

// Waits for the whole block; returns for how many threads `predicate` holds. `line` tells barriers apart.
int barrier(int line, bool predicate);
// Waits for the warp; returns what lane `from(lane)` gave, which is `bits` of the own lane where there is none. `mask` must be of all lanes.
uint64_t shuffle(int line, unsigned int mask, uint64_t bits, int from);
unsigned int ballot(int line, unsigned int mask, bool predicate);
// Waits for the warp, and orders the accesses of its lanes to memory, which the exchanges above do not.
void sync_warp(int line);
int lane();

template <class T>
T shuffled(int line, unsigned int mask, T value, int from) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = shuffle(line, mask, bits, from);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

template <class To, class From>
To same_bits(From value) {
  To made;
  std::memcpy(&made, &value, sizeof(To));
  return made;
}

// Separate roundings, also where this is compiled with contraction.
float rounded_sum(float a, float b);
float rounded_product(float a, float b);
double rounded_sum(double a, double b);
double rounded_product(double a, double b);

}  // namespace ndd_emulator

#define __syncthreads() ((void)::ndd_emulator::barrier(__LINE__, false))
#define __syncthreads_count(predicate) ::ndd_emulator::barrier(__LINE__, (predicate) != 0)
#define __syncwarp(...) ::ndd_emulator::sync_warp(__LINE__)
#define __threadfence() ::ndd_emulator::fence()
#define __ballot_sync(mask, predicate) ::ndd_emulator::ballot(__LINE__, mask, (predicate) != 0)
#define __shfl_sync(mask, value, from) ::ndd_emulator::shuffled(__LINE__, mask, value, from)
#define __shfl_down_sync(mask, value, delta) ::ndd_emulator::shuffled(__LINE__, mask, value, ::ndd_emulator::lane() + (delta))
#define __shfl_up_sync(mask, value, delta) ::ndd_emulator::shuffled(__LINE__, mask, value, ::ndd_emulator::lane() - (delta))
#define __shfl_xor_sync(mask, value, bits) ::ndd_emulator::shuffled(__LINE__, mask, value, ::ndd_emulator::lane() ^ (bits))

cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t status);
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
// A small GPU, so the blocks of a grid that stays take several tiles.
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 1, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t);
// Every other table goes to the device as under the capture of a graph (ndd/upload.cu).
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0, cudaStreamCaptureStatusActive = 1 };
inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  static int tables = 0;
  *status = ++tables % 2 ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t);
// What ndd/pinned_ring.h uses. Copies are done when they are issued, so its events always are, too; lazy_runtime.h has late ones.
typedef struct CUevent_st* cudaEvent_t;
enum { cudaHostAllocDefault = 0, cudaEventDisableTiming = 2 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed = 2 };
inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
inline cudaError_t cudaStreamGetId(cudaStream_t, unsigned long long* id) { return *id = 1, cudaSuccess; }
inline cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) { return *data = std::malloc(bytes), cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return *event = nullptr, cudaSuccess; }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t);
cudaError_t ndd_set_most_shared_bytes(cudaFuncAttribute attribute, int bytes);
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute attribute, int bytes) {
  return ndd_set_most_shared_bytes(attribute, bytes);
}

[[noreturn]] inline void __trap() { ::ndd_emulator::fault("__trap() was called"); }
template <class T>
T __ldg(const T* from) {
  if (reinterpret_cast<uintptr_t>(from) % sizeof(T) != 0) ::ndd_emulator::fault("__ldg of an address that is not a multiple of the size");
  return *from;
}
template <class T>
void __stcg(T* to, T value) {
  if (reinterpret_cast<uintptr_t>(to) % sizeof(T) != 0) ::ndd_emulator::fault("__stcg to an address that is not a multiple of the size");
  *to = value;
}
// The sum and two products of 16-bit and 8-bit numbers.
inline unsigned int __dp2a_lo(unsigned int words, unsigned int bytes, unsigned int sum) {
  return sum + (words & 0xFFFF) * (bytes & 0xFF) + (words >> 16) * (bytes >> 8 & 0xFF);
}
inline unsigned int __dp2a_hi(unsigned int words, unsigned int bytes, unsigned int sum) { return __dp2a_lo(words, bytes >> 16, sum); }
template <class T>
void __stwb(T* to, T value) {
  if (reinterpret_cast<uintptr_t>(to) % sizeof(T) != 0) ::ndd_emulator::fault("__stwb to an address that is not a multiple of the size");
  *to = value;
}
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
// Byte k of the result is the one of y:x that nibble k of `selector` names; its top bit, which would spread a sign, is not used.
inline unsigned int __byte_perm(unsigned int x, unsigned int y, unsigned int selector) {
  const uint64_t bytes = uint64_t{y} << 32 | x;
  unsigned int result = 0;
  for (int k = 0; k < 4; ++k) result |= static_cast<unsigned int>(bytes >> 8 * (selector >> 4 * k & 7) & 0xFF) << 8 * k;
  return result;
}
// Of two 16-bit lanes, without a sign.
inline unsigned int __vminu2(unsigned int a, unsigned int b) {
  return std::min(a >> 16, b >> 16) << 16 | std::min(a & 0xFFFF, b & 0xFFFF);
}
inline unsigned int __vmaxu2(unsigned int a, unsigned int b) {
  return std::max(a >> 16, b >> 16) << 16 | std::max(a & 0xFFFF, b & 0xFFFF);
}
inline unsigned int __vimin3_u16x2(unsigned int a, unsigned int b, unsigned int c) { return __vminu2(__vminu2(a, b), c); }
inline unsigned int __vimax3_u16x2(unsigned int a, unsigned int b, unsigned int c) { return __vmaxu2(__vmaxu2(a, b), c); }
inline float sinpif(float x) { return std::sin(3.14159265f * x); }
inline int __float_as_int(float value) { return ::ndd_emulator::same_bits<int>(value); }
inline unsigned int __float_as_uint(float value) { return ::ndd_emulator::same_bits<unsigned int>(value); }
inline float __int_as_float(int bits) { return ::ndd_emulator::same_bits<float>(bits); }
inline long long __double_as_longlong(double value) { return ::ndd_emulator::same_bits<long long>(value); }
inline double __longlong_as_double(long long bits) { return ::ndd_emulator::same_bits<double>(bits); }
inline unsigned int __umulhi(unsigned int a, unsigned int b) { return static_cast<unsigned int>(uint64_t{a} * b >> 32); }
inline unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int bits) {
  return static_cast<unsigned int>((uint64_t{high} << 32 | low) >> bits % 32);
}
inline float __uint_as_float(unsigned int bits) { return ::ndd_emulator::same_bits<float>(bits); }
inline int __popc(unsigned int bits) { return __builtin_popcount(bits); }
inline float __fadd_rn(float a, float b) { return ::ndd_emulator::rounded_sum(a, b); }
inline float __fsub_rn(float a, float b) { return ::ndd_emulator::rounded_sum(a, -b); }
inline float __fadd_rd(float a, float b) {  // towards minus infinity
  const double sum = static_cast<double>(a) + static_cast<double>(b);
  const float nearest = static_cast<float>(sum);
  return static_cast<double>(nearest) > sum ? std::nextafter(nearest, -INFINITY) : nearest;
}
inline float __fmul_rn(float a, float b) { return ::ndd_emulator::rounded_product(a, b); }
inline double __dadd_rn(double a, double b) { return ::ndd_emulator::rounded_sum(a, b); }
inline double __dmul_rn(double a, double b) { return ::ndd_emulator::rounded_product(a, b); }

// CUDA's are overloads at file scope, for all pairs of numbers.
template <class A, class B>
constexpr auto min(A a, B b) -> std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, std::common_type_t<A, B>> {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b);
}
template <class A, class B>
constexpr auto max(A a, B b) -> std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, std::common_type_t<A, B>> {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(a) > static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b);
}

// One thread runs at a time, so these need not be atomic.
#define NDD_ATOMIC(name, result)                                             \
  template <class T, class U>                                                \
  __attribute__((no_sanitize("thread"))) T name(T* at, U given) {            \
    ::ndd_emulator::atomic_access(at, sizeof(T));                            \
    const T before = *at, value = static_cast<T>(given);                     \
    *at = result;                                                            \
    return before;                                                           \
  }
NDD_ATOMIC(atomicAdd, before + value)
NDD_ATOMIC(atomicMax, before > value ? before : value)
NDD_ATOMIC(atomicMin, before < value ? before : value)
#undef NDD_ATOMIC
