// SPDX-License-Identifier: Apache-2.0
// Two limits: the files of a reader and those of all readers together. Beyond either, the file that was not used for the longest time is closed.
#include "readers/open_files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "ndd/error.h"

namespace ndd {
namespace {

// Per reader.
constexpr size_t kMaxOpenFiles = 32;
// In all readers. The usual limit of a process is 1024 open files.
constexpr rlim_t kMaxKeptFiles = 4096;

std::atomic<int64_t> open_files{0};

[[noreturn]] void system_failure(int code) { fail(std::generic_category().message(code)); }

}  // namespace

ForkMutex& kept_files_mutex() {
  static auto* const mutex = new ForkMutex;
  return *mutex;
}

OpenFile::OpenFile(const std::string& path) {
  // With O_NONBLOCK, opening a pipe does not wait for its writer; for files it makes no difference.
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) system_failure(errno);
  open_files.fetch_add(1, std::memory_order_relaxed);
  struct stat status;
  // Only regular files have a size and positions to read from.
  int code = fstat(descriptor_, &status) == 0 ? 0 : errno;
  if (code == 0 && S_ISDIR(status.st_mode)) code = EISDIR;
  if (code == 0 && S_ISREG(status.st_mode)) {
    size_ = status.st_size;
    return;
  }
  close_descriptor();
  if (code != 0) system_failure(code);
  fail("not a regular file");
}

OpenFile::~OpenFile() { close_descriptor(); }

void OpenFile::close_descriptor() const {
  close(descriptor_);
  open_files.fetch_sub(1, std::memory_order_relaxed);
}

bool OpenFile::may_stay_open() {
  rlimit limit;
  const rlim_t most = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? std::min(limit.rlim_cur / 2, kMaxKeptFiles) : 0;
  return open_files.load(std::memory_order_relaxed) < static_cast<int64_t>(most);
}

int64_t OpenFile::read_some(char* out, int64_t begin, int64_t length) const {
  int64_t done = 0;
  while (done < length) {
    const ssize_t got = pread(descriptor_, out + done, static_cast<size_t>(length - done), begin + done);
    if (got == 0) break;
    if (got < 0 && errno != EINTR) system_failure(errno);
    if (got > 0) done += got;
  }
  return done;
}

void OpenFile::read(char* out, int64_t begin, int64_t length) const {
  if (read_some(out, begin, length) < length) fail("the file became shorter while it was read");
}

// One preadv(); it may read less for reasons that only a single read explains.
bool OpenFile::read_scattered(const std::vector<iovec>& places, int64_t begin) const {
  int64_t length = 0;
  for (const iovec& place : places) length += static_cast<int64_t>(place.iov_len);
  return preadv(descriptor_, places.data(), static_cast<int>(places.size()), begin) == length;
}

struct OpenFiles::Kept {
  std::vector<std::pair<int64_t, OpenFilePtr>> files;  // most recently used last
};

OpenFiles::OpenFiles() : kept_(new Kept) {}
OpenFiles::~OpenFiles() = default;

OpenFilePtr OpenFiles::get(int64_t number, const std::string& path) {
  auto& files = kept_->files;
  const auto found = [&] { return std::find_if(files.begin(), files.end(), [=](const auto& file) { return file.first == number; }); };
  {
    std::lock_guard<ForkMutex> lock(kept_files_mutex());
    const auto at = found();
    // Moves it to the end: the front is the least recently used one.
    if (at != files.end()) {
      std::rotate(at, at + 1, files.end());
      return files.back().second;
    }
  }
  // Opened outside the lock, because a network file system may take long. Another thread may have opened the same file meanwhile: both
  // copies are valid.
  auto opened = std::make_shared<const OpenFile>(path);
  OpenFilePtr surplus;  // closed after the lock is released
  std::lock_guard<ForkMutex> lock(kept_files_mutex());
  if (found() == files.end()) {
    files.emplace_back(number, opened);
    if (files.size() > kMaxOpenFiles || !OpenFile::may_stay_open()) {
      surplus = files.front().second;
      files.erase(files.begin());
    }
  }
  return opened;
}

}  // namespace ndd
