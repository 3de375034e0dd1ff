// SPDX-License-Identifier: Apache-2.0
// JPEGs decoded by nvImageCodec on a GPU, into memory of the caller. The host waits for the CPU's part of the work, and a
// thread of the decoder for the hardware engine.
#pragma once

#ifdef USE_CUDA

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include "decoders/codecs/codec_instance.h"
#include "decoders/codecs/codec_output.h"
#include "decoders/gpu/gpu_shares.h"
#include "ndd/cuda.h"
#include "ndd/stream/host_memory.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace ndd {

// Within its life this thread works on the device, and torch allocates for the stream.
class OnStream {
 public:
  OnStream(int device, cudaStream_t stream);
  ~OnStream();
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  CUDAStreamGuardHandle guard_ = nullptr;
};

struct GpuJob {
  EncodedImage file;
  DecodeSteps steps;
  void* samples;  // device memory for what the codec delivers
};

// Pinned memory for the decoders of a GPU. cudaFreeHost waits for all work of the device, and the codec frees a buffer for each file that is larger than those
// before, so nothing is freed: blocks are powers of two, and one that was given back is taken again once its stream has done what it had to do then. Torch's
// pinned memory would be given out again at once: see pinned_host_memory().
class PinnedMemory {
 public:
  HostBlock take(size_t bytes);
  void give_back(void* data, cudaStream_t stream);

 private:
  struct Block {
    int size = 0;  // of size_class()
    cudaEvent_t idle = nullptr;
  };

  std::mutex mutex_;
  std::unordered_map<void*, Block> all_;
  std::vector<void*> free_[64];  // by size
};

// A decoder with a stream of its own, for one thread at a time.
class GpuDecoder {
 public:
  GpuDecoder(int device, PinnedMemory& pinned, bool hardware);
  GpuDecoder(const GpuDecoder&) = delete;  // the codec keeps its address
  GpuDecoder& operator=(const GpuDecoder&) = delete;

  int device() const { return device_; }
  PinnedMemory& pinned() const { return pinned_; }
  cudaStream_t stream() const { return stream_; }
  // Whether the device has such a decoder. Within OnStream, as all that follows.
  bool available(const std::string& options) { return decoder(options) != nullptr; }
  // Whether each image is under way on the stream; the others are left to another decoder.
  std::vector<char> issue(const std::vector<GpuJob>& jobs, const std::string& options);
  // Pinned memory, which the call waits for if it still is being uploaded: two blocks take turns.
  void* staging(size_t bytes);
  // Copies what was written to the block that staging() gave last.
  void upload(void* device_memory, size_t bytes);
  // Has `other` wait for all that was issued here.
  void join(cudaStream_t other);
  // Returns when all that was issued here is done.
  void finish();

  bool just_fed = false;  // the last image went to CUDA

 private:
  struct Block {
    HostBlock memory{nullptr, 0};
    cudaEvent_t copied = nullptr;
  };

  nvimgcodecDecoder_t decoder(const std::string& options);

  const int device_;
  PinnedMemory& pinned_;
  const bool hardware_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t issued_ = nullptr;
  std::unique_ptr<CodecInstance> instance_;
  nvimgcodecDeviceAllocator_t device_memory_;  // the decoders refer to them
  nvimgcodecPinnedAllocator_t pinned_memory_;
  std::map<std::string, nvimgcodecDecoder_t> decoders_;  // null where the device has none
  std::vector<nvimgcodecCodeStream_t> files_, parts_;    // filled again by every call
  std::vector<nvimgcodecImage_t> images_;
  Block blocks_[2];
  int block_ = 0;
};

struct DecodeCounts {
  std::atomic<int64_t> hardware{0}, cuda{0}, cpu{0}, refused{0};  // refused: of the first two, those that another one had to decode
};

// The decoders of one GPU. Never destroyed, as the CPU's.
class GpuDecoders {
 public:
  static GpuDecoders& of(int device);
  explicit GpuDecoders(int device) : device_(device) {}

  std::unique_ptr<GpuDecoder> take();
  void give_back(std::unique_ptr<GpuDecoder> decoder);
  // Runs with the decoder of the hardware, which there is once.
  template <class F>
  void with_hardware(F work) {
    std::lock_guard<std::mutex> lock(hardware_mutex_);
    if (!hardware_) hardware_ = std::make_unique<GpuDecoder>(device_, pinned_, true);
    work(*hardware_);
  }

  DecodeTimes times() const;
  void note_time(double DecodeTimes::* which, double nanoseconds_per_pixel);
  // Whether the next image of a thread goes to CUDA, so that in the long run `share` of them do.
  bool goes_to_cuda(double share);

  int device() const { return device_; }
  DecodeCounts counts;
  std::atomic<bool> has_hardware{true};  // until it is found missing

 private:
  const int device_;
  PinnedMemory pinned_;
  mutable std::mutex mutex_;
  std::mutex hardware_mutex_;
  std::vector<std::unique_ptr<GpuDecoder>> idle_;
  std::unique_ptr<GpuDecoder> hardware_;
  DecodeTimes times_;
  double credit_ = 0;
};

class GpuDecoderLease {
 public:
  explicit GpuDecoderLease(GpuDecoders& decoders) : decoders_(decoders), decoder_(decoders.take()) {}
  ~GpuDecoderLease() { decoders_.give_back(std::move(decoder_)); }
  GpuDecoder* operator->() const { return decoder_.get(); }
  GpuDecoder& operator*() const { return *decoder_; }

 private:
  GpuDecoders& decoders_;
  std::unique_ptr<GpuDecoder> decoder_;
};

}  // namespace ndd

#endif
