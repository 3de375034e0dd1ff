// SPDX-License-Identifier: Apache-2.0
// A window reads only the blocks of pixels that its rows touch, so a small crop of a large image neither reads nor checks all of it.
#include "decoders/cache/image_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace ndd {
namespace {

constexpr int64_t kBlock = 64 << 10;  // bytes of pixels per checksum: still in the second-level cache when they are copied after the check
constexpr int64_t kDiskBlock = 4096;
constexpr int64_t kMaxExtent = int64_t{1} << 31;
constexpr char kMagic[8] = {'N', 'D', 'D', 'I', 'M', 'G', '1', '\n'};

// Followed by one checksum of 8 bytes for each block of pixels, then the pixels.
struct Header {
  char magic[8];
  uint64_t key_low, key_high;
  int64_t height, width, channels, item_bytes;
  uint64_t checksum;  // of the header with zero here, and of the checksums of the blocks
};

// Closes a file at the end of the scope.
struct Descriptor {
  int number;
  explicit Descriptor(int n) : number(n) {}
  ~Descriptor() {
    if (number >= 0) close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

// Blocks of pixels with a checksum; bytes in front of the pixels.
int64_t blocks_of(int64_t bytes) { return (bytes + kBlock - 1) / kBlock; }
int64_t head_bytes(int64_t pixel_bytes) { return static_cast<int64_t>(sizeof(Header)) + 8 * blocks_of(pixel_bytes); }

// read() and write() may process less than requested, or be interrupted by a signal.
bool read_all(int file, void* to, int64_t bytes, int64_t from) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = pread(file, at, static_cast<size_t>(bytes), from);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    from += got;
    bytes -= got;
  }
  return true;
}

int write_all(int file, const void* data, int64_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = write(file, at, static_cast<size_t>(bytes));
    if (put < 0 && errno == EINTR) continue;
    // A write of 0 bytes sets no errno; it means that there is no room.
    if (put <= 0) return put < 0 ? errno : ENOSPC;
    at += put;
    bytes -= put;
  }
  return 0;
}

// The key and the number of the block are part of its checksum, so a block moved from another place or file is rejected too.
uint64_t block_checksum(const HashSecret& secret, const ContentHash& key, int64_t block, const void* data, int64_t bytes) {
  HashSecret own = secret;
  own.words[4] ^= key.low;
  own.words[5] ^= key.high;
  own.words[6] += static_cast<uint64_t>(block) * 0x9e3779b97f4a7c15u;
  return content_hash(own, data, static_cast<size_t>(bytes)).low;
}

// Hashes `head` as if its field `checksum` were zero; `head` is unchanged afterwards.
uint64_t head_checksum(const HashSecret& secret, std::vector<char>& head) {
  Header header;
  std::memcpy(&header, head.data(), sizeof header);
  const uint64_t stored = header.checksum;
  header.checksum = 0;
  std::memcpy(head.data(), &header, sizeof header);
  const uint64_t sum = content_hash(secret, head.data(), head.size()).high;
  header.checksum = stored;
  std::memcpy(head.data(), &header, sizeof header);
  return sum;
}

// Returns the number of bytes of the pixels, or -1 if the extents are not plausible or overflow.
int64_t count_pixel_bytes(const Header& header) {
  const int64_t extents[] = {header.height, header.width, header.channels, header.item_bytes};
  int64_t bytes = 1;
  for (const int64_t extent : extents) {
    if (extent < 1 || extent > kMaxExtent || __builtin_mul_overflow(bytes, extent, &bytes)) return -1;
  }
  return bytes;
}

// Copies those bytes of a window that lie in one block, [begin, end) of the image. Rows may cross the borders of blocks.
void copy_from_block(const uint8_t* block, int64_t begin, int64_t end, const ImageShape& whole, const CachedPart& part, uint8_t* out) {
  const int64_t pixel = whole.channels * part.item_bytes, row = whole.width * pixel, wanted = part.window->width * pixel;
  // The rows that intersect both the block and the window.
  const int64_t first = std::max<int64_t>(begin / row, part.window->y);
  const int64_t last = std::min((end - 1) / row, part.window->y + part.window->height - 1);
  for (int64_t y = first; y <= last; ++y) {
    const int64_t start = y * row + part.window->x * pixel;
    const int64_t from = std::max(start, begin), to = std::min(start + wanted, end);
    if (from < to) std::memcpy(out + (y - part.window->y) * wanted + (from - start), block + (from - begin), static_cast<size_t>(to - from));
  }
}

}  // namespace

int64_t round_to_disk_blocks(int64_t bytes) { return (bytes + kDiskBlock - 1) / kDiskBlock * kDiskBlock; }

int64_t file_bytes(const ImageShape& shape, int64_t item_bytes) {
  const int64_t pixels = bytes_of(shape, item_bytes);
  return round_to_disk_blocks(head_bytes(pixels) + pixels);
}

FileState read_image_file(int folder, const std::string& name, const HashSecret& secret, const ContentHash& key, const CachedPart& part, void* out,
                          FileVersion& version) {
  const Descriptor file(openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  // O_NOFOLLOW, O_NONBLOCK: a link or a pipe in place of the file must neither be followed nor block.
  // A link counts as damage and is removed; its own status, not its target's, identifies the version.
  const bool link = file.number < 0 && errno == ELOOP;
  if (file.number < 0 && !link) return FileState::absent;
  struct stat info;
  if ((link ? fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) : fstat(file.number, &info)) != 0) return FileState::absent;
  version = FileVersion(info);
  if (!S_ISREG(info.st_mode)) return FileState::damaged;
  // 1024 bytes: one read for the header and the checksums of most images.
  thread_local std::vector<char> head;
  head.resize(static_cast<size_t>(std::min<int64_t>(info.st_size, 1024)));
  if (head.size() < sizeof(Header) || !read_all(file.number, head.data(), static_cast<int64_t>(head.size()), 0)) return FileState::damaged;
  Header header;
  std::memcpy(&header, head.data(), sizeof header);
  // The size of the file must be exactly that of header, checksums and pixels: this bounds all offsets below.
  const int64_t pixels = count_pixel_bytes(header);
  const bool sane = !std::memcmp(header.magic, kMagic, sizeof kMagic) && header.key_low == key.low && header.key_high == key.high && pixels > 0 &&
                    pixels < info.st_size && head_bytes(pixels) == info.st_size - pixels;
  if (!sane) return FileState::damaged;
  const auto available = static_cast<int64_t>(head.size());
  head.resize(static_cast<size_t>(head_bytes(pixels)));
  if (head_bytes(pixels) > available && !read_all(file.number, head.data() + available, head_bytes(pixels) - available, available))
    return FileState::damaged;
  if (head_checksum(secret, head) != header.checksum) return FileState::damaged;
  const ImageShape whole{header.height, header.width, header.channels};
  if (header.item_bytes != part.item_bytes || !part.fits(whole)) return FileState::other;

  const int64_t row = whole.width * whole.channels * header.item_bytes;
  const int64_t begin = part.window ? part.window->y * row : 0, end = part.window ? begin + part.window->height * row : pixels;
  // A window reads whole blocks, because a checksum belongs to a block, into memory of the thread; a whole image is read into the output,
  // which the caller discards if a checksum fails.
  thread_local std::vector<uint8_t> window_block;
  for (int64_t block = begin / kBlock; block * kBlock < end; ++block) {
    const int64_t from = block * kBlock, to = std::min(from + kBlock, pixels);
    if (part.window) window_block.resize(kBlock);
    uint8_t* place = part.window ? window_block.data() : static_cast<uint8_t*>(out) + from;
    if (!read_all(file.number, place, to - from, head_bytes(pixels) + from)) return FileState::damaged;
    uint64_t expected;
    std::memcpy(&expected, head.data() + sizeof(Header) + 8 * block, 8);
    if (block_checksum(secret, key, block, place, to - from) != expected) return FileState::damaged;
    if (part.window) copy_from_block(place, from, to, whole, part, static_cast<uint8_t*>(out));
  }
  return FileState::good;
}

int write_image_file(int folder, const std::string& name, const HashSecret& secret, const ContentHash& key, const ImageShape& shape,
                     int64_t item_bytes, const uint8_t* pixels) {
  const int64_t bytes = bytes_of(shape, item_bytes);
  std::vector<char> head(static_cast<size_t>(head_bytes(bytes)));
  Header header{{}, key.low, key.high, shape.height, shape.width, shape.channels, item_bytes, 0};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  for (int64_t block = 0; block < blocks_of(bytes); ++block) {
    const int64_t from = block * kBlock;
    const uint64_t sum = block_checksum(secret, key, block, pixels + from, std::min(kBlock, bytes - from));
    std::memcpy(head.data() + sizeof header + 8 * block, &sum, 8);
  }
  std::memcpy(head.data(), &header, sizeof header);
  // Computed over the copy in `head`, whose field is still zero.
  header.checksum = head_checksum(secret, head);
  std::memcpy(head.data(), &header, sizeof header);

  const int file = openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return errno;
  int error = write_all(file, head.data(), static_cast<int64_t>(head.size()));
  if (error == 0) error = write_all(file, pixels, bytes);
  // Some file systems report a full disk only here.
  if (close(file) != 0 && error == 0) error = errno;
  return error;
}

}  // namespace ndd
