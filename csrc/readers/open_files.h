// SPDX-License-Identifier: Apache-2.0
// Files that are open for reading. They are only accessed with pread, which has no position, so threads and forked processes can share them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <sys/uio.h>

#include "ndd/fork_mutex.h"

namespace ndd {

// Guards what readers keep between batches. One mutex for all readers, because it has to be usable in a forked child.
ForkMutex& kept_files_mutex();

class OpenFile {
 public:
  // Throws Error with the reason if it is not a regular file or cannot be opened.
  explicit OpenFile(const std::string& path);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  // Whether a file may stay open until it is needed again: readers keep at most half of the files that the process may open, whatever the number of
  // shards, sources and batches in preparation. A file that was closed is opened again.
  static bool may_stay_open();

  int64_t size() const { return size_; }  // at the time of opening
  // Reads all of [begin, begin + length). Throws Error if the file ends earlier.
  void read(char* out, int64_t begin, int64_t length) const;
  // Reads up to `length` bytes, fewer only at the end of the file. Returns their number.
  int64_t read_some(char* out, int64_t begin, int64_t length) const;
  // Reads from `begin` on into several places. Returns false if one system call did not read everything.
  bool read_scattered(const std::vector<iovec>& places, int64_t begin) const;

 private:
  void close_descriptor() const;

  int descriptor_ = -1;
  int64_t size_ = 0;
};
using OpenFilePtr = std::shared_ptr<const OpenFile>;

// Keeps the most recently used files of a reader open, by number: opening a file costs as much as reading 20 kB.
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
