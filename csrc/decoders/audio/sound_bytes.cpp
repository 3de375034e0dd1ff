// SPDX-License-Identifier: Apache-2.0
// Decoders name the bytes that they are about to use, and a window of the file moves there. Reserving address space for the whole file instead took 20 us
// of CPU time for each one: 10 to map and unmap it, and as much afterwards, because unmapping empties the processor's cache of page addresses.
#include "decoders/audio/sound_bytes.h"

#include "ndd/error.h"

#include <cstring>
#include <exception>
#include <utility>

namespace ndd {
namespace {

// A block is about what a search for a frame looks at; reading twice as much takes longer by a microsecond.
constexpr size_t kBlock = size_t{16} << 10;
// Sequential reading doubles the bytes per system call up to this number.
constexpr size_t kMaxAhead = 4 * kBlock;
// From this number on bytes are copied without the window: 10 s of a WAV file then take 0.90 to 0.98 of the CPU time.
constexpr size_t kStraight = kBlock / 2;

}  // namespace

// The file is not mapped: reading a mapped file that was truncated meanwhile would end the process.
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
}

void SoundBytes::read(uint8_t* out, size_t begin, size_t end) const {
  try {
    file_->read(reinterpret_cast<char*>(out), origin_ + static_cast<int64_t>(begin), static_cast<int64_t>(end - begin));
  } catch (const Error& error) {
    fail("cannot be read: ", error.what());
  }
}

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

// Reads at least [begin, end), which is not empty, and keeps what the window already holds of it.
void SoundBytes::move_window(size_t begin, size_t end) {
  const size_t window_end = window_begin_ + window_size_;
  const bool follows = window_size_ > 0 && begin >= window_begin_ && begin <= window_end;
  ahead_ = follows ? std::min(2 * ahead_, kMaxAhead) : kBlock;
  const size_t first = follows ? begin : begin / kBlock * kBlock, kept = follows ? window_end - begin : 0;
  const size_t size = std::min(std::max(end, first + kept + ahead_), size_) - first;
  std::unique_ptr<uint8_t[]> before;
  if (size > window_room_) {
    before = std::exchange(window_, std::unique_ptr<uint8_t[]>(new uint8_t[size]));
    window_room_ = size;
  }
  if (kept > 0) std::memmove(window_.get(), (before ? before.get() : window_.get()) + (begin - window_begin_), kept);
  window_begin_ = first;
  window_size_ = kept;  // if the rest cannot be read
  read(window_.get() + kept, first + kept, first + size);
  window_size_ = size;
}

bool SoundBytes::copy(size_t begin, size_t end, uint8_t* out) noexcept {
  try {
    // Samples, which libsndfile reads by the block, to a place in the first-level cache.
    const bool is_straight = file_ && end - begin >= kStraight && (begin < window_begin_ || end > window_begin_ + window_size_);
    if (is_straight) read(out, begin, end);
    else std::memcpy(out, need(begin, end), end - begin);
    return true;
  } catch (const std::exception& error) {
    failure_ = error.what();
    return false;
  }
}

void SoundBytes::check() const {
  if (!failure_.empty()) fail(failure_);
}

}  // namespace ndd
