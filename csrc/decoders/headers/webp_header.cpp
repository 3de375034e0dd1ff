// SPDX-License-Identifier: Apache-2.0
// WebP: RIFF chunks. The first one is the image (VP8, VP8L) or an extended header (VP8X), whose canvas must be the size of the image behind it.
#include "decoders/headers/file_header.h"

#include <cstring>

namespace ndd {
namespace {

constexpr size_t kFirstChunk = 12, kChunkHeader = 8;
constexpr uint8_t kAlpha = 0x10, kExif = 0x08, kAnimation = 0x02;

bool is(const uint8_t* chunk, const char* name) { return !std::memcmp(chunk, name, 4); }

// The size in an image's own header. `chunk` and the 10 bytes of content behind its header lie in the file.
void read_image(const uint8_t* chunk, FileHeader& header, bool& alpha) {
  const uint8_t* content = chunk + kChunkHeader;
  if (is(chunk, "VP8 ")) {
    if ((content[0] & 1) || content[3] != 0x9d || content[4] != 0x01 || content[5] != 0x2a)
      damaged_header("its VP8 data do not begin with a key frame");
    header.width = little16(content + 6) & 0x3fff;
    header.height = little16(content + 8) & 0x3fff;
    alpha = false;
  } else {
    if (content[0] != 0x2f) damaged_header("its VP8L data have a wrong signature");
    const uint32_t packed = little32(content + 1);
    header.width = static_cast<int64_t>(packed & 0x3fff) + 1;
    header.height = static_cast<int64_t>(packed >> 14 & 0x3fff) + 1;
    alpha = packed >> 28 & 1;
  }
}

// nvImageCodec's parser fills memory of the EXIF chunk's promised length, up to 4 GB, before it reads the chunk. It finds the chunk without the padding
// to even lengths that RIFF has.
void check_exif(const EncodedImage& file, bool padding) {
  for (size_t at = kFirstChunk; at + kChunkHeader <= file.size;) {
    const uint8_t* chunk = file.data + at;
    const size_t content = little32(chunk + 4), behind = file.size - at - kChunkHeader;
    if (content > behind && is(chunk, "EXIF")) damaged_header("its EXIF chunk is longer than the file");
    if (content > behind) return;
    at += kChunkHeader + content + (padding ? content % 2 : 0);
  }
}

}  // namespace

FileHeader read_webp_header(const EncodedImage& file) {
  constexpr size_t kContent = 10;  // what is read of a chunk
  if (file.size < kFirstChunk + kChunkHeader + kContent) damaged_header("it ends in its header");
  const uint8_t* first = file.data + kFirstChunk;
  FileHeader header;
  header.codec = "webp";
  bool alpha = false;
  if (is(first, "VP8 ") || is(first, "VP8L")) {
    read_image(first, header, alpha);
  } else if (is(first, "VP8X")) {
    const uint32_t length = little32(first + 4);
    const uint8_t flags = first[kChunkHeader];
    if (length != 10) damaged_header("its VP8X chunk has a length of " + std::to_string(length));
    header.width = static_cast<int64_t>(little24(first + kChunkHeader + 4)) + 1;
    header.height = static_cast<int64_t>(little24(first + kChunkHeader + 7)) + 1;
    alpha = flags & kAlpha;
    if (flags & kExif) {
      check_exif(file, true);
      check_exif(file, false);
    }
    for (size_t at = kFirstChunk + kChunkHeader + length; !(flags & kAnimation) && at + kChunkHeader + kContent <= file.size;) {
      const uint8_t* chunk = file.data + at;
      if (is(chunk, "VP8X")) damaged_header("it has a second VP8X chunk");
      if (is(chunk, "VP8 ") || is(chunk, "VP8L")) {
        FileHeader image;
        bool unused = false;
        read_image(chunk, image, unused);
        if (image.width != header.width || image.height != header.height) {
          damaged_header("its canvas has " + std::to_string(header.height) + "x" + std::to_string(header.width) + " pixels, its image " +
                         std::to_string(image.height) + "x" + std::to_string(image.width));
        }
        break;
      }
      const size_t content = little32(chunk + 4);
      if (content > file.size - at - kChunkHeader) break;  // the codec will miss the image
      at += kChunkHeader + content + content % 2;
    }
  } else {
    damaged_header("its first chunk is not an image's");
  }
  header.channels = alpha ? 4 : 3;
  return header;
}

}  // namespace ndd
