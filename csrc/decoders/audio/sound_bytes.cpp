// SPDX-License-Identifier: Apache-2.0
// A flag for each block says whether it was read. Decoders name the bytes that they are about to use, and missing blocks are read then; memory for
// the others is reserved, but never touched.
#include "decoders/audio/sound_bytes.h"

#include "ndd/error.h"

#include <sys/mman.h>

#include <cstring>
#include <exception>

namespace ndd {
namespace {

// A block is about what a search for a frame looks at; reading twice as much takes longer by a microsecond.
constexpr size_t kBlock = size_t{16} << 10;
// Sequential reading doubles the bytes per system call up to this number.
constexpr size_t kMaxAhead = 4 * kBlock;
// From this number on bytes are read without the window: 10 s of a WAV file then take 0.90 to 0.98 of the CPU time.
constexpr size_t kStraight = kBlock / 2;

}  // namespace

// The address space of the whole file is reserved, so that decoders see it as contiguous memory; only pages that are written take memory. The file itself
// is not mapped: reading a mapped file that was truncated meanwhile would end the process.
SoundBytes::SoundBytes(const std::string& path, int64_t begin, int64_t length) : data_(nullptr), size_(0), origin_(begin) {
  // The system would open the file whose name ends at the zero byte.
  if (path.find('\0') != std::string::npos) fail("cannot be read: there is a zero byte in its path");
  try {
    file_.emplace(path);
  } catch (const Error& error) {
    fail("cannot be read: ", error.what());
  }
  const int64_t size = file_->size();
  if (begin < 0 || begin > size || length > size - begin) {
    fail("cannot be read: the file has ", size, " bytes, this part ends at byte ", begin + std::max<int64_t>(0, length));
  }
  size_ = static_cast<size_t>(length < 0 ? size - begin : length);
  if (size_ == 0) return;
  loaded_.resize((size_ - 1) / kBlock + 1);  // first: nothing may throw while only this constructor knows of the mapping
  void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail(Error::Memory, "no address space for a file of ", size_, " bytes");
  data_ = static_cast<const uint8_t*>(memory);
}

SoundBytes::~SoundBytes() {
  if (file_ && data_) munmap(const_cast<uint8_t*>(data_), size_);
}

void SoundBytes::read(uint8_t* out, size_t begin, size_t end) const {
  file_->read(reinterpret_cast<char*>(out), origin_ + static_cast<int64_t>(begin), static_cast<int64_t>(end - begin));
}

// Returns how many bytes to read at least from a position on.
size_t SoundBytes::count_ahead(size_t begin) { return ahead_ = begin == next_ && begin > 0 ? std::min(2 * ahead_, kMaxAhead) : kBlock; }

// Notes the first range of which a block is missing.
bool SoundBytes::is_marked(size_t begin, size_t end) {
  if (begin >= end) return true;
  for (size_t block = begin / marked_block_; block <= (end - 1) / marked_block_; ++block) {
    if (marks_[block]) continue;
    if (missing_.end == 0) missing_ = {static_cast<int64_t>(std::max(begin, block * marked_block_)), static_cast<int64_t>(end)};
    return false;
  }
  return true;
}

void SoundBytes::fail_missing() { fail("these bytes are not there yet"); }

void SoundBytes::load_blocks(size_t begin, size_t end) {
  if (begin >= end) return;
  const size_t last = (end - 1) / kBlock + 1;
  for (size_t block = begin / kBlock; block < last; ++block) {
    if (loaded_[block]) continue;
    const size_t ahead = block + count_ahead(block * kBlock) / kBlock;
    size_t behind = block + 1;
    while (behind < std::min(std::max(last, ahead), loaded_.size()) && !loaded_[behind]) ++behind;
    next_ = std::min(behind * kBlock, size_);
    try {
      read(const_cast<uint8_t*>(data_) + block * kBlock, block * kBlock, next_);
    } catch (const Error& error) {
      fail("cannot be read: ", error.what());
    }
    std::fill(loaded_.begin() + static_cast<std::ptrdiff_t>(block), loaded_.begin() + static_cast<std::ptrdiff_t>(behind), true);
    block = behind - 1;
  }
}

// Through a window that the C library's allocator reuses: fresh pages of the reserved memory cost three times the copy.
bool SoundBytes::copy(size_t begin, size_t end, uint8_t* out) noexcept {
  try {
    if (marks_ && !is_marked(begin, end)) fail_missing();
    if (!file_) {
      std::memcpy(out, data_ + begin, end - begin);
      return true;
    }
    while (begin < end) {
      if (begin < window_begin_ || begin >= window_begin_ + window_.size()) {
        // Samples, which libsndfile reads by the block, to a place in the first-level cache.
        if (end - begin >= kStraight) {
          read(out, begin, end);
          return true;
        }
        const size_t first = begin / kBlock * kBlock;
        window_.resize(std::min(count_ahead(first), size_ - first));
        window_begin_ = first;
        next_ = first + window_.size();
        read(window_.data(), first, next_);
      }
      const size_t count = std::min(end, window_begin_ + window_.size()) - begin;
      std::memcpy(out, window_.data() + (begin - window_begin_), count);
      begin += count;
      out += count;
    }
    return true;
  } catch (const std::exception& error) {
    failure_ = error.what();
    window_.clear();
    return false;
  }
}

void SoundBytes::check() const {
  if (!failure_.empty()) fail("cannot be read: ", failure_);
}

}  // namespace ndd
