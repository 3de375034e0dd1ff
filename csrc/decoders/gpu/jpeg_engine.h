// SPDX-License-Identifier: Apache-2.0
// The hardware JPEG engine of a GPU, with a thread of its own that takes images from the queue.
#pragma once

#ifdef USE_CUDA

#include "decoders/gpu/gpu_decoder.h"
#include "decoders/gpu/waiting_images.h"

namespace ndd {

class EngineBatch : public WaitingBatch {
 public:
  using WaitingBatch::WaitingBatch;
  // Issues the decoding of images, within StreamScope of the decoder. Returns those that it cannot decode.
  virtual std::vector<int64_t> decode_by_engine(GpuDecoder& decoder, const std::vector<int64_t>& images) noexcept = 0;
  // What the engine reads until it has decoded the images.
  virtual Tensor files() const = 0;

 protected:
  ~EngineBatch() = default;
};

// Two decoders take turns: the thread prepares the files of one, and issues them, while the engine works on those of the other. It waits for the engine
// without using its core. Never destroyed.
class JpegEngine {
 public:
  // Starts the thread; throws std::system_error if the system refuses it.
  JpegEngine(int device, PinnedMemory& pinned, ImageQueue& queue);

 private:
  struct Lane {
    std::unique_ptr<GpuDecoder> decoder;
    cudaEvent_t decoded = nullptr;
    std::vector<Tensor> files;  // of the group that it decodes
    bool is_busy = false;
  };

  [[noreturn]] void run();
  void decode(Lane& lane, const ImageQueue::Group& group);
  void finish(Lane& lane);

  const int device_;
  PinnedMemory& pinned_;
  ImageQueue& queue_;
  Lane lanes_[2];
};

}  // namespace ndd

#endif
