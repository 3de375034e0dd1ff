// SPDX-License-Identifier: Apache-2.0
// The storage of a cache, in memory or in a folder. All functions are thread-safe.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "decoders/cache/content_hash.h"
#include "decoders/image_decoder.h"
#include "ndd/python_interface.h"

namespace ndd {

// `first` keeps the images decoded first, until the cache is full; `largest` replaces smaller images by larger ones.
NDD_ENUM("cache.Admission", Admission, int, first, largest);

// The requested part of a cached image: all of it, or a window. `shape` is the shape of the result.
struct CachedPart {
  std::optional<CropWindow> window;
  ImageShape shape;
  int64_t item_bytes;

  // Whether an image of this shape contains the part. Written without sums, which could overflow.
  bool fits(const ImageShape& whole) const {
    if (whole.channels != shape.channels) return false;
    if (!window) return whole.height == shape.height && whole.width == shape.width;
    return window->y >= 0 && window->x >= 0 && window->height == shape.height && window->width == shape.width && shape.height >= 1 &&
           shape.width >= 1 && window->height <= whole.height - window->y && window->width <= whole.width - window->x;
  }
};

// Bytes of a whole image.
inline int64_t bytes_of(const ImageShape& shape, int64_t item_bytes) { return shape.height * shape.width * shape.channels * item_bytes; }

// Copies a part for which fits() is true.
inline void copy_part(const uint8_t* image, const ImageShape& whole, const CachedPart& part, void* out) {
  const int64_t pixel = whole.channels * part.item_bytes, row = part.shape.width * pixel;
  const int64_t y = part.window ? part.window->y : 0, x = part.window ? part.window->x : 0;
  auto* to = static_cast<uint8_t*>(out);
  // Full rows are contiguous.
  if (row == whole.width * pixel) {
    std::memcpy(to, image + y * row, static_cast<size_t>(part.shape.height * row));
    return;
  }
  for (int64_t i = 0; i < part.shape.height; ++i) std::memcpy(to + i * row, image + ((y + i) * whole.width + x) * pixel, static_cast<size_t>(row));
}

// Memory for an image that is being decoded. It is stored by commit(), and otherwise dropped.
class Slot {
 public:
  virtual ~Slot() = default;
  virtual uint8_t* data() = 0;
  virtual void commit() = 0;
};

struct StoreCounts {
  int64_t images, bytes, stored, evicted, damaged;
};

class ImageStore {
 public:
  virtual ~ImageStore() = default;

  // Copies a part of an image. Returns false if the image is absent or damaged; `out` may then have been partly written.
  virtual bool copy(const ContentHash& key, const CachedPart& part, void* out) = 0;

  // Returns a slot for an absent image; null if it is not admitted, or if another thread is already decoding it.
  virtual std::unique_ptr<Slot> admit(const ContentHash& key, const ImageShape& shape, int64_t item_bytes) = 0;

  virtual void clear() = 0;
  virtual StoreCounts counts() = 0;
  virtual HashSecret secret() const = 0;
  // Returns why no more images are admitted; empty if they are.
  virtual std::string trouble() { return {}; }
  // Called around a fork, so no thread holds a lock at that moment. Images that other threads were decoding are never committed in the child.
  virtual void before_fork() = 0;
  virtual void after_fork(bool child) = 0;
};

// `bytes` limits the memory, or disk space, of the images.
std::unique_ptr<ImageStore> make_memory_store(int64_t bytes, Admission admission);
std::unique_ptr<ImageStore> make_folder_store(const std::string& folder, int64_t bytes, Admission admission);

// Detects the end of an epoch, after which images that were not used can be dropped: files may have changed, or the cache may hold images
// of other work. A full cache remembers one image that it refuses. When it refuses this image for the third time, at least one whole epoch
// has passed, whatever the order of the samples: two consecutive refusals may be the end of one shuffled epoch and the beginning of the
// next.
class EpochWatch {
 public:
  enum Event { none, started, ended };

  Event note_refusal(const ContentHash& key) {
    if (seen_ == 0 || ++waited_ > patience_) {  // stop waiting for an image that does not recur
      if (seen_ != 0) patience_ *= 2;
      watched_ = key;
      waited_ = 0;
      seen_ = 1;
      return started;
    }
    if (!(watched_ == key) || ++seen_ < 3) return none;
    seen_ = 0;
    return ended;
  }

 private:
  ContentHash watched_{};
  int seen_ = 0;
  int64_t waited_ = 0, patience_ = 1 << 16;
};

}  // namespace ndd
