// SPDX-License-Identifier: Apache-2.0
// WebP: RIFF chunks. The first one is the image (VP8, VP8L) or an extended header (VP8X), whose canvas must have the size of the image that follows,
// because parsers take either for the size.
#include "decoders/headers/exif.h"
#include "decoders/headers/file_header.h"
#include "ndd/error.h"

#include <algorithm>
#include <cstring>

namespace ndd {
namespace {

// The file starts with "RIFF", its length and "WEBP"; a chunk header is a name and the length of the content, which is padded to even.
constexpr size_t kFirstChunk = 12, kChunkHeader = 8;
constexpr size_t kMinOpenCvBytes = 32;  // OpenCV reads so many bytes of each file; a file with one pixel has 26
// Flags of VP8X. Those of ICC profiles and XMP do not matter here.
constexpr uint8_t kAlpha = 0x10, kExif = 0x08, kAnimation = 0x02;

bool is(const uint8_t* chunk, const char* name) { return !std::memcmp(chunk, name, 4); }

// Returns how many bytes of a chunk's content are read here.
size_t header_bytes_of(const uint8_t* chunk) { return is(chunk, "VP8L") ? 5 : 10; }

// Reads the size in the image's own header. The chunk header and header_bytes_of(chunk) bytes of its content lie within the file.
void read_image(const uint8_t* chunk, FileHeader& header, bool& alpha) {
  const uint8_t* content = chunk + kChunkHeader;
  if (is(chunk, "VP8 ")) {
    // A key frame (RFC 6386, 9.1): a tag of 3 bytes with bit 0 clear, a start code of 3 bytes, width and height in 14 bits each; the upper two
    // bits are scales for display.
    if ((content[0] & 1) || content[3] != 0x9d || content[4] != 0x01 || content[5] != 0x2a)
      reject_header("its VP8 data do not start with a key frame");
    header.width = little16(content + 6) & 0x3fff;
    header.height = little16(content + 8) & 0x3fff;
    alpha = false;
  } else {
    // Lossless: a signature byte, then width - 1 and height - 1 in 14 bits each, a hint of alpha, and a version in 3 bits.
    if (content[0] != 0x2f) reject_header("its VP8L data have a wrong signature");
    const uint32_t packed = little32(content + 1);
    header.width = static_cast<int64_t>(packed & 0x3fff) + 1;
    header.height = static_cast<int64_t>(packed >> 14 & 0x3fff) + 1;
    alpha = packed >> 28 & 1;
  }
}

// Returns the orientation in the first EXIF chunk; only called if VP8X announces one.
Orientation read_orientation(const EncodedImage& file, bool complete) {
  for (size_t at = kFirstChunk; at + kChunkHeader <= file.size;) {
    const uint8_t* chunk = file.data + at;
    const size_t content = little32(chunk + 4), left = file.size - at - kChunkHeader;
    if (content > left && !complete) break;
    if (content > left && is(chunk, "EXIF")) reject_header("its EXIF chunk is longer than the file");
    if (content > left) return {};
    if (is(chunk, "EXIF")) return read_exif_orientation(chunk + kChunkHeader, content);
    at += kChunkHeader + content + content % 2;
  }
  if (!complete) fail("the EXIF data of this WebP, which may turn the image, lie after these ", file.size, " bytes; pass the whole file");
  return {};
}

// A blank VP8L image needs no bits for its pixels, so 34 bytes can become a gigabyte; blank images of up to 2^26 pixels are accepted.
// Other images have at most 2^14 pixels per byte.
double min_bytes(const FileHeader& header) {
  constexpr double kBlank = 1 << 26, kPixelsPerByte = 1 << 14;
  const double pixels = static_cast<double>(header.height) * static_cast<double>(header.width);
  return pixels > kBlank ? (pixels - kBlank) / kPixelsPerByte : 0;
}

}  // namespace

FileHeader read_webp_header(const EncodedImage& file, bool complete) {
  if (file.size < kFirstChunk + kChunkHeader) reject_header("it ends in its header");
  const uint8_t* first = file.data + kFirstChunk;
  if (file.size - kFirstChunk - kChunkHeader < header_bytes_of(first)) reject_header("it ends in its header");
  FileHeader header;
  header.codec = "webp";
  bool alpha = false;
  if (is(first, "VP8 ") || is(first, "VP8L")) {
    read_image(first, header, alpha);
  } else if (is(first, "VP8X")) {
    const uint32_t length = little32(first + 4);
    const uint8_t flags = first[kChunkHeader];
    if (length != 10) reject_header("its VP8X chunk has a length of " + std::to_string(length));
    // VP8X: flags, three reserved bytes, width - 1 and height - 1 of the canvas in 24 bits each.
    header.width = static_cast<int64_t>(little24(first + kChunkHeader + 4)) + 1;
    header.height = static_cast<int64_t>(little24(first + kChunkHeader + 7)) + 1;
    alpha = flags & kAlpha;
    if (flags & kExif) {
      header.orientation = read_orientation(file, complete);
      header.needs_rewriting = true;
    }
    // Find the image after metadata chunks. Frames of an animation have their own chunk, and sizes smaller than the canvas.
    for (size_t at = kFirstChunk + kChunkHeader + length; !(flags & kAnimation) && at + kChunkHeader <= file.size;) {
      const uint8_t* chunk = file.data + at;
      if (file.size - at - kChunkHeader < header_bytes_of(chunk)) break;
      if (is(chunk, "VP8X")) reject_header("it has a second VP8X chunk");
      if (is(chunk, "VP8 ") || is(chunk, "VP8L")) {
        FileHeader image;
        bool unused = false;
        read_image(chunk, image, unused);
        if (image.width != header.width || image.height != header.height) {
          reject_header("its canvas has " + std::to_string(header.height) + "x" + std::to_string(header.width) + " pixels, its image " +
                        std::to_string(image.height) + "x" + std::to_string(image.width));
        }
        break;
      }
      const size_t content = little32(chunk + 4);
      if (content > file.size - at - kChunkHeader) break;  // the codec reports the missing image
      at += kChunkHeader + content + content % 2;
    }
  } else {
    reject_header("its first chunk is not an image");
  }
  header.channels = alpha ? 4 : 3;
  header.min_bytes = min_bytes(header);
  if (file.size < kMinOpenCvBytes) header.needs_rewriting = true;
  return header;
}

std::vector<uint8_t> rewrite_webp(const EncodedImage& file) {
  std::vector<uint8_t> copy(file.data, file.data + file.size);
  // The orientation was read before, so nvImageCodec loses nothing.
  if (is(copy.data() + kFirstChunk, "VP8X")) copy[kFirstChunk + kChunkHeader] &= static_cast<uint8_t>(~kExif);
  copy.resize(std::max(copy.size(), kMinOpenCvBytes));
  return copy;
}

}  // namespace ndd
