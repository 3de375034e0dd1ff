// SPDX-License-Identifier: Apache-2.0
#include "decoders/cache/folder_account.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "decoders/cache/image_file.h"
#include "ndd/error.h"

namespace ndd {
namespace {

struct Record {
  char magic[8];
  int64_t bytes, files;
  uint64_t check;
};

constexpr char kMagic[8] = {'N', 'D', 'D', 'U', 'S', 'E', '1', '\n'};
constexpr uint64_t kMix = 0x9e3779b97f4a7c15u;

uint64_t check_of(const Record& record) {
  return ((static_cast<uint64_t>(record.bytes) ^ kMix) * kMix + static_cast<uint64_t>(record.files)) * kMix ^ 0x4e444455u;
}

bool read_record(int file, FolderUse& use) {
  Record record;
  if (pread(file, &record, sizeof record, 0) != static_cast<ssize_t>(sizeof record)) return false;
  if (std::memcmp(record.magic, kMagic, sizeof kMagic) != 0 || record.check != check_of(record) || record.bytes < 0 || record.files < 0) return false;
  use = {record.bytes, record.files};
  return true;
}

bool write_record(int file, const FolderUse& use) {
  Record record{{}, use.bytes, use.files, 0};
  std::memcpy(record.magic, kMagic, sizeof kMagic);
  record.check = check_of(record);
  return pwrite(file, &record, sizeof record, 0) == static_cast<ssize_t>(sizeof record);
}

int opened(int root, const char* name) {
  const int file = openat(root, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) fail("decoders.cache: cannot open ", name, " in the cache's folder: ", strerror(errno));
  return file;
}

void pause(int64_t microseconds) {
  const timespec time{0, static_cast<long>(microseconds * 1000)};
  nanosleep(&time, nullptr);
}

// A process that was stopped must not stop the others: they go on without storing.
bool locked(int file, int tries) {
  for (int i = 0; i < tries; ++i) {
    if (flock(file, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) return false;
    pause(i < 20 ? 100 : 1000);
  }
  return false;
}

FolderUse counted(int root) {
  FolderUse use{0, 0};
  for_files(root, [&](const std::string&, const std::string& name, int64_t bytes) {
    use.bytes += bytes;
    use.files += name.compare(0, sizeof kUnfinished - 1, kUnfinished) != 0;
  });
  return use;
}

}  // namespace

void for_files(int root, const std::function<void(const std::string&, const std::string&, int64_t)>& visit) {
  for (int i = 0; i < 256; ++i) {
    static constexpr char kDigits[] = "0123456789abcdef";
    const std::string folder{kDigits[i >> 4], kDigits[i & 15]};
    const int number = openat(root, folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR* entries = number < 0 ? nullptr : fdopendir(number);
    if (entries == nullptr) {
      if (number >= 0) close(number);
      continue;
    }
    while (const dirent* entry = readdir(entries)) {
      const std::string name = entry->d_name;
      struct stat info;
      if (name == "." || name == ".." || fstatat(number, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
      visit(folder, name, in_disk_blocks(info.st_size));
    }
    closedir(entries);
  }
}

FolderAccount::FolderAccount(int root) : root_(root) {
  record_ = opened(root, "use");
  try {
    users_ = opened(root, "users");
  } catch (...) {
    close(record_);
    throw;
  }
  const bool only = alone([&] {
    for_files(root_, [&](const std::string& folder, const std::string& name, int64_t) {
      if (name.compare(0, sizeof kUnfinished - 1, kUnfinished) == 0) unlinkat(root_, (folder + "/" + name).c_str(), 0);
    });
    write_record(record_, counted(root_));
  });
  if (!only) flock(users_, LOCK_SH);  // waits for another process that counts
}

FolderAccount::~FolderAccount() {
  close(users_);
  close(record_);
}

bool FolderAccount::change(const std::function<void(FolderUse&)>& change) {
  if (!locked(record_, 200)) return false;
  FolderUse use;
  if (!read_record(record_, use)) use = counted(root_);
  change(use);
  const bool written = write_record(record_, use);
  flock(record_, LOCK_UN);
  return written;
}

FolderUse FolderAccount::look() const {
  FolderUse use;
  return read_record(record_, use) ? use : FolderUse{0, 0};
}

bool FolderAccount::alone(const std::function<void()>& work) {
  const bool is = flock(users_, LOCK_EX | LOCK_NB) == 0;
  if (is) work();
  flock(users_, LOCK_SH);
  return is;
}

void FolderAccount::reopen() {
  const int file = openat(root_, "use", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return;
  dup2(file, record_);
  close(file);
}

}  // namespace ndd
