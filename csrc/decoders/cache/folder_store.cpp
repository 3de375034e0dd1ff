// SPDX-License-Identifier: Apache-2.0
// Decoded images in a folder that the processes of a machine share: one file per image, named by the hash of the encoded file and the
// arguments. A file is written under another name and renamed when it is complete, so a process may be killed at any time.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <set>
#include <unordered_set>
#include <utility>

#include "decoders/cache/folder_account.h"
#include "decoders/cache/image_file.h"
#include "ndd/error.h"

namespace ndd {
namespace {

constexpr unsigned kNoReplace = 1;  // RENAME_NOREPLACE, which older C libraries lack

std::string hexadecimal(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

// The first two hexadecimal digits of the key name the subfolder, all 32 the file.
std::string folder_of(const ContentHash& key) { return hexadecimal(key.high).substr(0, 2); }
std::string path_of(const ContentHash& key) { return folder_of(key) + "/" + hexadecimal(key.high) + hexadecimal(key.low); }

// Opens the folder and checks its owner and mode. The pixels in it are used as results, and clear() deletes files: no other user may have
// created it or be able to write to it.
int open_folder(const std::string& folder) {
  // All later accesses are relative to this descriptor, so the folder cannot be exchanged after the check.
  const int root = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  struct stat info;
  if (root < 0 && lstat(folder.c_str(), &info) == 0 && S_ISLNK(info.st_mode)) fail("decoders.cache: ", folder, " is a symbolic link; remove it");
  if (root < 0) fail("decoders.cache: cannot open the folder ", folder, ": ", strerror(errno));
  const bool has_status = fstat(root, &info) == 0;
  if (has_status && info.st_uid == geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0) return root;
  close(root);
  if (has_status && info.st_uid != geteuid()) fail("decoders.cache: the folder ", folder, " belongs to another user; choose another folder");
  fail("decoders.cache: other users may write to the folder ", folder, "; delete it, or run: chmod go-w ", folder);
}

// The content of the file `secret`.
struct SecretFile {
  HashSecret secret;
  uint64_t check;
};

// The checksum of a damaged secret of only zeros or ones must not be valid: with such a secret, different files could have equal hashes.
uint64_t check_of(const HashSecret& secret) {
  uint64_t sum = 0x4e44445345435245;
  for (const uint64_t word : secret.words) sum = (sum ^ word) * 0x9e3779b97f4a7c15u + 1;
  return sum;
}

// Reads the folder's secret; the first process draws it. The complete file is linked to its name. link() fails if another process was faster, whose
// secret the next iteration reads.
HashSecret read_or_draw_secret(int root) {
  // More than one round only if another process creates, or damages, the file meanwhile.
  for (int tries = 0; tries < 3; ++tries) {
    const int file = openat(root, "secret", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file >= 0) {
      SecretFile stored;
      const bool whole = pread(file, &stored, sizeof stored, 0) == static_cast<ssize_t>(sizeof stored);
      close(file);
      if (whole && stored.check == check_of(stored.secret)) return stored.secret;
      unlinkat(root, "secret", 0);  // images stored under it are not found again; they are dropped as unused
    }
    SecretFile drawn{random_secret(), 0};
    drawn.check = check_of(drawn.secret);
    const std::string name = "secret-" + std::to_string(getpid());
    unlinkat(root, name.c_str(), 0);
    const int written = openat(root, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (written < 0) fail("decoders.cache: cannot write into the cache's folder: ", strerror(errno));
    const bool whole = write(written, &drawn, sizeof drawn) == static_cast<ssize_t>(sizeof drawn);
    // Kept because close() may change it.
    const int error = errno;
    close(written);
    if (whole) linkat(root, name.c_str(), root, "secret", 0);
    unlinkat(root, name.c_str(), 0);
    if (!whole) fail("decoders.cache: cannot write into the cache's folder: ", strerror(error));
  }
  fail("decoders.cache: cannot keep the file \"secret\" in the cache's folder");
}

class FolderStore : public ImageStore {
 public:
  FolderStore(const std::string& folder, int64_t bytes, Admission admission)
      : folder_(folder), limit_(bytes), admission_(admission), root_(open_folder(folder)), secret_(read_or_draw_secret(root_.number)),
        account_(root_.number, token_) {}

  bool copy(const ContentHash& key, const CachedPart& part, void* out) override {
    const std::string path = path_of(key);
    FileVersion version;
    const FileState state = read_image_file(root_.number, path, secret_, key, part, out, version);
    if (state == FileState::damaged) {
      std::lock_guard<std::mutex> lock(mutex_);
      change([&](FolderUse& use) {
        // Another thread may have found the same damage and already stored the image again: only the version that was read is removed.
        struct stat info;
        if (fstatat(root_.number, path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 || !(FileVersion(info) == version)) return;
        ++damaged_;
        remove(use, path);
      });
    }
    // Only while an epoch is observed, so a hit usually takes no lock.
    if (state == FileState::good && watching_) {
      std::lock_guard<std::mutex> lock(mutex_);
      used_.insert(key);
    }
    return state == FileState::good;
  }

  std::unique_ptr<Slot> admit(const ContentHash& key, const ImageShape& shape, int64_t item_bytes) override {
    if (stopped_) return nullptr;
    const int64_t bytes = file_bytes(shape, item_bytes);
    if (bytes > limit_) return nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    // Another thread decodes the same image and will store it.
    if (decoding_.count(key)) return nullptr;
    if (!reserve(key, bytes)) return nullptr;
    decoding_.insert(key);
    return std::make_unique<FolderSlot>(*this, key, shape, item_bytes, bytes);
  }

  void clear() override {
    std::lock_guard<std::mutex> lock(mutex_);
    // Waits longer than other changes: the user has called this function and expects an empty folder.
    const bool cleared = change(
        [&](FolderUse& use) {
          for_each_file(root_.number, [&](const std::string& folder, const std::string& name, int64_t) {
            if (!is_unfinished(name)) remove(use, folder + "/" + name);
          });
          // Files of other processes may have been added or removed meanwhile; counting leaves a correct record.
          account_.count(use);
        },
        FolderAccount::Patience::long_wait);
    by_size_.clear();
    refused_bytes_ = -1;
    if (!cleared) fail("decoders.cache: cannot clear the folder ", folder_, ": another process keeps it locked");
  }

  StoreCounts counts() override {
    const FolderUse use = account_.read();
    return {use.files, use.bytes, stored_, evicted_, damaged_};
  }

  HashSecret secret() const override { return secret_; }

  std::string trouble() override {
    std::lock_guard<std::mutex> lock(mutex_);
    return trouble_;
  }

  void before_fork() override { mutex_.lock(); }
  // The parent's reservations and debts stay with the parent; the child has a new token, because unfinished files are told apart by it.
  void after_fork(bool child) override {
    if (child) {
      decoding_.clear();
      owed_ = {0, 0, 0};
      token_ = random_secret().words[0];
      account_.reopen(token_);
    }
    mutex_.unlock();
  }

 private:
  struct Root {
    int number;
    explicit Root(int n) : number(n) {}
    ~Root() { close(number); }
  };

  // Decodes into memory of its own; commit() writes the file. Its reservation ends with it.
  class FolderSlot : public Slot {
   public:
    FolderSlot(FolderStore& store, const ContentHash& key, const ImageShape& shape, int64_t item_bytes, int64_t bytes)
        : store_(store), key_(key), shape_(shape), item_bytes_(item_bytes), bytes_(bytes),
          pixels_(new uint8_t[static_cast<size_t>(bytes_of(shape, item_bytes))]) {}
    ~FolderSlot() override { store_.end(key_, bytes_, stored_); }
    uint8_t* data() override { return pixels_.get(); }
    void commit() override { stored_ = store_.write(key_, shape_, item_bytes_, pixels_.get(), bytes_); }

   private:
    FolderStore& store_;
    const ContentHash key_;
    const ImageShape shape_;
    const int64_t item_bytes_, bytes_;
    const std::unique_ptr<uint8_t[]> pixels_;
    bool stored_ = false;
  };

  // Changes the account, and applies earlier changes for which the lock was not available.
  bool change(const std::function<void(FolderUse&)>& change, FolderAccount::Patience patience = FolderAccount::Patience::short_wait) {
    const bool changed = account_.change(
        [&](FolderUse& use) {
          use.bytes = std::max<int64_t>(0, use.bytes + owed_.bytes);
          use.reserved += owed_.reserved;
          change(use);
        },
        patience);
    if (changed) owed_ = {0, 0, 0};
    return changed;
  }

  // Removes a file and subtracts its size, unless another process was faster.
  bool remove(FolderUse& use, const std::string& path) {
    struct stat info;
    if (fstatat(root_.number, path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 || unlinkat(root_.number, path.c_str(), 0) != 0) return false;
    use.bytes = std::max<int64_t>(0, use.bytes - round_to_disk_blocks(info.st_size));
    use.files = std::max<int64_t>(0, use.files - 1);
    return true;
  }

  // Reserves room for a file before the image is decoded, so processes together never exceed the limit.
  bool reserve(const ContentHash& key, int64_t bytes) {
    const auto now = std::chrono::steady_clock::now();
    // While the folder is full, the account is read once per second only: another process may have made room.
    const bool known_full = refused_bytes_ >= 0 && bytes >= refused_bytes_ && now < refused_until_;
    bool taken = false;
    // Smaller images make room first, then the reservations of killed processes, for which the folder is counted.
    const auto take = [&](FolderUse& use) {
      if (admission_ == Admission::largest && use.bytes + bytes > limit_) remove_smaller(use, bytes);
      if (use.bytes + bytes > limit_ && account_.has_reservations_of_ended_processes()) account_.count(use);
      taken = use.bytes + bytes <= limit_;
      if (!taken) return;
      use.bytes += bytes;
      use.reserved += bytes;
    };
    if (!known_full || admission_ == Admission::largest) {
      if (!change(take)) return false;
      if (taken) return true;
      refused_bytes_ = bytes;
      refused_until_ = now + std::chrono::seconds(1);
    }
    // The cache is full. Images that a whole epoch did not use make room.
    const EpochWatch::Event event = watch_.note_refusal(key);
    if (event == EpochWatch::started) {
      used_.clear();
      watching_ = true;
    }
    if (event != EpochWatch::ended) return false;
    watching_ = false;
    drop_unused();
    return change(take) && taken;
  }

  // Removes the smallest images, as few as possible, and none if all that are smaller than the new one would not suffice. The sizes are
  // listed once: later files of other processes are not candidates.
  void remove_smaller(FolderUse& use, int64_t bytes) {
    if (!listed_) {
      for_each_file(root_.number, [&](const std::string& folder, const std::string& name, int64_t size) {
        if (!is_unfinished(name)) by_size_.emplace(size, folder + "/" + name);
      });
      listed_ = true;
    }
    const int64_t missing = use.bytes + bytes - limit_;
    // First find out whether enough can be removed, and only then remove it.
    int64_t smaller = 0;
    for (auto file = by_size_.begin(); file != by_size_.end() && file->first < bytes && smaller < missing; ++file) smaller += file->first;
    if (smaller < missing) return;
    while (use.bytes + bytes > limit_ && !by_size_.empty() && by_size_.begin()->first < bytes) {
      evicted_ += remove(use, by_size_.begin()->second);
      by_size_.erase(by_size_.begin());
    }
  }

  // Removes the images that were not used in the observed epoch, unless other processes, which may use them, share the folder.
  void drop_unused() {
    change([&](FolderUse& use) {
      if (!account_.is_only_user()) return;
      // Compared as paths, because files have no keys.
      std::unordered_set<std::string> paths;
      for (const ContentHash& key : used_) paths.insert(path_of(key));
      for_each_file(root_.number, [&](const std::string& folder, const std::string& name, int64_t) {
        const std::string path = folder + "/" + name;
        if (!is_unfinished(name) && !paths.count(path)) evicted_ += remove(use, path);
      });
    });
    used_.clear();
    refused_bytes_ = -1;
  }

  // Returns false if the file was not created by this call.
  bool write(const ContentHash& key, const ImageShape& shape, int64_t item_bytes, const uint8_t* pixels, int64_t reserved) {
    const std::string path = path_of(key);
    const std::string unfinished = folder_of(key) + "/" + unfinished_name(token_, ++files_);
    // Subfolders are created when they are needed: ENOENT means that this one does not exist yet.
    int error = write_image_file(root_.number, unfinished, secret_, key, shape, item_bytes, pixels);
    if (error == ENOENT && (mkdirat(root_.number, folder_of(key).c_str(), 0700) == 0 || errno == EEXIST)) {
      error = write_image_file(root_.number, unfinished, secret_, key, shape, item_bytes, pixels);
    }
    if (error == 0) {
      // Under the lock of the folder: a process that counts at this moment would count the file and the reservation for it.
      std::lock_guard<std::mutex> lock(mutex_);
      const bool changed = change([&](FolderUse& use) {
        error = rename_to_new(unfinished, path);
        if (error != 0) return;
        use.reserved -= reserved;
        ++use.files;
      });
      if (changed && error == 0) return true;
      // The lock was not available. The image is dropped as if another process had stored it.
      if (!changed) error = EEXIST;
    }
    unlinkat(root_.number, unfinished.c_str(), 0);
    // A process that is out of descriptors can store later images; a full or read-only disk ends the storing.
    if (error == EEXIST || error == EMFILE || error == ENFILE) return false;
    std::lock_guard<std::mutex> lock(mutex_);
    if (!stopped_.exchange(true)) trouble_ = "decoders.cache: no more images are stored in " + folder_ + ": " + strerror(error);
    return false;
  }

  // Renames a file to a name that must not exist. Returns 0 or the error number.
  int rename_to_new(const std::string& from, const std::string& to) const {
    if (syscall(SYS_renameat2, root_.number, from.c_str(), root_.number, to.c_str(), kNoReplace) == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS) return errno;
    if (linkat(root_.number, from.c_str(), root_.number, to.c_str(), 0) != 0) return errno;  // for file systems without RENAME_NOREPLACE
    unlinkat(root_.number, from.c_str(), 0);
    return 0;
  }

  // Ends the decoding of an admitted image, and returns its reservation if it was not stored.
  void end(const ContentHash& key, int64_t bytes, bool stored) {
    std::lock_guard<std::mutex> lock(mutex_);
    decoding_.erase(key);
    stored_ += stored;
    if (stored && listed_) by_size_.emplace(bytes, path_of(key));
    if (stored && watching_) used_.insert(key);
    if (stored) return;
    // Owed, because the lock may not be available now; change() applies it whenever it is.
    owed_.bytes -= bytes;
    owed_.reserved -= bytes;
    change([](FolderUse&) {});
  }

  const std::string folder_;
  const int64_t limit_;
  const Admission admission_;
  const Root root_;
  const HashSecret secret_;
  uint64_t token_ = random_secret().words[0];  // identifies this process: processes of different containers may have equal process ids
  FolderAccount account_;
  FolderUse owed_{0, 0, 0};  // changes that wait for the lock of the folder

  std::mutex mutex_;  // guards the following members and this process's use of the account
  std::unordered_set<ContentHash, HashOfContentHash> decoding_, used_;
  std::set<std::pair<int64_t, std::string>> by_size_;
  bool listed_ = false;  // by_size_ is valid
  EpochWatch watch_;
  int64_t refused_bytes_ = -1;  // size of the latest refused image; -1 if none
  std::chrono::steady_clock::time_point refused_until_;
  std::string trouble_;
  std::atomic<bool> stopped_{false}, watching_{false};
  std::atomic<int64_t> stored_{0}, evicted_{0}, damaged_{0}, files_{0};
};

}  // namespace

std::unique_ptr<ImageStore> make_folder_store(const std::string& folder, int64_t bytes, Admission admission) {
  return std::make_unique<FolderStore>(folder, bytes, admission);
}

}  // namespace ndd
