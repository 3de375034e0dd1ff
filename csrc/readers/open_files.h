// SPDX-License-Identifier: Apache-2.0
// Files that are open for reading. Only pread is used on them: they have no position, so threads and forked processes can share them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <sys/uio.h>

#include "ndd/fork_mutex.h"

namespace ndd {

// Of what readers keep between their batches. One for all, so that a forked child can be sure of it.
ForkMutex& kept_files_mutex();

class OpenFile {
 public:
  // Error says why it cannot be opened.
  explicit OpenFile(const std::string& path);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int64_t size() const { return size_; }  // when it was opened
  // All of [begin, begin + length), or Error.
  void read(char* out, int64_t begin, int64_t length) const;
  // Up to `length` bytes: less at the end of the file only.
  int64_t read_some(char* out, int64_t begin, int64_t length) const;
  // What follows `begin`, into several places. False when one call of the system did not read it all.
  bool read_scattered(const std::vector<iovec>& places, int64_t begin) const;

 private:
  int descriptor_ = -1;
  int64_t size_ = 0;
};
using OpenFilePtr = std::shared_ptr<const OpenFile>;

// Keeps the last few of a reader's files open, by number: opening one costs as much as reading 20 kB.
class OpenFiles {
 public:
  OpenFiles();
  ~OpenFiles();
  OpenFilePtr get(int64_t number, const std::string& path);

 private:
  struct Kept;
  std::unique_ptr<Kept> kept_;
};

}  // namespace ndd
