// SPDX-License-Identifier: Apache-2.0
// PNG, third edition: the list of chunks, and the contents of IHDR and eXIf. The pixels are checked by libpng.
#include "decoders/headers/exif.h"
#include "decoders/headers/file_header.h"

#include <cstring>

namespace ndd {
namespace {

struct Colors {
  int channels, samples;  // per pixel: as decoded, as stored
  unsigned depths;        // set of the legal bit depths: bit d for depth d
};

// The color types of IHDR: gray, RGB, palette (which becomes RGB), gray with alpha, RGB with alpha.
Colors colors_of(int type) {
  constexpr unsigned kDeep = 1u << 8 | 1u << 16;
  switch (type) {
    case 0: return {1, 1, 1u << 1 | 1u << 2 | 1u << 4 | kDeep};
    case 2: return {3, 3, kDeep};
    case 3: return {3, 1, 1u << 1 | 1u << 2 | 1u << 4 | 1u << 8};
    case 4: return {2, 2, kDeep};
    case 6: return {4, 4, kDeep};
    default: reject_header("its color type is " + std::to_string(type));
  }
}

// Deflate compresses at most 1032-fold.
constexpr double kMaxDeflateRatio = 1032;

// IHDR: width, height (4 bytes each), bit depth, color type, compression, filter, interlacing (1 byte each).
FileHeader read_ihdr(const uint8_t* content) {
  FileHeader header;
  header.codec = "png";
  header.width = big32(content);
  header.height = big32(content + 4);
  const int depth = content[8];
  const Colors colors = colors_of(content[9]);
  if (depth > 16 || !(colors.depths >> depth & 1)) {
    reject_header("its color type " + std::to_string(content[9]) + " does not go with " + std::to_string(depth) + " bits a sample");
  }
  if (content[10] != 0 || content[11] != 0 || content[12] > 1) reject_header("its IHDR names an unknown compression, filter or interlacing");
  header.channels = colors.channels;
  header.dtype = depth == 16 ? DType::uint16 : DType::uint8;
  // Without the filter bytes and the padding of rows: a lower bound is sufficient.
  header.min_bytes = static_cast<double>(header.height) * static_cast<double>(header.width) * depth * colors.samples / 8 / kMaxDeflateRatio;
  return header;
}

constexpr size_t kSignature = 8, kAround = 12;  // bytes around the content of a chunk: length, name and checksum
// The end of IHDR, which has 13 bytes and must come first.
constexpr size_t kSizes = kSignature + kAround + 13;

bool is(const uint8_t* chunk, const char* name) { return !std::memcmp(chunk + 4, name, 4); }

// The chunks of an animated PNG: number of frames, control of a frame, pixels of a frame after the default image.
bool is_of_animation(const uint8_t* chunk) { return is(chunk, "acTL") || is(chunk, "fcTL") || is(chunk, "fdAT"); }

// libpng derives a gamma from each of these, and then converts to gray in linear light, unlike the other codecs: gray is computed here instead.
bool is_gamma(const uint8_t* chunk) { return is(chunk, "gAMA") || is(chunk, "sRGB") || is(chunk, "cHRM") || is(chunk, "iCCP"); }

}  // namespace

// All chunks must lie within the file: OpenCV zeroes memory of a chunk's claimed length before it reads the chunk (4 GB and 2 s for a file
// of 128 bytes).
FileHeader read_png_header(const EncodedImage& file, bool complete) {
  const uint8_t* first = file.data + kSignature;
  if (file.size < kSizes || big32(first) != 13 || std::memcmp(first + 4, "IHDR", 4)) reject_header("its first chunk is not IHDR");
  FileHeader header = read_ihdr(first + 8);
  header.orientation.emplace();  // upright unless there is EXIF data
  bool ends = false;
  // `at` grows by at least the 12 bytes around a chunk, so the loop ends.
  for (size_t at = kSizes; at + kAround <= file.size;) {
    const uint8_t* chunk = file.data + at;
    const size_t length = big32(chunk);
    if (length > file.size - at - kAround) {
      if (!complete) break;
      reject_header("a chunk is longer than the file");
    }
    if (is(chunk, "IHDR")) reject_header("it has a second IHDR");
    if (is(chunk, "eXIf")) header.orientation = read_exif_orientation(chunk + 8, length);
    if (is_of_animation(chunk)) header.needs_rewriting = true;
    if (is_gamma(chunk)) header.gamma = true;
    ends = is(chunk, "IEND");
    if (ends) break;
    at += kAround + length;
  }
  // All pixels may be there without IEND, so it is appended.
  if (!ends && complete) header.needs_rewriting = true;
  return header;
}

std::vector<uint8_t> rewrite_png(const EncodedImage& file) {
  constexpr uint8_t kEnd[kAround] = {0, 0, 0, 0, 'I', 'E', 'N', 'D', 0xae, 0x42, 0x60, 0x82};  // with its checksum
  std::vector<uint8_t> copy(file.data, file.data + kSizes);
  copy.reserve(file.size + kAround);
  for (size_t at = kSizes; at + kAround <= file.size && !is(file.data + at, "IEND");) {
    const uint8_t* chunk = file.data + at;
    // The header check has compared it with the size, but the memory belongs to the caller and may have changed.
    const size_t length = std::min<size_t>(kAround + big32(chunk), file.size - at);
    if (!is_of_animation(chunk)) copy.insert(copy.end(), chunk, chunk + length);
    at += length;
  }
  copy.insert(copy.end(), kEnd, kEnd + kAround);
  return copy;
}

}  // namespace ndd
