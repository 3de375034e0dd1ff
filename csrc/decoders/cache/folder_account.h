// SPDX-License-Identifier: Apache-2.0
// The accounting of a cache folder that several processes share. Each process records in its own slot how many bytes it has reserved for
// images that it is decoding. The lock on the slot ends with the process, so others can reclaim the reservations of a killed process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace ndd {

struct FolderUse {
  int64_t bytes, files;  // bytes of the files plus the reservations of all processes; number of files
  int64_t reserved;  // bytes reserved by this process
};

// Not thread-safe except for read(); FolderStore calls it under its own mutex.
class FolderAccount {
 public:
  // Opens the account of the folder `root`. `token` marks the unfinished files of this process. The first process removes the remains of
  // killed ones and counts the files.
  FolderAccount(int root, uint64_t token);
  ~FolderAccount();
  FolderAccount(const FolderAccount&) = delete;
  FolderAccount& operator=(const FolderAccount&) = delete;

  enum class Patience { short_wait, long_wait };
  // Runs `change` under the lock of the folder. Returns false without running it if another process does not release the lock in time.
  bool change(const std::function<void(FolderUse&)>& change, Patience patience = Patience::short_wait);
  FolderUse read() const;

  // Only to be called within a `change`.
  bool is_only_user() const;
  bool has_reservations_of_ended_processes() const;
  // Counts the files, drops the reservations of processes that have ended, and removes their unfinished files.
  void count(FolderUse& use);

  // Gives the child of a fork its own locks, because it shares the open files with its parent. It takes a slot at its next change.
  void reopen(uint64_t token);

 private:
  bool try_lock(int tries) const;
  bool take_slot();
  bool is_taken(int64_t slot) const;

  // Descriptors of the folder and of the files `use` and `users`; this process's number in `users`, -1 before its first change.
  int root_, record_ = -1, users_ = -1;
  uint64_t token_;
  int64_t slot_ = -1, reserved_ = 0;
  bool must_count_ = false;  // the slot was taken over from a killed process
};

// Calls `visit(subfolder, name, bytes)` for every image file and unfinished file. Other names, folders and links are ignored: the cache never deletes
// what it has not written.
void for_each_file(int root, const std::function<void(const std::string&, const std::string&, int64_t)>& visit);

// Returns the name of an unfinished file within its subfolder.
std::string unfinished_name(uint64_t token, int64_t number);
bool is_unfinished(const std::string& name);

}  // namespace ndd
