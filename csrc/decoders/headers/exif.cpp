// SPDX-License-Identifier: Apache-2.0
// Only how the image is turned is read. Damaged EXIF data are ignored, and the image counts as upright: its pixels are intact.
#include "decoders/headers/exif.h"

#include "decoders/headers/file_header.h"

#include <cstring>

namespace ndd {
namespace {

constexpr uint32_t kOrientationTag = 0x0112, kShort = 3, kLong = 4;

}  // namespace

Orientation read_exif_orientation(const uint8_t* data, size_t size) {
  // Bytes: the identifier of EXIF in JPEG, which some writers of PNG and WebP copy; the header of a TIFF; one directory entry.
  constexpr size_t kPrefix = 6, kHeader = 8, kEntry = 12;
  if (size >= kPrefix && !std::memcmp(data, "Exif\0\0", kPrefix)) {
    data += kPrefix;
    size -= kPrefix;
  }
  if (size < kHeader) return {};
  const bool little = !std::memcmp(data, "II\x2a\0", 4);
  if (!little && std::memcmp(data, "MM\0\x2a", 4)) return {};
  const auto read16 = [&](size_t at) { return little ? little16(data + at) : big16(data + at); };
  // A TIFF header ends with the offset of its first directory, which begins with the number of its entries.
  const size_t directory = little ? little32(data + 4) : big32(data + 4);
  if (directory > size - 2) return {};  // size is at least 8 here
  const size_t count = read16(directory);
  // Only the first directory is searched: the following ones describe thumbnails.
  for (size_t i = 0, at = directory + 2; i < count && at + kEntry <= size; ++i, at += kEntry) {
    if (read16(at) != kOrientationTag) continue;
    // An entry is tag, type, count, value. The standard demands a SHORT; some writers store a LONG.
    const uint32_t type = read16(at + 2);
    if (type == kShort) return orientation_of_exif(read16(at + 8));
    return type == kLong ? orientation_of_exif(little ? little32(data + at + 8) : big32(data + at + 8)) : Orientation{};
  }
  return {};
}

}  // namespace ndd
