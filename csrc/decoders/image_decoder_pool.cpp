// SPDX-License-Identifier: Apache-2.0
#include "decoders/image_decoder.h"

#include <pthread.h>

#include <mutex>
#include <new>
#include <vector>

namespace ndd {
namespace {

struct Pool {
  std::mutex mutex;
  std::vector<std::unique_ptr<ImageDecoder>> idle;
};

// Never destroyed: threads may still decode while the process exits.
Pool& pool() {
  static Pool* instance = [] {
    auto* created = new Pool;
    // At the fork another thread, which the child lacks, may have held the mutex or been inside a decoder. The child starts with an empty
    // pool and abandons the parent's decoders.
    pthread_atfork(nullptr, nullptr, [] { new (&pool()) Pool; });
    return created;
  }();
  return *instance;
}

}  // namespace

// The decoder is made outside of the lock: opening a codec takes longer than decoding a small image.
ImageDecoderLease::ImageDecoderLease() {
  auto& decoders = pool();
  {
    std::lock_guard<std::mutex> lock(decoders.mutex);
    if (!decoders.idle.empty()) {
      decoder_ = std::move(decoders.idle.back());
      decoders.idle.pop_back();
    }
  }
  if (!decoder_) decoder_ = std::make_unique<ImageDecoder>();
}

ImageDecoderLease::~ImageDecoderLease() {
  auto& decoders = pool();
  std::lock_guard<std::mutex> lock(decoders.mutex);
  decoders.idle.push_back(std::move(decoder_));
}

}  // namespace ndd
