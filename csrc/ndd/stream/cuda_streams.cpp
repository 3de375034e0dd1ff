// SPDX-License-Identifier: Apache-2.0
// The CUDA streams of the library. Those of torch.cuda.Stream() come from a pool of 32 that goes round: one of them may be the stream that
// torch.cuda.graph() is capturing, or become it later, and whatever is launched on it meanwhile would join the graph instead of running.
#include "ndd/python_interface.h"

#ifdef USE_CUDA
#include <cuda_runtime.h>

#include <array>
#include <map>
#include <mutex>

#include "ndd/stream/outside_capture.h"

namespace ndd {
namespace {

constexpr size_t kMaxStreams = 32;  // of a device; further users share them

struct Streams {
  std::array<cudaStream_t, kMaxStreams> streams{};
  size_t next = 0;
};

// Finds a stream of the current device on which no graph is being captured, which happens if the program captures on the stream of a context; it
// stays null if graphs are being captured on all of them. Streams are never destroyed: torch's allocator may refer to them as long as the process lives.
cudaError_t find_stream(Streams& pool, void** found) {
  for (size_t tried = 0; tried < kMaxStreams; ++tried) {
    cudaStream_t& stream = pool.streams[pool.next++ % kMaxStreams];
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t error =
        stream == nullptr ? cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0) : cudaStreamIsCapturing(stream, &status);
    if (error != cudaSuccess) return error;
    if (status == cudaStreamCaptureStatusNone) return *found = stream, cudaSuccess;
  }
  return cudaSuccess;
}

}  // namespace
}  // namespace ndd
#endif

// Stores a stream of a device, which must be the current one, or null in a build without CUDA. Returns null, or why there is none.
NDD_EXPORT(keep, const char*, ndd_cuda_stream, ([[maybe_unused]] int device, void** stream)) {
  *stream = nullptr;
#ifdef USE_CUDA
  static auto* mutex = new std::mutex;
  static auto* pools = new std::map<int, ndd::Streams>;
  const std::lock_guard<std::mutex> lock(*mutex);
  const ndd::OutsideCapture relaxed;
  const cudaError_t error = ndd::find_stream((*pools)[device], stream);
  if (error != cudaSuccess) {
    cudaGetLastError();  // or the next launch would report it as its own
    return cudaGetErrorString(error);
  }
  if (*stream == nullptr) return "CUDA graphs are being captured on all streams of the library";
#endif
  return nullptr;
}
