// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "readers/open_files.h"

namespace ndd {

// A file that is read from front to back in windows of a few kB, for scanning headers.
class FileWindow {
 public:
  explicit FileWindow(const std::string& path) : file_(path) {}

  int64_t size() const { return file_.size(); }
  // Returns `length` bytes from `begin` on, null if the file ends earlier. Valid until the next call.
  const char* at(int64_t begin, int64_t length) {
    if (begin < 0 || length > file_.size() - begin) return nullptr;
    if (begin < begin_ || begin + length > begin_ + static_cast<int64_t>(bytes_.size())) {
      // Read ahead, because the next request usually lies behind this one.
      bytes_.resize(std::max(length, kBytes));
      begin_ = begin;
      bytes_.resize(file_.read_some(&bytes_[0], begin, static_cast<int64_t>(bytes_.size())));
      if (static_cast<int64_t>(bytes_.size()) < length) return nullptr;
    }
    return bytes_.data() + (begin - begin_);
  }

 private:
  static constexpr int64_t kBytes = 4096;
  OpenFile file_;
  std::string bytes_;
  int64_t begin_ = 0;
};

// Reads a little-endian number of a file, at any alignment.
template <class T>
T load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

}  // namespace ndd
