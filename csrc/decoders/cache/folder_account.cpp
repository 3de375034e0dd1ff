// SPDX-License-Identifier: Apache-2.0
// Two files in the folder: `use` has one record, the bytes and files of the folder; `users` has a slot for each process, with what it has reserved.
// Both change only under the lock of the folder. A lock on a slot says that its process is alive.
#include "decoders/cache/folder_account.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <set>
#include <vector>

#include "decoders/cache/image_file.h"
#include "ndd/error.h"

namespace ndd {
namespace {

// The file `use`: how many bytes and files the folder holds. `check` detects a record that was damaged or written in part.
struct Record {
  char magic[8];
  int64_t bytes, files;
  uint64_t check;
};

constexpr char kMagic[8] = {'N', 'D', 'D', 'U', 'S', 'E', '1', '\n'};
constexpr char kUnfinished[] = ".new-";
constexpr size_t kNameLength = 32;  // of an image file: its hash in hexadecimal digits
// About 0.2 s and 3 s, see try_lock().
constexpr int kShortTries = 200, kLongTries = 3000;
// Processes that can store at the same time; further ones only read.
constexpr int64_t kMaxSlots = 4096;

// An element of the file `users`, written by the process that holds the lock on its bytes.
struct UserSlot {
  int64_t reserved;
  uint64_t token;
};

constexpr uint64_t kMix = 0x9e3779b97f4a7c15u;  // the golden ratio, as in Fibonacci hashing

uint64_t check_of(const Record& record) {
  return ((static_cast<uint64_t>(record.bytes) ^ kMix) * kMix + static_cast<uint64_t>(record.files)) * kMix ^ 0x4e444455u;
}

bool read_record(int file, FolderUse& use) {
  Record record;
  if (pread(file, &record, sizeof record, 0) != static_cast<ssize_t>(sizeof record)) return false;
  if (std::memcmp(record.magic, kMagic, sizeof kMagic) != 0 || record.check != check_of(record) || record.bytes < 0 || record.files < 0) return false;
  use.bytes = record.bytes;
  use.files = record.files;
  return true;
}

bool write_record(int file, const FolderUse& use) {
  Record record{{}, use.bytes, use.files, 0};
  std::memcpy(record.magic, kMagic, sizeof kMagic);
  record.check = check_of(record);
  return pwrite(file, &record, sizeof record, 0) == static_cast<ssize_t>(sizeof record);
}

// O_NOFOLLOW everywhere: a link in the folder must not lead to a file outside of it.
int try_open(int root, const char* name) { return openat(root, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600); }

int open_or_fail(int root, const char* name) {
  const int file = try_open(root, name);
  if (file < 0) fail("decoders.cache: cannot open ", name, " in the cache's folder: ", strerror(errno));
  return file;
}

void pause(int64_t microseconds) {
  const timespec time{0, static_cast<long>(microseconds * 1000)};
  nanosleep(&time, nullptr);
}

// Open file description locks (F_OFD_*): plain POSIX locks belong to the process, so two caches of one process would share them, and closing any
// descriptor of the file would release them.
struct flock slot_lock(int64_t slot, short type) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = slot * static_cast<int64_t>(sizeof(UserSlot));
  lock.l_len = sizeof(UserSlot);
  return lock;
}

// Called under the lock of the folder, which is held for every change of a slot, too.
std::vector<UserSlot> read_slots(int file) {
  struct stat info;
  if (fstat(file, &info) != 0) return {};
  const int64_t count = std::min<int64_t>(info.st_size / static_cast<int64_t>(sizeof(UserSlot)), kMaxSlots);
  std::vector<UserSlot> slots(static_cast<size_t>(count));
  const ssize_t got = pread(file, slots.data(), slots.size() * sizeof(UserSlot), 0);
  slots.resize(got > 0 ? static_cast<size_t>(got) / sizeof(UserSlot) : 0);
  return slots;
}

bool write_slot(int file, int64_t slot, const UserSlot& content) {
  return pwrite(file, &content, sizeof content, slot * static_cast<int64_t>(sizeof content)) == static_cast<ssize_t>(sizeof content);
}

bool is_image_name(const std::string& name) { return name.size() == kNameLength && name.find_first_not_of("0123456789abcdef") == std::string::npos; }

// Returns the token in the name of an unfinished file, 0 if there is none.
uint64_t token_of(const std::string& name) { return std::strtoull(name.c_str() + sizeof kUnfinished - 1, nullptr, 16); }

}  // namespace

std::string unfinished_name(uint64_t token, int64_t number) {
  char text[64];
  std::snprintf(text, sizeof text, "%s%016" PRIx64 "-%" PRId64, kUnfinished, token, number);
  return text;
}

bool is_unfinished(const std::string& name) { return name.compare(0, sizeof kUnfinished - 1, kUnfinished) == 0; }

// Subfolders are named by the first two digits of the hash, so no folder has millions of entries.
void for_each_file(int root, const std::function<void(const std::string&, const std::string&, int64_t)>& visit) {
  for (int i = 0; i < 256; ++i) {
    static constexpr char kDigits[] = "0123456789abcdef";
    const std::string folder{kDigits[i >> 4], kDigits[i & 15]};
    const int number = openat(root, folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    // fdopendir() takes over the descriptor only if it succeeds.
    DIR* entries = number < 0 ? nullptr : fdopendir(number);
    if (entries == nullptr) {
      if (number >= 0) close(number);
      continue;
    }
    while (const dirent* entry = readdir(entries)) {
      const std::string name = entry->d_name;
      struct stat info;
      // By name first, because a stat of every other file would take time.
      if (!is_image_name(name) && !is_unfinished(name)) continue;
      if (fstatat(number, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(info.st_mode)) continue;
      visit(folder, name, round_to_disk_blocks(info.st_size));
    }
    closedir(entries);
  }
}

FolderAccount::FolderAccount(int root, uint64_t token) : root_(root), token_(token) {
  record_ = open_or_fail(root, "use");
  try {
    users_ = open_or_fail(root, "users");
    // If another process holds the lock because it counts a large folder, this one continues without storing until it has a slot.
    // The first user counts, because processes that ended may have left files without changing the record.
    change([&](FolderUse& use) {
      if (is_only_user() || has_reservations_of_ended_processes()) count(use);
    });
  } catch (...) {
    if (users_ >= 0) close(users_);
    close(record_);
    throw;
  }
}

FolderAccount::~FolderAccount() {
  if (users_ >= 0) close(users_);
  if (record_ >= 0) close(record_);
}

// Polls, because flock() has no timeout: a stopped process (SIGSTOP) may hold the lock indefinitely, and the others then continue without storing.
bool FolderAccount::try_lock(int tries) const {
  for (int i = 0; i < tries; ++i) {
    if (flock(record_, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) return false;
    pause(i < 20 ? 100 : 1000);  // a change takes microseconds, counting a folder longer
  }
  return false;
}

// F_OFD_GETLK describes a lock in the way, of another open file description, or sets the type to F_UNLCK. An error counts as taken, so no
// reservation of a running process is dropped.
bool FolderAccount::is_taken(int64_t slot) const {
  struct flock lock = slot_lock(slot, F_WRLCK);
  return fcntl(users_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

bool FolderAccount::take_slot() {
  for (int64_t slot = 0; slot < kMaxSlots; ++slot) {
    const struct flock lock = slot_lock(slot, F_WRLCK);
    // Held by a running process; the kernel drops the lock when that one ends.
    if (fcntl(users_, F_OFD_SETLK, &lock) != 0) continue;
    // The previous owner of the slot may have been killed with a reservation: its bytes are still in the total, and the record of them is overwritten
    // here, so the folder has to be counted.
    UserSlot before{0, 0};
    const bool has_reservation =
        pread(users_, &before, sizeof before, slot * static_cast<int64_t>(sizeof before)) == sizeof before && before.reserved != 0;
    slot_ = slot;
    reserved_ = 0;
    if (!write_slot(users_, slot_, {0, token_})) return false;
    must_count_ = has_reservation;
    return true;
  }
  return false;
}

// Read, change and write under flock() on the record. The lock is per open file, so another cache of this process is excluded, too.
bool FolderAccount::change(const std::function<void(FolderUse&)>& change, Patience patience) {
  if (record_ < 0 || users_ < 0 || !try_lock(patience == Patience::long_wait ? kLongTries : kShortTries)) return false;
  bool written = false;
  if (slot_ >= 0 || take_slot()) {
    FolderUse use{0, 0, reserved_};
    // A damaged record is not trusted either: the files themselves are counted.
    if (!read_record(record_, use) || must_count_) count(use);
    must_count_ = false;
    change(use);
    reserved_ = use.reserved;
    written = write_slot(users_, slot_, {reserved_, token_}) && write_record(record_, use);
  }
  flock(record_, LOCK_UN);
  return written;
}

// Without the lock: a torn record fails its check and reads as empty, which suffices for statistics.
FolderUse FolderAccount::read() const {
  FolderUse use{0, 0, 0};
  return read_record(record_, use) ? use : FolderUse{0, 0, 0};
}

bool FolderAccount::is_only_user() const {
  for (int64_t slot = 0, count = static_cast<int64_t>(read_slots(users_).size()); slot < count; ++slot) {
    if (slot != slot_ && is_taken(slot)) return false;
  }
  return true;
}

bool FolderAccount::has_reservations_of_ended_processes() const {
  const auto slots = read_slots(users_);
  for (size_t k = 0; k < slots.size(); ++k) {
    const auto slot = static_cast<int64_t>(k);
    if (slot != slot_ && slots[k].reserved != 0 && !is_taken(slot)) return true;
  }
  return false;
}

void FolderAccount::count(FolderUse& use) {
  use.bytes = use.reserved;
  use.files = 0;
  // Unfinished files of running processes are counted through their reservations and must stay; the others are remains of killed processes.
  std::set<uint64_t> tokens{token_};
  const auto slots = read_slots(users_);
  for (size_t k = 0; k < slots.size(); ++k) {
    const auto slot = static_cast<int64_t>(k);
    if (slot == slot_) continue;
    if (is_taken(slot)) {
      use.bytes += std::max<int64_t>(0, slots[k].reserved);
      tokens.insert(slots[k].token);
    } else if (slots[k].reserved != 0) {
      write_slot(users_, slot, {0, 0});
    }
  }
  for_each_file(root_, [&](const std::string& folder, const std::string& name, int64_t bytes) {
    if (!is_unfinished(name)) {
      use.bytes += bytes;
      ++use.files;
    } else if (!tokens.count(token_of(name))) {
      unlinkat(root_, (folder + "/" + name).c_str(), 0);
    }
  });
}

// Descriptors inherited over a fork share their locks with the parent; new ones do not.
void FolderAccount::reopen(uint64_t token) {
  token_ = token;
  slot_ = -1;
  reserved_ = 0;
  close(record_);
  close(users_);
  record_ = try_open(root_, "use");
  users_ = try_open(root_, "users");
}

}  // namespace ndd
