// SPDX-License-Identifier: Apache-2.0
// The file of one decoded image in a cache's folder: a header, a checksum for each block of pixels, the pixels. Nothing in it is trusted, and it is
// never mapped, because a mapped file that shrinks ends the process.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "decoders/cache/image_store.h"

namespace ndd {

enum class FileState { absent, damaged, other, good };

// Tells a file from the one that has taken its name, and from itself before a change.
struct FileVersion {
  uint64_t inode = 0;
  int64_t seconds = 0, nanoseconds = 0;
  FileVersion() = default;
  explicit FileVersion(const struct stat& info) : inode(info.st_ino), seconds(info.st_ctim.tv_sec), nanoseconds(info.st_ctim.tv_nsec) {}
  bool operator==(const FileVersion& other) const { return inode == other.inode && seconds == other.seconds && nanoseconds == other.nanoseconds; }
};

// Bytes of the file of an image, in whole blocks of the disk.
int64_t file_bytes(const ImageShape& shape, int64_t item_bytes);
int64_t in_disk_blocks(int64_t bytes);

// Copies a part of the image in the file `name` of an open folder. `other` is a sound file of an image that does not have this part. `version` is
// of the file that was read.
FileState read_image_file(int folder, const std::string& name, const HashSecret& secret, const ContentHash& key, const CachedPart& part, void* out,
                          FileVersion& version);

// Writes the file; 0, or the number of the system's error. What is there then is a part of it.
int write_image_file(int folder, const std::string& name, const HashSecret& secret, const ContentHash& key, const ImageShape& shape,
                     int64_t item_bytes, const uint8_t* pixels);

}  // namespace ndd
