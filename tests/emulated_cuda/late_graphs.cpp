// SPDX-License-Identifier: Apache-2.0
// CUDA graphs of the late device: what a stream would have done, in its order.
// One capture at a time, of one stream.
#include "late_graphs.h"

#include <memory>
#include <mutex>
#include <vector>

namespace ndd_late {
namespace {

std::mutex mutex;
std::vector<LateStream*>& streams() {
  static auto* all = new std::vector<LateStream*>;
  return *all;
}

LateStream* capturing = nullptr;
std::thread::id by;
cudaStreamCaptureMode mode_of_capture;
bool is_valid = true;
unsigned long long captures = 0;
thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;

}  // namespace

LateStream* add_stream(int device) {
  const std::lock_guard<std::mutex> lock(mutex);
  streams().push_back(new LateStream(device));
  return streams().back();
}

LateStream& of(cudaStream_t stream) {
  static auto* first = add_stream(0);  // the default stream, of both devices
  return stream ? *reinterpret_cast<LateStream*>(stream) : *first;
}

void finish_all() {
  std::vector<LateStream*> all;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    all = streams();
  }
  for (LateStream* stream : all) stream->finish();
}

void invalidate_captures() {
  const std::lock_guard<std::mutex> lock(mutex);
  is_valid = false;
}

bool breaks_capture() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (capturing == nullptr || mode == cudaStreamCaptureModeRelaxed || mode_of_capture == cudaStreamCaptureModeRelaxed) return false;
  if (mode_of_capture == cudaStreamCaptureModeThreadLocal && std::this_thread::get_id() != by) return false;
  if (mode == cudaStreamCaptureModeThreadLocal && std::this_thread::get_id() != by) return false;
  is_valid = false;
  return true;
}

}  // namespace ndd_late

using namespace ndd_late;

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* other) { return std::swap(mode, *other), cudaSuccess; }

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode wanted) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (capturing != nullptr) return cudaErrorIllegalState;
  capturing = reinterpret_cast<LateStream*>(stream);
  capturing->captured = new Pieces;
  by = std::this_thread::get_id();
  mode_of_capture = wanted;
  is_valid = true;
  ++captures;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  const std::lock_guard<std::mutex> lock(mutex);
  *graph = reinterpret_cast<cudaGraph_t>(std::exchange(capturing->captured, nullptr));
  capturing = nullptr;
  return is_valid ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = of(stream).captured == nullptr ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* number, cudaGraph_t* graph,
                                     const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges, size_t* count) {
  if (number != nullptr) *number = captures;
  if (graph != nullptr) *graph = reinterpret_cast<cudaGraph_t>(of(stream).captured);
  if (nodes != nullptr) *nodes = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
  return cudaStreamIsCapturing(stream, status);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  return *count = reinterpret_cast<Pieces*>(graph)->size(), cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* program, cudaGraph_t graph, unsigned long long) {
  return *program = reinterpret_cast<cudaGraphExec_t>(graph), cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t program, cudaStream_t stream) {
  for (const auto& piece : *reinterpret_cast<Pieces*>(program)) of(stream).add(piece);
  return cudaSuccess;
}
// Never freed.
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }

}  // extern "C"
