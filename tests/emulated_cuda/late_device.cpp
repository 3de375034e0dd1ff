// SPDX-License-Identifier: Apache-2.0
// A CUDA runtime without a GPU whose streams are late, for torch and torch_ndd
// together: loaded before benchmarks/cuda/no_device.cpp, it takes the place of
// that runtime's streams, events and copies. Memory is that of the host,
// managed by torch's allocator for CUDA.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "late_streams.h"

namespace {

using ndd_late::LateEvent;
using ndd_late::LateStream;

ndd_late::PinnedRanges& pinned() {
  static auto* ranges = new ndd_late::PinnedRanges;
  return *ranges;
}

LateStream& of(cudaStream_t stream) {
  static auto* first = new LateStream; // the default stream
  return stream ? *reinterpret_cast<LateStream*>(stream) : *first;
}

LateEvent& of(cudaEvent_t event) { return *reinterpret_cast<LateEvent*>(event); }

cudaError_t make_stream(cudaStream_t* stream) { return *stream = reinterpret_cast<cudaStream_t>(new LateStream), cudaSuccess; }
cudaError_t make_event(cudaEvent_t* event) { return *event = reinterpret_cast<cudaEvent_t>(new LateEvent), cudaSuccess; }

}  // namespace

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return make_stream(stream); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return make_stream(stream); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) { return make_stream(stream); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return of(stream).finish(), cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const auto mark = of(event).mark()) of(stream).add([mark] { mark->wait(); });
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return make_event(event); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return make_event(event); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return of(event).record(of(stream)), cudaSuccess; }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) { return cudaEventRecord(event, stream); }
cudaError_t cudaEventQuery(cudaEvent_t event) { return of(event).reached() ? cudaSuccess : cudaErrorNotReady; }
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const auto mark = of(event).mark()) mark->wait();
  return cudaSuccess;
}
// What is recorded or waited for after its end has been destroyed too early: it
// is poisoned instead of freed, and the process crashes.
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  of(event).~LateEvent();
  std::memset(static_cast<void*>(event), 0xcd, sizeof(LateEvent));
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  *memory = std::calloc(bytes, 1);
  pinned().add(*memory, bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  pinned().remove(memory);
  return std::free(memory), cudaSuccess;
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
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  of(stream).add([=] { function(argument); });
  return cudaSuccess;
}

} // extern "C"
