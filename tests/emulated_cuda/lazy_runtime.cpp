// SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "late_streams.h"
#include "ndd/stream_scope.h"

namespace ndd_lazy {

struct Stream : ndd_late::LateStream {};
struct Event : ndd_late::LateEvent {};

namespace {

ndd_late::PinnedRanges pinned;  // never freed

Stream& of(cudaStream_t stream) {
  static auto* first = new Stream;  // that of all calls
  return stream ? *reinterpret_cast<Stream*>(stream) : *first;
}

}  // namespace

// The library takes this number for "no GPU".
cudaError_t cudaGetDevice(int* device) { return *device = NVIMGCODEC_DEVICE_CPU_ONLY, cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return ""; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new Stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  of(stream).finish();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const auto mark = event->mark()) of(stream).add([mark] { mark->wait(); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return *event = new Event, cudaSuccess; }

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->record(of(stream));
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const auto mark = event->mark()) mark->wait();
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

// Unpinned memory has been read when this returns.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (pinned.contain(from)) {
    of(stream).add([=] { std::memcpy(to, from, bytes); });
  } else {
    const auto* begin = static_cast<const char*>(from);
    of(stream).add([to, values = std::vector<char>(begin, begin + bytes)] { std::memcpy(to, values.data(), values.size()); });
  }
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  of(stream).add([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  *data = std::malloc(bytes);
  pinned.add(*data, bytes);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) { return event->reached() ? cudaSuccess : cudaErrorNotReady; }

void Launch::run(std::function<void()> kernel) const {
  of(stream_).add([kernel = std::move(kernel), grid = grid_, block = block_] {
    gridDim.x = grid;
    blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) {
      for (threadIdx.x = 0; threadIdx.x < block; ++threadIdx.x) kernel();
    }
  });
}

ndd::Tensor device_memory(int64_t bytes, int) {
  const auto size = static_cast<size_t>(bytes);
  return ndd::tensor_over(std::memset(std::malloc(size), 0xcd, size), bytes, [](void*, size_t) {}, 0);
}

void lazy_finish() { cudaStreamSynchronize(nullptr); }

}  // namespace ndd_lazy

// For tests: the stream of all calls copies memory, that much later. It stands for a kernel that still reads or writes what a batch has given back.
extern "C" __attribute__((visibility("default"))) void ndd_lazy_copy_later(void* to, const void* from, size_t bytes, int milliseconds) {
  ndd_lazy::of(nullptr).add([=] {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    std::memcpy(to, from, bytes);
  });
}

// In place of csrc/ndd/tensor.cpp, which a build without CUDA compiles without it. There is one device, and streams need not be current.
namespace ndd {
StreamScope::StreamScope(void* stream, int) : stream_(stream) {}
StreamScope::~StreamScope() = default;
}  // namespace ndd

// For tests: copies a table as launchers do, on the stream of all calls, and waits until that stream has done everything.
namespace ndd {
void upload(void* to, const void* from, size_t bytes, const char* what);
}
extern "C" __attribute__((visibility("default"))) void ndd_lazy_upload(void* to, const void* from, size_t bytes) { ndd::upload(to, from, bytes, "test"); }
extern "C" __attribute__((visibility("default"))) void ndd_lazy_finish() { ndd_lazy::lazy_finish(); }
