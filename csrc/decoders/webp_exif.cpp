// SPDX-License-Identifier: Apache-2.0
#include "decoders/webp_exif.h"

#include <algorithm>
#include <cstring>

namespace ndd {
namespace {

// "RIFF", size, "WEBP", then chunks of name, size, content. The first chunk, VP8X, begins with a byte of flags.
constexpr size_t kFirstChunk = 12, kChunkHeader = 8, kFlags = kFirstChunk + kChunkHeader;
constexpr uint8_t kExifFlag = 0x08;

}  // namespace

bool is_webp_with_exif(const EncodedImage& image) {
  return image.size > kFlags && !std::memcmp(image.data, "RIFF", 4) && !std::memcmp(image.data + 8, "WEBPVP8X", 8) &&
         (image.data[kFlags] & kExifFlag);
}

std::vector<uint8_t> without_padding(const EncodedImage& webp) {
  std::vector<uint8_t> copy(webp.data, webp.data + kFirstChunk);
  copy.reserve(webp.size);
  for (size_t at = kFirstChunk; at + kChunkHeader <= webp.size;) {
    const uint8_t* size = webp.data + at + 4;
    const size_t content =
        static_cast<size_t>(size[0]) | static_cast<size_t>(size[1]) << 8 | static_cast<size_t>(size[2]) << 16 | static_cast<size_t>(size[3]) << 24;
    const size_t end = at + kChunkHeader + std::min(content, webp.size - at - kChunkHeader);
    copy.insert(copy.end(), webp.data + at, webp.data + end);
    at = end + content % 2;
  }
  return copy;
}

std::vector<uint8_t> without_exif(const EncodedImage& webp) {
  std::vector<uint8_t> copy(webp.data, webp.data + webp.size);
  copy[kFlags] &= static_cast<uint8_t>(~kExifFlag);
  return copy;
}

}  // namespace ndd
