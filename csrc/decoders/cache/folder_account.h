// SPDX-License-Identifier: Apache-2.0
// The bytes of a cache's folder, which several processes share: a record in a file under a lock that ends with its process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace ndd {

struct FolderUse {
  int64_t bytes, files;
};

class FolderAccount {
 public:
  // Opens the account of a folder, `root`. The only process that uses it removes what killed ones have left, and counts anew.
  explicit FolderAccount(int root);
  ~FolderAccount();
  FolderAccount(const FolderAccount&) = delete;
  FolderAccount& operator=(const FolderAccount&) = delete;

  // Runs `change` on the use while no other process does. False, and nothing done, when another one does not let go of it.
  bool change(const std::function<void(FolderUse&)>& change);
  FolderUse look() const;

  // Runs `work` if no other process uses the folder, and no other does until it is over; else returns false.
  bool alone(const std::function<void()>& work);

  // The child of a fork needs a lock of its own.
  void reopen();

 private:
  int root_, record_ = -1, users_ = -1;
};

// Calls `visit(subfolder, name, bytes)` for every file, of images and unfinished ones.
void for_files(int root, const std::function<void(const std::string&, const std::string&, int64_t)>& visit);

inline constexpr char kUnfinished[] = ".new-";

}  // namespace ndd
