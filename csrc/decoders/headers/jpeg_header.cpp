// SPDX-License-Identifier: Apache-2.0
// JPEG: ITU-T T.81, annex B. Parsers differ in which of two frame headers counts, and in whether other bytes, or a marker without a length
// such as a restart, may lie between the segments. libjpeg rejects a second frame header anywhere and skips the other bytes. So a second
// frame header before the scan is rejected here, and a file with other bytes is rewritten without them; what follows the scan is left to
// libjpeg.
#include "decoders/headers/exif.h"
#include "decoders/headers/file_header.h"
#include "decoders/jpeg/markers.h"
#include "ndd/error.h"

#include <algorithm>
#include <cstring>

namespace ndd {
namespace {

// Names the codings that libjpeg may not decode; null for baseline, extended and progressive, with Huffman or arithmetic coding (T.81, table B.1).
const char* unusual_coding(int frame) {
  switch (frame) {
    case 0xc0:
    case 0xc1:
    case 0xc2:
    case 0xc9:
    case 0xca: return nullptr;
    case 0xc3:
    case 0xcb: return "lossless JPEG";
    default: return "hierarchical JPEG";
  }
}

// Lower bound of the coded size. Huffman coding takes at least one bit for the DC coefficient of each block of 8x8 samples and, unless
// progressive, another one for the end of the block; lossless coding takes one per sample. Arithmetic coding has no such bound.
double min_bits(const uint8_t* components, int count, int frame, int64_t height, int64_t width) {
  // A component of the frame header has three bytes: identifier, sampling factors (horizontal in the high half), quantization table.
  // Its extent is the image's times its factor over the largest one (T.81, A.1.1).
  int largest_h = 1, largest_v = 1;
  for (int i = 0; i < count; ++i) {
    largest_h = std::max(largest_h, components[3 * i + 1] >> 4);
    largest_v = std::max(largest_v, components[3 * i + 1] & 15);
  }
  double bits = 0;
  for (int i = 0; i < count; ++i) {
    const double rows = static_cast<double>(height) * (components[3 * i + 1] & 15) / largest_v,
                 columns = static_cast<double>(width) * (components[3 * i + 1] >> 4) / largest_h;
    const double samples = rows * columns;
    if (frame == kLossless) bits += samples;
    else bits += samples / 64 * (frame == kProgressive ? 1 : 2);
  }
  return frame > kLossless ? 0 : bits;
}

// A frame header: length (2 bytes), bits per sample, height (2), width (2), number of components, 3 bytes for each (T.81, B.2.2).
void read_frame(const uint8_t* segment, size_t length, int marker, FileHeader& header) {
  const int count = length >= 8 ? segment[7] : 0;
  // The number of components, which sizes buffers, is stated twice: by this byte and by the length.
  if (count < 1 || length != static_cast<size_t>(8 + 3 * count)) reject_header("its frame header has the wrong length");
  const int bits = segment[2];
  header.height = big16(segment + 3);
  header.width = big16(segment + 5);
  header.channels = count;
  header.dtype = bits <= 8 ? DType::uint8 : DType::uint16;
  for (int i = 0; i < count; ++i) {
    const int h = segment[8 + 3 * i + 1] >> 4, v = segment[8 + 3 * i + 1] & 15;
    // T.81 allows 1 to 4; min_bits() divides by the largest.
    if (h < 1 || h > 4 || v < 1 || v > 4) reject_header("a sampling factor in its frame header is not from 1 to 4");
  }
  header.min_bytes = min_bits(segment + 8, count, marker, header.height, header.width) / 8;
  if (const char* coding = unusual_coding(marker)) header.unusual = coding;
  // 1 is gray, 3 is YCbCr or RGB, 4 is CMYK or YCCK; there is no convention for other numbers.
  if (count == 2 || count > 4) header.unusual = "JPEG with " + std::to_string(count) + " components";
  if (bits != 8) header.unusual = (header.unusual.empty() ? "JPEG" : header.unusual) + " with " + std::to_string(bits) + " bits a sample";
}

// Returns the offset of the code of the next marker (the byte after the 0xff) from `at` on, or the file size if there is none. As in
// libjpeg, other bytes, stuffed zeros and markers without a length are skipped; `clean` is set to false if there were any.
size_t find_marker(const EncodedImage& file, size_t at, bool& clean) {
  for (;;) {
    const size_t begin = at;
    while (at < file.size && file.data[at] != 0xff) ++at;
    clean = clean && at == begin;
    while (at < file.size && file.data[at] == 0xff) ++at;
    if (at >= file.size) return file.size;
    const int marker = file.data[at];
    if (marker != 0 && !stands_alone(marker)) return at;
    clean = false;
    ++at;
  }
}

}  // namespace

FileHeader read_jpeg_header(const EncodedImage& file, bool complete) {
  FileHeader header;
  header.codec = "jpeg";
  header.orientation.emplace();  // upright unless there is EXIF data
  bool framed = false, clean = true, has_exif = false;
  // Each round reads one segment: its marker, its length and, if it is a frame header, its content. 2: after the start of the image.
  for (size_t at = 2;;) {
    const size_t code = find_marker(file, at, clean);
    if (code + 3 > file.size) {
      // The beginning of a file suffices once the size is known.
      if (framed && !complete) break;
      if (!complete)
        fail("the size lies after these ", file.size, " bytes of the JPEG's header; pass more than ", std::max(at, file.size),
             " bytes, or a whole file if this one is cut short");
      reject_header("it ends in its header");
    }
    const int marker = file.data[code];
    if (marker == kSoi || marker == kEoi) reject_header("a marker that is not allowed before the scan");
    const uint8_t* segment = file.data + code + 1;
    const size_t length = big16(segment);
    // `cut`: the segment goes on after the bytes of an incomplete file.
    const bool cut = length > file.size - code - 1;
    if (length < 2 || (cut && complete)) reject_header("a segment of its header is longer than the file");
    if (marker == kSos) {
      if (!framed) reject_header("its scan has no frame header");
      break;
    }
    if (is_jpeg_frame(marker) && !cut) {
      if (framed) reject_header("it has two frame headers");
      framed = true;
      read_frame(segment, length, marker, header);
    }
    if (marker == kApp1 && code + 9 <= file.size && !std::memcmp(segment + 2, "Exif\0\0", 6)) {
      // nvImageCodec's parser computes the length of the EXIF data as the length minus 8, which would be negative.
      if (length < 8) reject_header("its EXIF segment is too short");
      // Read here, because that parser takes the upper half of a big-endian LONG for the number. The first segment counts, as there.
      if (!has_exif && !cut) header.orientation = read_exif_orientation(segment + 8, length - 8);
      has_exif = true;
    }
    at = code + 1 + length;
  }
  header.needs_rewriting = !clean;
  return header;
}

std::vector<uint8_t> rewrite_jpeg(const EncodedImage& file) {
  std::vector<uint8_t> copy(file.data, file.data + 2);
  copy.reserve(file.size);
  bool clean = true;
  for (size_t at = 2;;) {
    const size_t code = find_marker(file, at, clean);
    if (code + 3 > file.size) return copy;
    // Everything from the first scan on is copied unchanged.
    at = file.data[code] == kSos ? file.size : std::min(file.size, code + 1 + big16(file.data + code + 1));
    copy.push_back(0xff);
    copy.insert(copy.end(), file.data + code, file.data + at);
    if (at == file.size) return copy;
  }
}

}  // namespace ndd
