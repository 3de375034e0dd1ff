// SPDX-License-Identifier: Apache-2.0
#include "ndd/stream_scope.h"

#ifdef __CUDACC__
#include <map>
#include <mutex>
#include <vector>

#include "ndd/cuda.h"

namespace ndd {

// With an event that is used again: a new one for each call takes the host 1 us more.
void StreamScope::wait_for(void* other) const {
  // Never destroyed: threads may still decode while the process exits.
  static auto* mutex = new std::mutex;
  static auto* idle = new std::map<int, std::vector<cudaEvent_t>>;  // by device
  const char* what = "waiting for another CUDA stream";
  const int device = current_cuda_device();
  cudaEvent_t event = nullptr;
  {
    const std::lock_guard<std::mutex> lock(*mutex);
    std::vector<cudaEvent_t>& events = (*idle)[device];
    if (!events.empty()) {
      event = events.back();
      events.pop_back();
    }
  }
  if (event == nullptr) check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), what);
  const cudaError_t recorded = cudaEventRecord(event, static_cast<cudaStream_t>(other));
  // The stream waits for the event as it is now: recording it again later changes nothing.
  const cudaError_t waits = recorded == cudaSuccess ? cudaStreamWaitEvent(static_cast<cudaStream_t>(stream_), event, 0) : recorded;
  {
    const std::lock_guard<std::mutex> lock(*mutex);
    (*idle)[device].push_back(event);
  }
  check_cuda(waits, what);
}

}  // namespace ndd
#endif
