// SPDX-License-Identifier: Apache-2.0
// A cache of decoded images: what goes into it, and how images are decoded through it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "decoders/cache/image_store.h"
#include "decoders/image_decoder.h"

namespace ndd {

class ImageCache {
 public:
  // Images of at least `threshold` bytes are kept; `shorter` is the length to which shorter sides are reduced, or 0. `version` names whatever decides
  // about pixels and is not an argument: the versions of the codecs.
  ImageCache(std::unique_ptr<ImageStore> store, int64_t threshold, int64_t shorter, const std::string& version);

  // As ImageDecoder::decode, with the same result but for `shorter`. `options.window` and `shape` are those in the reduced image.
  void decode(ImageDecoder& decoder, const EncodedImage& file, const DecodeOptions& options, const ImageShape& shape, void* out, DType dtype);

  ImageStore& store() { return *store_; }
  int64_t hits() const { return hits_.load(std::memory_order_relaxed); }
  int64_t misses() const { return misses_.load(std::memory_order_relaxed); }

 private:
  ContentHash key(const EncodedImage& file, const DecodeOptions& options, DType dtype) const;
  ImageShape reduced(const ImageShape& shape) const;
  void decode_whole(ImageDecoder& decoder, const EncodedImage& file, const DecodeOptions& whole, const ImageShape& shape, void* out,
                    DType dtype) const;
  void decode_missing(ImageDecoder& decoder, const EncodedImage& file, const ContentHash& key, const DecodeOptions& options, const ImageShape& shape,
                      void* out, DType dtype);

  const std::unique_ptr<ImageStore> store_;
  const int64_t threshold_, shorter_;
  HashSecret secret_;
  std::atomic<int64_t> hits_{0}, misses_{0};
};

// The cache with this number; null for 0, and for one that Python has dropped.
std::shared_ptr<ImageCache> image_cache(int64_t number);

// What image decoders have been asked for by the calls of this thread's owner, and what came from a cache.
void count_images(int64_t images, int64_t values);
void count_cached();

}  // namespace ndd
