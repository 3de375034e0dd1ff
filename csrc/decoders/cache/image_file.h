// SPDX-License-Identifier: Apache-2.0
// The file of one decoded image in a cache folder: a header, a checksum for each block of pixels, the pixels. Nothing in it is trusted. It
// is read and not mapped, because access to a mapped file that shrinks ends the process (SIGBUS).
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "decoders/cache/image_store.h"

namespace ndd {

// `absent`: no such file, or it cannot be opened. `damaged`: it must be removed.
enum class FileState { absent, damaged, other, good };

// Identifies a version of a file: another file under the same name, or the same file after a change, is another version.
struct FileVersion {
  uint64_t inode = 0;
  int64_t seconds = 0, nanoseconds = 0;
  FileVersion() = default;
  explicit FileVersion(const struct stat& info) : inode(info.st_ino), seconds(info.st_ctim.tv_sec), nanoseconds(info.st_ctim.tv_nsec) {}
  bool operator==(const FileVersion& other) const { return inode == other.inode && seconds == other.seconds && nanoseconds == other.nanoseconds; }
};

// Bytes that the file of an image takes on disk, in whole blocks.
int64_t file_bytes(const ImageShape& shape, int64_t item_bytes);
int64_t round_to_disk_blocks(int64_t bytes);

// Copies a part of the image in the file `name` of an open folder. `other`: the file is intact, but its image does not have this part.
// `version` is set to that of the file that was read.
FileState read_image_file(int folder, const std::string& name, const HashSecret& secret, const ContentHash& key, const CachedPart& part, void* out,
                          FileVersion& version);

// Writes the file. Returns 0, or errno, after which the file may be incomplete.
int write_image_file(int folder, const std::string& name, const HashSecret& secret, const ContentHash& key, const ImageShape& shape,
                     int64_t item_bytes, const uint8_t* pixels);

}  // namespace ndd
