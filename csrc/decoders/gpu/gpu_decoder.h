// SPDX-License-Identifier: Apache-2.0
// Decodes images with nvImageCodec on a GPU, to memory of the caller. The calling thread does the CPU's part of the work.
#pragma once

#ifdef USE_CUDA

#include "decoders/codecs/codec_instance.h"
#include "decoders/codecs/codec_output.h"
#include "decoders/gpu/gpu_codecs.h"
#include "decoders/gpu/waiting_images.h"
#include "ndd/cuda.h"
#include "ndd/stream/host_memory.h"
#include "ndd/stream/outside_capture.h"
#include "ndd/stream_scope.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace ndd {

struct GpuJob {
  EncodedImage file;
  ImageHeader header;  // of the file, by our own parser
  DecodeSteps steps;
  void* samples;  // device memory that the codec fills
};

// Pinned memory for the decoders of a GPU. Nothing is freed, because cudaFreeHost waits for all work of the device, and the codec frees a
// buffer for each file that is larger than the previous ones. Blocks are powers of two; a returned block is reused once the work that its
// stream had at that time is done. Torch's pinned memory would be reused immediately: see pinned_host_memory().
class PinnedMemory {
 public:
  HostBlock take(size_t bytes);
  void give_back(void* data, cudaStream_t stream);

 private:
  struct Block {
    int size = 0;  // see size_class()
    cudaEvent_t idle = nullptr;
  };

  std::mutex mutex_;
  std::unordered_map<void*, Block> all_;
  std::vector<void*> free_[64];  // by size
};

// A decoder with its own stream, for one thread at a time.
class GpuDecoder {
 public:
  GpuDecoder(int device, PinnedMemory& pinned, bool hardware);
  GpuDecoder(const GpuDecoder&) = delete;  // the codec keeps its address
  GpuDecoder& operator=(const GpuDecoder&) = delete;

  int device() const { return device_; }
  PinnedMemory& pinned() const { return pinned_; }
  cudaStream_t stream() const { return stream_; }
  // Whether the device has such a decoder. This and the following functions must be called within StreamScope.
  bool available(const std::string& options) { return find_codec(GpuCodec::jpeg, options).decoder != nullptr; }
  // Issues the decoding of images by a codec. Returns for each whether it was accepted; the others need another decoder.
  std::vector<char> issue(GpuCodec codec, const std::vector<GpuJob>& jobs, const std::string& options);
  // Returns pinned memory, after waiting for its previous upload.
  void* staging(size_t bytes);
  // Copies from the block that staging() returned last.
  void upload(void* device_memory, size_t bytes);
  // Waits, on the GPU, for the work of `other` so far.
  void follow(cudaStream_t other);
  // Makes `other` wait for the work issued so far.
  void join(cudaStream_t other);
  // Whether the GPU has not yet decoded what was issued four calls ago. A GPU that is busy, with a model for instance, is slower than its threads.
  bool is_behind();

 private:
  struct Block {
    HostBlock memory{nullptr, 0};
    cudaEvent_t copied = nullptr;
  };

  // A decoder, and the instance to which it belongs: of each library, because one that fails to start must not disable the others.
  struct Codec {
    CodecInstance* instance = nullptr;
    nvimgcodecDecoder_t decoder = nullptr;  // null if the device has no such decoder
  };
  Codec find_codec(GpuCodec codec, const std::string& options);

  const int device_;
  PinnedMemory& pinned_;
  const bool hardware_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t issued_ = nullptr;
  std::map<std::string, std::unique_ptr<CodecInstance>> instances_;  // by extension
  nvimgcodecDeviceAllocator_t device_memory_;  // referred to by the decoders
  nvimgcodecPinnedAllocator_t pinned_memory_;
  std::map<std::pair<std::string, std::string>, Codec> decoders_;  // by extension and options
  // Reused by every call; those of one instance cannot be used by another.
  struct Handles {
    std::vector<nvimgcodecCodeStream_t> files, parts;
    std::vector<nvimgcodecImage_t> images;
  };
  std::map<CodecInstance*, Handles> handles_;
  Block blocks_[2];
  int block_ = 0;
  cudaEvent_t calls_[4] = {};  // recorded after the latest calls of issue(), in turn
  int call_ = 0;
};

// How many images each engine has decoded; refused: images that an engine of the GPU rejected, which another one decoded.
struct DecodeCounts {
  std::atomic<int64_t> hardware{0}, codecs[kGpuCodecs]{}, cpu{0}, refused{0};
};

class JpegEngine;

// The decoders of one GPU. Never destroyed, like those of the CPU.
class GpuDecoders {
 public:
  static GpuDecoders& of(int device);
  explicit GpuDecoders(int device) : device_(device) {}

  std::unique_ptr<GpuDecoder> take();
  void give_back(std::unique_ptr<GpuDecoder> decoder);
  // Starts the JPEG engine's thread, once. The engine is not used if the thread cannot be started.
  void start_engine();

  int device() const { return device_; }
  DecodeCounts counts;
  ImageQueue queue;
  std::atomic<bool> has_hardware{true};  // until none is found

 private:
  const int device_;
  PinnedMemory pinned_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<GpuDecoder>> idle_;
  JpegEngine* engine_ = nullptr;
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
