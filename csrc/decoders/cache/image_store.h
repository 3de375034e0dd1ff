// SPDX-License-Identifier: Apache-2.0
// Where a cache keeps decoded images: in memory, or in a folder. Every function may be called by several threads at once.
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

// `first` keeps what was decoded first, until the cache is full; `largest` replaces smaller images by a larger one.
NDD_ENUM("cache.Admission", Admission, int, first, largest);

// What is wanted of a cached image: all of it, or a window; `shape` is that of the result.
struct CachedPart {
  std::optional<CropWindow> window;
  ImageShape shape;
  int64_t item_bytes;

  // Whether an image of this shape has the part.
  bool fits(const ImageShape& whole) const {
    if (whole.channels != shape.channels) return false;
    if (!window) return whole.height == shape.height && whole.width == shape.width;
    return window->y >= 0 && window->x >= 0 && window->height == shape.height && window->width == shape.width && shape.height >= 1 &&
           shape.width >= 1 && window->height <= whole.height - window->y && window->width <= whole.width - window->x;
  }
};

// Of a whole image.
inline int64_t bytes_of(const ImageShape& shape, int64_t item_bytes) { return shape.height * shape.width * shape.channels * item_bytes; }

// Copies a part that fits.
inline void copy_part(const uint8_t* image, const ImageShape& whole, const CachedPart& part, void* out) {
  const int64_t pixel = whole.channels * part.item_bytes, row = part.shape.width * pixel;
  const int64_t y = part.window ? part.window->y : 0, x = part.window ? part.window->x : 0;
  auto* to = static_cast<uint8_t*>(out);
  if (row == whole.width * pixel) {
    std::memcpy(to, image + y * row, static_cast<size_t>(part.shape.height * row));
    return;
  }
  for (int64_t i = 0; i < part.shape.height; ++i) std::memcpy(to + i * row, image + ((y + i) * whole.width + x) * pixel, static_cast<size_t>(row));
}

// A place for an image that is being decoded. Without `commit` nothing is kept.
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

  // False where there is no such image. What was written to `out` by then is garbage.
  virtual bool copy(const ContentHash& key, const CachedPart& part, void* out) = 0;

  // A place for an image that is not there; null where it is not admitted, or another thread decodes it.
  virtual std::unique_ptr<Slot> admit(const ContentHash& key, const ImageShape& shape, int64_t item_bytes) = 0;

  virtual void clear() = 0;
  virtual StoreCounts counts() = 0;
  virtual HashSecret secret() const = 0;
  // Why nothing more is admitted; empty while all is well.
  virtual std::string trouble() { return {}; }
  // Around a fork: nobody is inside in between. The child has one thread; what others were about to store there never comes.
  virtual void before_fork() = 0;
  virtual void after_fork(bool child) = 0;
};

// `bytes` are the most that the images take.
std::unique_ptr<ImageStore> make_memory_store(int64_t bytes, Admission admission);
std::unique_ptr<ImageStore> make_folder_store(const std::string& folder, int64_t bytes, Admission admission);

// Finds images that no epoch uses any more: of files that have changed, or of other work. A cache that is full notes an image that it refuses. When it
// refuses the same image for the third time, a whole epoch lies in between, whatever the order of the samples.
class EpochWatch {
 public:
  enum Event { nothing, began, over };

  Event refused(const ContentHash& key) {
    if (seen_ == 0 || ++waited_ > patience_) {  // an image that never comes again is given up
      if (seen_ != 0) patience_ *= 2;
      watched_ = key;
      waited_ = 0;
      seen_ = 1;
      return began;
    }
    if (!(watched_ == key) || ++seen_ < 3) return nothing;
    seen_ = 0;
    return over;
  }

 private:
  ContentHash watched_{};
  int seen_ = 0;
  int64_t waited_ = 0, patience_ = 1 << 16;
};

}  // namespace ndd
