// SPDX-License-Identifier: Apache-2.0
// The bytes of a cache's folder, which several processes share. Each of them notes in a slot of its own what it has reserved for images that it
// decodes; the lock of the slot ends with the process, so that the others can take back what a killed one had reserved.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace ndd {

struct FolderUse {
  int64_t bytes, files;  // bytes: of the files, and what all processes have reserved
  int64_t reserved;      // by this process
};

class FolderAccount {
 public:
  // Opens the account of a folder, `root`. `token`: of the unfinished files of this process. The first process removes what killed ones have left, and
  // counts.
  FolderAccount(int root, uint64_t token);
  ~FolderAccount();
  FolderAccount(const FolderAccount&) = delete;
  FolderAccount& operator=(const FolderAccount&) = delete;

  enum class Patience { short_wait, long_wait };
  // Runs `change` on the use while no other process does. False, and nothing done, when another one does not let go of it.
  bool change(const std::function<void(FolderUse&)>& change, Patience patience = Patience::short_wait);
  FolderUse look() const;

  // What follows is for a `change` that runs.
  bool only_user() const;
  bool has_reservations_of_ended_processes() const;
  // Counts the files, drops the reservations of processes that have ended, and removes their unfinished files.
  void count(FolderUse& use);

  // The child of a fork needs locks and a slot of its own. It takes the slot at its next change.
  void reopen(uint64_t token);

 private:
  bool locked(int tries) const;
  bool take_slot();
  bool is_taken(int64_t slot) const;

  int root_, record_ = -1, users_ = -1;
  uint64_t token_;
  int64_t slot_ = -1, reserved_ = 0;
  bool must_count_ = false;  // the slot was that of a killed process
};

// Calls `visit(subfolder, name, bytes)` for every file, of images and unfinished ones. Other names, and links, are not ours.
void for_files(int root, const std::function<void(const std::string&, const std::string&, int64_t)>& visit);

// The name of an unfinished file in its subfolder.
std::string unfinished_name(uint64_t token, int64_t number);
bool is_unfinished(const std::string& name);

}  // namespace ndd
