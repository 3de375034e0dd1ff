// SPDX-License-Identifier: Apache-2.0
// PNG, third edition: the chunks, and of those the ones that tell sizes.
#include "decoders/headers/file_header.h"

#include <cstring>

namespace ndd {
namespace {

struct Colors {
  int channels, samples;  // as decoded, as stored
  unsigned depths;        // a bit for each legal number of bits
};

Colors colors_of(int type) {
  constexpr unsigned kDeep = 1u << 8 | 1u << 16;
  switch (type) {
    case 0: return {1, 1, 1u << 1 | 1u << 2 | 1u << 4 | kDeep};
    case 2: return {3, 3, kDeep};
    case 3: return {3, 1, 1u << 1 | 1u << 2 | 1u << 4 | 1u << 8};
    case 4: return {2, 2, kDeep};
    case 6: return {4, 4, kDeep};
    default: damaged_header("its color type is " + std::to_string(type));
  }
}

// Deflate shrinks at most 1032-fold.
constexpr double kLargestRatio = 1032;

FileHeader read_ihdr(const uint8_t* content) {
  FileHeader header;
  header.codec = "png";
  header.width = big32(content);
  header.height = big32(content + 4);
  const int depth = content[8];
  const Colors colors = colors_of(content[9]);
  if (depth > 16 || !(colors.depths >> depth & 1)) {
    damaged_header("its color type " + std::to_string(content[9]) + " does not go with " + std::to_string(depth) + " bits a sample");
  }
  if (content[10] != 0 || content[11] != 0 || content[12] > 1) damaged_header("its IHDR names an unknown compression, filter or interlacing");
  header.channels = colors.channels;
  header.dtype = depth == 16 ? DType::uint16 : DType::uint8;
  header.least_bytes = static_cast<double>(header.height) * static_cast<double>(header.width) * depth * colors.samples / 8 / kLargestRatio;
  return header;
}

}  // namespace

// OpenCV fills memory of a chunk's promised length with zeros before it reads the chunk (4 GB and 2 s for 128 bytes), so all must lie in the file.
FileHeader read_png_header(const EncodedImage& file) {
  constexpr size_t kSignature = 8, kAround = 12;  // length and name in front of a chunk, a checksum behind
  const uint8_t* first = file.data + kSignature;
  if (file.size < kSignature + kAround + 13 || big32(first) != 13 || std::memcmp(first + 4, "IHDR", 4)) damaged_header("its first chunk is not IHDR");
  const FileHeader header = read_ihdr(first + 8);
  bool data = false;
  for (size_t at = kSignature + kAround + 13; at + kAround <= file.size;) {
    const uint8_t* chunk = file.data + at;
    const size_t length = big32(chunk);
    if (length > file.size - at - kAround) damaged_header("a chunk is longer than the file");
    const auto is = [&](const char* name) { return !std::memcmp(chunk + 4, name, 4); };
    if (is("IHDR")) damaged_header("it has a second IHDR");
    if (is("IDAT")) data = true;
    if (is("fcTL")) {  // of an animation: the part of the image that a frame covers
      if (length != 26) damaged_header("a frame of its animation has a wrong header");
      const uint64_t width = big32(chunk + 12), height = big32(chunk + 16), x = big32(chunk + 20), y = big32(chunk + 24);
      const bool whole = width == static_cast<uint64_t>(header.width) && height == static_cast<uint64_t>(header.height) && x == 0 && y == 0;
      const bool inside = x + width <= static_cast<uint64_t>(header.width) && y + height <= static_cast<uint64_t>(header.height);
      if (!inside || (!data && !whole)) damaged_header("a frame of its animation has another size than the image");
    }
    if (is("IEND")) break;
    at += kAround + length;
  }
  return header;
}

}  // namespace ndd
