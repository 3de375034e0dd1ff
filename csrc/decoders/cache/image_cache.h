// SPDX-License-Identifier: Apache-2.0
// A cache of decoded images: which images are kept, and how images are decoded through it.
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
  // Keeps images of at least `threshold` bytes. `shorter` is the length to which shorter sides are reduced, or 0. `version` names what determines the
  // pixels besides file and arguments: the versions of the codecs.
  ImageCache(std::unique_ptr<ImageStore> store, int64_t threshold, int64_t shorter, const std::string& version);

  // Does what ImageDecoder::decode does, with the same result except for `shorter`. `options.window` and `shape` refer to the reduced image.
  void decode(ImageDecoder& decoder, const EncodedImage& file, const DecodeOptions& options, const ImageShape& shape, void* out, DType dtype);

  ImageStore& store() { return *store_; }
  int64_t hits() const { return hits_.load(std::memory_order_relaxed); }
  int64_t misses() const { return misses_.load(std::memory_order_relaxed); }

 private:
  ContentHash key(const EncodedImage& file, const DecodeOptions& options, DType dtype) const;
  ImageShape reduced_shape(const ImageShape& shape) const;
  void decode_whole(ImageDecoder& decoder, const EncodedImage& file, const DecodeOptions& whole, const ImageShape& shape, void* out,
                    DType dtype) const;
  void decode_missing(ImageDecoder& decoder, const EncodedImage& file, const ContentHash& key, const DecodeOptions& options, const ImageShape& shape,
                      void* out, DType dtype);

  const std::unique_ptr<ImageStore> store_;
  const int64_t threshold_, shorter_;
  HashSecret secret_;
  std::atomic<int64_t> hits_{0}, misses_{0};
};

// Returns the cache with this number, null for 0 and for a cache that Python has released.
std::shared_ptr<ImageCache> image_cache(int64_t number);

// Count, for the owner of the current work, the images and values that decoders produce, and the images copied from a cache.
void count_images(int64_t images, int64_t values);
void count_cached();

}  // namespace ndd
