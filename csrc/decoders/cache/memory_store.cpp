// SPDX-License-Identifier: Apache-2.0
// Decoded images in the memory of this process, within one reserved address range.
#include <sys/mman.h>

#include <map>
#include <mutex>
#include <new>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "decoders/cache/image_store.h"
#include "ndd/error.h"

namespace ndd {
namespace {

constexpr int64_t kPage = 4096;

int64_t round_to_pages(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Allocates whole pages within a reserved range of twice as many addresses as bytes are allowed, so fragmentation does not matter;
// freed pages are returned to the system. malloc would not return them: it keeps freed memory, and the limit would not hold.
class Arena {
 public:
  explicit Arena(int64_t bytes) : limit_(bytes / kPage * kPage), addresses_(2 * round_to_pages(bytes)) {
    // MAP_NORESERVE: addresses cost nothing until pages are written.
    void* range = mmap(nullptr, static_cast<size_t>(addresses_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) fail(Error::Memory, "decoders.cache: cannot reserve addresses for a cache of ", bytes, " bytes");
    base_ = static_cast<uint8_t*>(range);
    add(0, addresses_);
  }
  ~Arena() { munmap(base_, static_cast<size_t>(addresses_)); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Returns whole pages, or null if too few are free. Best fit: the smallest range that is large enough.
  uint8_t* take(int64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (bytes > limit_ - used_) return nullptr;
    // The first range in the order of (length, offset) that is long enough; of equal ones that with the lowest address.
    const auto found = by_size_.lower_bound({bytes, 0});
    if (found == by_size_.end()) return nullptr;
    // The start of the range is taken; the rest stays free.
    const auto [length, offset] = *found;
    remove(offset, length);
    if (length > bytes) add(offset + bytes, length - bytes);
    used_ += bytes;
    return base_ + offset;
  }

  void give_back(uint8_t* place, int64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    // The pages return to the system, and the addresses can be used again.
    madvise(place, static_cast<size_t>(bytes), MADV_DONTNEED);
    used_ -= bytes;
    // Free neighbors are joined.
    int64_t offset = place - base_, length = bytes;
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end() && next->first == offset + length) {
      const auto [at, size] = *next;
      length += size;
      remove(at, size);
    }
    next = by_offset_.lower_bound(offset);
    if (next != by_offset_.begin()) {
      const auto [at, size] = *std::prev(next);
      if (at + size == offset) {
        offset = at;
        length += size;
        remove(at, size);
      }
    }
    add(offset, length);
  }

  int64_t used() {
    std::lock_guard<std::mutex> lock(mutex_);
    return used_;
  }
  int64_t limit() const { return limit_; }
  // Held across a fork, so the child finds the maps complete.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  void add(int64_t offset, int64_t length) {
    by_offset_.emplace(offset, length);
    by_size_.emplace(length, offset);
  }
  void remove(int64_t offset, int64_t length) {
    by_offset_.erase(offset);
    by_size_.erase({length, offset});
  }

  const int64_t limit_, addresses_;
  uint8_t* base_ = nullptr;
  std::mutex mutex_;
  int64_t used_ = 0;
  // The same ranges in two orders: to find neighbors, and to find the best fit.
  std::map<int64_t, int64_t> by_offset_;           // free ranges: offset, length
  std::set<std::pair<int64_t, int64_t>> by_size_;  // length, offset
};

// Held by readers while they copy, so it may be removed from the cache at any time.
struct Image {
  std::shared_ptr<Arena> arena;
  uint8_t* data;
  int64_t bytes;  // whole pages
  ImageShape shape;
  int64_t item_bytes;
  uint64_t used;  // time of the latest use, in look-ups; guarded by the mutex

  Image(std::shared_ptr<Arena> arena_, uint8_t* data_, int64_t bytes_, const ImageShape& shape_, int64_t item_bytes_)
      : arena(std::move(arena_)), data(data_), bytes(bytes_), shape(shape_), item_bytes(item_bytes_), used(0) {}
  ~Image() { arena->give_back(data, bytes); }
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;
};

class MemoryStore : public ImageStore {
 public:
  MemoryStore(int64_t bytes, Admission admission) : admission_(admission), secret_(random_secret()), state_(bytes) {}

  bool copy(const ContentHash& key, const CachedPart& part, void* out) override {
    std::shared_ptr<Image> image;
    {
      State& state = state_;
      std::lock_guard<std::mutex> lock(state.mutex);
      ++state.clock;
      const auto found = state.images.find(key);
      if (found == state.images.end()) return false;
      image = found->second;
      image->used = state.clock;
    }
    // Copied outside of the lock: the shared pointer keeps the image while others may drop it from the cache.
    if (image->item_bytes != part.item_bytes || !part.fits(image->shape)) return false;
    copy_part(image->data, image->shape, part, out);
    return true;
  }

  // Memory is reserved before the image is decoded, so a cache that is full costs no decoding to memory that is dropped again.
  std::unique_ptr<Slot> admit(const ContentHash& key, const ImageShape& shape, int64_t item_bytes) override {
    // Whole pages count, as they do for the system.
    const int64_t bytes = round_to_pages(bytes_of(shape, item_bytes));
    State& state = state_;
    std::lock_guard<std::mutex> lock(state.mutex);
    if (bytes > state.arena->limit() || state.images.count(key) || state.decoding.count(key)) return nullptr;
    uint8_t* place = state.arena->take(bytes);
    if (place == nullptr && admission_ == Admission::largest) place = replace_smaller(state, bytes);
    if (place == nullptr) {
      const EpochWatch::Event event = state.watch.note_refusal(key);
      // Images whose latest use is older than this look-up were not used in the observed epoch.
      if (event == EpochWatch::started) state.watch_began = state.clock;
      if (event == EpochWatch::ended) {
        drop_unused(state, state.watch_began);
        place = state.arena->take(bytes);
      }
      if (place == nullptr) return nullptr;
    }
    state.decoding.insert(key);
    return std::make_unique<MemorySlot>(*this, key, std::make_shared<Image>(state.arena, place, bytes, shape, item_bytes));
  }

  void clear() override {
    State& state = state_;
    std::lock_guard<std::mutex> lock(state.mutex);
    state.images.clear();
    state.by_size.clear();
  }

  StoreCounts counts() override {
    State& state = state_;
    std::lock_guard<std::mutex> lock(state.mutex);
    return {static_cast<int64_t>(state.images.size()), state.arena->used(), state.stored, state.evicted, 0};
  }

  HashSecret secret() const override { return secret_; }

  // The child keeps the parent's images, whose pages both share (copy on write).
  void before_fork() override {
    state_.mutex.lock();
    state_.arena->lock();
  }
  void after_fork(bool child) override {
    // The threads that were decoding do not exist in the child.
    if (child) state_.decoding.clear();
    state_.arena->unlock();
    state_.mutex.unlock();
  }

 private:
  struct State {
    explicit State(int64_t bytes) : arena(std::make_shared<Arena>(bytes)) {}

    std::mutex mutex;
    std::shared_ptr<Arena> arena;
    std::unordered_map<ContentHash, std::shared_ptr<Image>, HashOfContentHash> images;
    // Bytes and key of each image, for Admission::largest.
    std::set<std::pair<int64_t, ContentHash>> by_size;
    // Keys of images that have a slot, so two threads never decode the same image into the cache.
    std::unordered_set<ContentHash, HashOfContentHash> decoding;
    EpochWatch watch;
    uint64_t clock = 0, watch_began = 0;
    int64_t stored = 0, evicted = 0;
  };

  // The memory of an image that is being decoded. Without commit() it is given back.
  class MemorySlot : public Slot {
   public:
    MemorySlot(MemoryStore& store, const ContentHash& key, std::shared_ptr<Image> image)
        : state_(store.state_), key_(key), image_(std::move(image)) {}
    ~MemorySlot() override {
      std::lock_guard<std::mutex> lock(state_.mutex);
      state_.decoding.erase(key_);
    }
    uint8_t* data() override { return image_->data; }
    void commit() override {
      std::lock_guard<std::mutex> lock(state_.mutex);
      image_->used = state_.clock;
      if (!state_.images.emplace(key_, image_).second) return;
      state_.by_size.emplace(image_->bytes, key_);
      ++state_.stored;
    }

   private:
    State& state_;
    const ContentHash key_;
    std::shared_ptr<Image> image_;
  };

  // The memory is given back when the last reader has copied the image.
  static void drop(State& state, const ContentHash& key) {
    const auto found = state.images.find(key);
    state.by_size.erase({found->second->bytes, key});
    state.images.erase(found);
    ++state.evicted;
  }

  // Drops the smallest images, as few as possible, and none if all that are smaller than the new one would not suffice.
  static uint8_t* replace_smaller(State& state, int64_t bytes) {
    // What has to be freed; 0 or less if only fragmentation is in the way.
    int64_t missing = bytes - (state.arena->limit() - state.arena->used());
    int64_t smaller = 0;
    for (auto image = state.by_size.begin(); image != state.by_size.end() && image->first < bytes && smaller < missing; ++image)
      smaller += image->first;
    if (smaller < missing) return nullptr;
    while (missing > 0) {
      const auto [size, key] = *state.by_size.begin();
      drop(state, key);
      missing -= size;
    }
    return state.arena->take(bytes);  // null while another thread still copies a dropped image
  }

  // Not used since this time.
  static void drop_unused(State& state, uint64_t since) {
    for (auto entry = state.images.begin(); entry != state.images.end();) {
      if (entry->second->used < since) {
        state.by_size.erase({entry->second->bytes, entry->first});
        entry = state.images.erase(entry);
        ++state.evicted;
      } else {
        ++entry;
      }
    }
  }

  const Admission admission_;
  const HashSecret secret_;
  State state_;
};

}  // namespace

std::unique_ptr<ImageStore> make_memory_store(int64_t bytes, Admission admission) { return std::make_unique<MemoryStore>(bytes, admission); }

}  // namespace ndd
