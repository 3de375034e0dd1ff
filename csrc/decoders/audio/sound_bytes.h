// SPDX-License-Identifier: Apache-2.0
// The bytes of an encoded sound: in the caller's memory, or in a file or a range of it; only the parts that are accessed are read.
#pragma once

#include "readers/open_files.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace ndd {

class SoundBytes {
 public:
  // The memory must outlive the object.
  SoundBytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  // Only blocks of `block` bytes that are marked are there, with a byte for each. What needs another one fails, and missing() says where.
  SoundBytes(const uint8_t* data, size_t size, const uint8_t* marks, size_t block) : data_(data), size_(size), marks_(marks), marked_block_(block) {}
  // Opens a file, whose bytes are `length` ones from `begin` on; negative: up to its end. Throws Error with the reason if it cannot be opened or has fewer.
  SoundBytes(const std::string& path, int64_t begin, int64_t length);
  SoundBytes(const SoundBytes&) = delete;
  SoundBytes& operator=(const SoundBytes&) = delete;

  size_t size() const { return size_; }

  // Returns a pointer to the bytes [begin, min(end, size())), valid until the next call of need() or copy(). Requires begin <= size(). Throws Error with
  // the reason if reading fails.
  const uint8_t* need(size_t begin, size_t end) {
    end = std::min(end, size_);
    if (!file_) {
      expect(begin, end);
      return data_ + begin;
    }
    if (begin >= end) return nullptr;
    if (begin < window_begin_ || end > window_begin_ + window_size_) move_window(begin, end);
    return window_.get() + (begin - window_begin_);
  }
  // Says that all of [begin, end) will be needed, piece by piece: of what is fetched it is missing in one piece then.
  void expect(size_t begin, size_t end) {
    if (marks_ && !is_marked(begin, std::min(end, size_))) fail_missing();
  }
  // Copies [begin, end), which must lie in the file. Returns false if it cannot be read: for callbacks of C libraries.
  bool copy(size_t begin, size_t end, uint8_t* out) noexcept;
  // Throws Error if copying has failed.
  void check() const;
  // The first bytes that were needed and are not marked; empty if there were none.
  struct Missing {
    int64_t begin = 0, end = 0;
  };
  Missing missing() const { return missing_; }

 private:
  bool is_marked(size_t begin, size_t end);
  [[noreturn]] static void fail_missing();
  void move_window(size_t begin, size_t end);
  void read(uint8_t* out, size_t begin, size_t end) const;

  const uint8_t* data_;
  size_t size_;
  const uint8_t* marks_ = nullptr;
  size_t marked_block_ = 0;
  Missing missing_;
  std::optional<OpenFile> file_;
  int64_t origin_ = 0;                         // where the bytes begin in the file
  std::unique_ptr<uint8_t[]> window_;          // what was read last
  size_t window_begin_ = 0, window_size_ = 0;  // its position in the file, its bytes
  size_t window_room_ = 0;                     // the bytes for which it has memory
  size_t ahead_ = 0;                           // the bytes to read at least if the next ones follow those in the window
  std::string failure_;
};

}  // namespace ndd
