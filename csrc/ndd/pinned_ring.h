// SPDX-License-Identifier: Apache-2.0
// Pinned memory from which small tables are copied to one CUDA stream: a copy from pageable memory costs the host 6 us, 15 on a busy stream.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "ndd/stream/outside_capture.h"

namespace ndd {

class PinnedRing {
 public:
  static constexpr size_t kParts = 8, kPartBytes = size_t{128} << 10;

  // The ring of a stream; null for the streams after the first 64, and when no pinned memory is available.
  static PinnedRing* of(int device, cudaStream_t stream) {
    static auto* mutex = new std::mutex;
    static auto* all = new std::map<std::pair<int, unsigned long long>, std::unique_ptr<PinnedRing>>;
    constexpr size_t kMaxRings = 64;
    unsigned long long id = 0;  // unlike the handle, never used again for another stream
    if (cudaStreamGetId(stream, &id) != cudaSuccess) return clear_error();
    const std::lock_guard<std::mutex> lock(*mutex);
    const auto found = all->find({device, id});
    if (found != all->end()) return found->second.get();
    if (all->size() >= kMaxRings) return nullptr;
    return ((*all)[{device, id}] = make()).get();
  }

  // Copies values to the device on the stream of the ring. The source may be freed when this returns. Returns false, having done nothing, if there
  // are too many bytes, or if the device has not yet copied what was written here one round ago.
  bool copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (bytes > kPartBytes || (used_ + bytes > kPartBytes && !begin_next_part(stream))) return false;
    unsigned char* place = memory_ + part_ * kPartBytes + used_;
    std::memcpy(place, from, bytes);
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (cudaMemcpyAsync(to, place, bytes, cudaMemcpyHostToDevice, stream) == cudaSuccess) return true;
    clear_error();
    return false;
  }

 private:
  static constexpr size_t kAlignment = 64;

  static PinnedRing* clear_error() {
    cudaGetLastError();
    return nullptr;
  }

  static std::unique_ptr<PinnedRing> make() {
    const OutsideCapture relaxed;
    auto ring = std::unique_ptr<PinnedRing>(new PinnedRing);
    void* memory = nullptr;
    bool complete = cudaHostAlloc(&memory, kParts * kPartBytes, cudaHostAllocDefault) == cudaSuccess;
    ring->memory_ = static_cast<unsigned char*>(memory);
    for (cudaEvent_t& copied : ring->copied_) complete = complete && cudaEventCreateWithFlags(&copied, cudaEventDisableTiming) == cudaSuccess;
    if (!complete) return std::unique_ptr<PinnedRing>(clear_error());
    return ring;
  }

  bool begin_next_part(cudaStream_t stream) {
    const OutsideCapture relaxed;
    const size_t next = (part_ + 1) % kParts;
    // Never recorded events count as done.
    if (cudaEventQuery(copied_[next]) != cudaSuccess || cudaEventRecord(copied_[part_], stream) != cudaSuccess) {
      clear_error();
      return false;
    }
    part_ = next;
    used_ = 0;
    return true;
  }

  std::mutex mutex_;
  unsigned char* memory_ = nullptr;
  cudaEvent_t copied_[kParts] = {};  // recorded after the last copy from each part
  size_t part_ = 0, used_ = 0;
};

}  // namespace ndd
