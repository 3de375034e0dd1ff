// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "readers/open_files.h"

namespace ndd {

// A file from front to back, a few kB at a time: what scans of headers look at.
class FileWindow {
 public:
  explicit FileWindow(const std::string& path) : file_(path) {}

  int64_t size() const { return file_.size(); }
  // `length` bytes from `begin` on, or null where the file ends before.
  const char* at(int64_t begin, int64_t length) {
    if (begin < 0 || length > file_.size() - begin) return nullptr;
    if (begin < begin_ || begin + length > begin_ + static_cast<int64_t>(bytes_.size())) {
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

}  // namespace ndd
