// SPDX-License-Identifier: Apache-2.0
// The engine is hardware beside the multiprocessors. Its thread serves all calls from one queue: one that served a single call would idle between
// calls.
#include "decoders/gpu/jpeg_engine.h"

#ifdef USE_CUDA

#include "ndd/stream/scheduler.h"

#include <functional>
#include <thread>

namespace ndd {
namespace {

// How many images an engine decodes at the same time: the cores of an A100 and of an H100 and its successors.
int images_at_once(int device) {
  int major = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "decoders.image");
  return major == 8 ? 5 : 7;
}

}  // namespace

JpegEngine::JpegEngine(int device, PinnedMemory& pinned, ImageQueue& queue) : device_(device), pinned_(pinned), queue_(queue) {
  // Passed as a std::function: std::thread of a lambda would export a symbol with our namespace in its name.
  std::thread(std::function<void()>([this] { run(); })).detach();
}

void JpegEngine::run() {
  const int size = images_at_once(device_);
  // Two lanes: the CPU parses the headers of one group while the engine decodes the other.
  for (int turn = 0;; turn ^= 1) {
    Lane& lane = lanes_[turn];
    finish(lane);
    // Read before the look into the queue: a batch that comes in between ends the wait.
    int64_t arrivals = queue_.arrivals();
    ImageQueue::Group group = queue_.take_group(size);
    while (group.images.empty()) {
      // Nothing to prepare: only then wait for the other lane, whose images are due in any case.
      finish(lanes_[turn ^ 1]);
      queue_.wait_for_arrival(arrivals);
      arrivals = queue_.arrivals();
      group = queue_.take_group(size);
    }
    decode(lane, group);
  }
}

void JpegEngine::decode(Lane& lane, const ImageQueue::Group& group) {
  std::vector<int64_t> refused = group.images;
  try {
    if (!lane.decoder) lane.decoder = std::make_unique<GpuDecoder>(device_, pinned_, true);
    const StreamScope scope(lane.decoder->stream(), device_);
    if (!lane.decoded) check_cuda(cudaEventCreateWithFlags(&lane.decoded, cudaEventDisableTiming | cudaEventBlockingSync), "decoders.image");
    auto& batch = static_cast<EngineBatch&>(*group.batch);
    // Kept until the engine has read them: the batch may be gone before.
    lane.files = {batch.files()};
    refused = batch.decode_by_engine(*lane.decoder, group.images);
    lane.is_busy = refused.size() < group.images.size();
    if (lane.is_busy) check_cuda(cudaEventRecord(lane.decoded, lane.decoder->stream()), "decoders.image");
  } catch (const std::exception&) {
    // The threads decode the images, or report the errors of the device.
    lane.is_busy = false;
    refused = group.images;
  }
  if (!lane.is_busy) scheduler().free_later(std::move(lane.files));
  queue_.report_group(group, refused);
}

// Waits until the engine has decoded the group of a lane.
void JpegEngine::finish(Lane& lane) {
  if (!lane.is_busy) return;
  cudaEventSynchronize(lane.decoded);  // an error of the device is reported by its next user
  lane.is_busy = false;
  scheduler().free_later(std::move(lane.files));
  queue_.end_group();
}

}  // namespace ndd

#endif
