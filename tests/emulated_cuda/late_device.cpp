// SPDX-License-Identifier: Apache-2.0
// A CUDA runtime without a GPU whose streams are late, for torch and torch_ndd
// together: loaded before benchmarks/cuda/no_device.cpp, it takes the place of
// that runtime's streams, events and copies. Memory is that of the host,
// managed by torch's allocator for CUDA. There are two devices, whose streams
// and events must not be mixed, and CUDA graphs (late_graphs.cpp).
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "late_graphs.h"
#include "late_streams.h"

namespace {

using ndd_late::LateEvent;
using ndd_late::LateStream;
using ndd_late::of;

ndd_late::PinnedRanges& pinned() {
  static auto* ranges = new ndd_late::PinnedRanges;
  return *ranges;
}

LateEvent& of_event(cudaEvent_t event) { return *reinterpret_cast<LateEvent*>(event); }

int current_device() {
  int device = 0;
  return cudaGetDevice(&device), device;
}

cudaError_t make_stream(cudaStream_t* stream) {
  return *stream = reinterpret_cast<cudaStream_t>(ndd_late::add_stream(current_device())), cudaSuccess;
}
cudaError_t make_event(cudaEvent_t* event) { return *event = reinterpret_cast<cudaEvent_t>(new LateEvent(current_device())), cudaSuccess; }

// Returns from the calling function if CUDA forbids the call while a graph is
// captured.
#define NDD_UNSAFE()                                                                 \
  if (ndd_late::breaks_capture()) return cudaErrorStreamCaptureUnsupported

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* devices) { return *devices = 2, cudaSuccess; }
cudaError_t cudaDeviceSynchronize() {
  NDD_UNSAFE();
  return ndd_late::finish_all(), cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return make_stream(stream); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return make_stream(stream); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) { return make_stream(stream); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  NDD_UNSAFE();
  return of(stream).finish(), cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const auto mark = of_event(event).mark();
  if (mark == nullptr) return cudaSuccess;
  // Work of a graph and other work cannot wait for each other.
  if (of(stream).captured != of_event(event).capture) return ndd_late::invalidate_captures(), cudaErrorStreamCaptureIsolation;
  if (of(stream).captured == nullptr) of(stream).add([mark] { mark->wait(); });
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return make_event(event); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return make_event(event); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (stream != nullptr && of(stream).device != of_event(event).device) return cudaErrorInvalidResourceHandle;
  return of_event(event).record(of(stream)), cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) { return cudaEventRecord(event, stream); }
cudaError_t cudaEventQuery(cudaEvent_t event) {
  NDD_UNSAFE();
  if (of_event(event).capture != nullptr) return cudaErrorCapturedEvent;
  return of_event(event).reached() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  NDD_UNSAFE();
  if (of_event(event).capture != nullptr) return cudaErrorCapturedEvent;
  if (const auto mark = of_event(event).mark()) mark->wait();
  return cudaSuccess;
}
// What is recorded or waited for after its end has been destroyed too early: it
// is poisoned instead of freed, and the process crashes.
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  of_event(event).~LateEvent();
  std::memset(static_cast<void*>(event), 0xcd, sizeof(LateEvent));
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  NDD_UNSAFE();
  return *memory = std::calloc(bytes, 1), cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  NDD_UNSAFE();
  *memory = std::calloc(bytes, 1);
  pinned().add(*memory, bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  pinned().remove(memory);
  return std::free(memory), cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  std::memset(static_cast<void*>(attributes), 0, sizeof(*attributes));
  attributes->type = pinned().contain(memory) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}

// Unpinned memory has been read, or written, when this returns.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind == cudaMemcpyHostToDevice && !pinned().contain(from)) {
    const auto* begin = static_cast<const char*>(from);
    of(stream).add([to, values = std::vector<char>(begin, begin + bytes)] { std::memcpy(to, values.data(), values.size()); });
    return cudaSuccess;
  }
  of(stream).add([=] { std::memcpy(to, from, bytes); });
  if (kind == cudaMemcpyDeviceToHost && !pinned().contain(to)) of(stream).finish();
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  of(stream).add([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
// In place of a kernel, which needs the device of its stream.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  if (stream != nullptr && of(stream).device != current_device()) return cudaErrorInvalidResourceHandle;
  of(stream).add([=] { function(argument); });
  return cudaSuccess;
}

} // extern "C"
