// SPDX-License-Identifier: Apache-2.0
// The bytes of an encoded sound: in the caller's memory, or in a file or a range of it, of which only the accessed parts are read.
#pragma once

#include "readers/open_files.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
  ~SoundBytes();

  size_t size() const { return size_; }
  // All bytes. Those of a file are zeros until they are loaded.
  const uint8_t* data() const { return data_; }

  // Loads [begin, end), as far as it lies in the file. Throws Error with the reason if it cannot be read.
  void need(size_t begin, size_t end) {
    if (file_) load_blocks(begin, std::min(end, size_));
    else if (marks_ && !is_marked(begin, std::min(end, size_))) fail_missing();
  }
  // Copies [begin, end), which must lie in the file, without loading it. Returns false if it cannot be read: for callbacks of C libraries.
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
  void load_blocks(size_t begin, size_t end);
  void read(uint8_t* out, size_t begin, size_t end) const;
  size_t count_ahead(size_t begin);

  const uint8_t* data_;
  size_t size_;
  const uint8_t* marks_ = nullptr;
  size_t marked_block_ = 0;
  Missing missing_;
  std::optional<OpenFile> file_;
  int64_t origin_ = 0;             // where the bytes begin in the file
  std::vector<bool> loaded_;       // for each block
  std::vector<uint8_t> window_;    // what was read last in order to copy it
  size_t window_begin_ = 0;        // its position in the file
  size_t next_ = 0, ahead_ = 0;    // where the last read ended; the bytes to read if the next one begins there
  std::string failure_;
};

}  // namespace ndd
