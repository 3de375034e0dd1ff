// SPDX-License-Identifier: Apache-2.0
// Windows and OS/2 bitmaps: a file header of 14 bytes, then one of 12 (OS/2) or 40 bytes and more, the palette, the rows.
#include "decoders/headers/file_header.h"

#include <algorithm>
#include <cstdlib>

namespace ndd {
namespace {

enum Compression : uint32_t { kRgb = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3 };

bool has_color(const uint8_t* palette, int64_t colors, int entry) {
  for (int64_t i = 0; i < colors; ++i, palette += entry) {
    if (palette[0] != palette[1] || palette[0] != palette[2]) return true;
  }
  return false;
}

}  // namespace

FileHeader read_bmp_header(const EncodedImage& file) {
  constexpr size_t kFileHeader = 14;
  if (file.size < kFileHeader + 12) damaged_header("it ends in its header");
  const uint32_t offset = little32(file.data + 10), size = little32(file.data + 14);
  const uint8_t* info = file.data + kFileHeader;
  const bool os2 = size == 12;
  if (!os2 && (size < 40 || size > 1 << 16)) damaged_header("its header has a size of " + std::to_string(size) + " bytes");
  if (file.size < kFileHeader + size || offset < kFileHeader + size) damaged_header("its header is longer than the space in front of its pixels");

  FileHeader header;
  header.codec = "bmp";
  header.width = os2 ? static_cast<int64_t>(little16(info + 4)) : static_cast<int64_t>(static_cast<int32_t>(little32(info + 4)));
  const int64_t rows = os2 ? static_cast<int64_t>(little16(info + 6)) : static_cast<int64_t>(static_cast<int32_t>(little32(info + 8)));
  header.height = std::abs(rows);  // rows from the top are counted below zero
  if (header.width < 1 || header.height < 1) {
    damaged_header("its header promises " + std::to_string(rows) + "x" + std::to_string(header.width) + " pixels");
  }
  const int bits = static_cast<int>(os2 ? little16(info + 10) : little16(info + 14));
  const uint32_t compression = os2 ? static_cast<uint32_t>(kRgb) : little32(info + 16);
  const bool known = (compression == kRgb && (bits == 1 || bits == 4 || bits == 8 || bits == 16 || bits == 24 || bits == 32)) ||
                     (compression == kRle8 && bits == 8) || (compression == kRle4 && bits == 4) ||
                     (compression == kBitFields && (bits == 16 || bits == 32));
  if (!known) damaged_header(std::to_string(bits) + " bits a pixel do not go with compression " + std::to_string(compression));

  if (bits <= 8) {
    const int entry = os2 ? 3 : 4;
    const int64_t used = os2 ? 0 : static_cast<int64_t>(little32(info + 32));
    const int64_t colors = used == 0 ? static_cast<int64_t>(1) << bits : used;
    if (colors > static_cast<int64_t>(1) << bits) damaged_header("its palette has more colors than its pixels can name");
    if (static_cast<uint64_t>(colors * entry) > file.size - kFileHeader - size) damaged_header("its palette is longer than the file");
    header.channels = has_color(info + size, colors, entry) ? 3 : 1;
  } else {
    header.channels = bits == 32 ? 4 : 3;
  }
  if ((compression == kRgb && bits == 16) || compression == kRle4) {
    header.unusual = compression == kRle4 ? "BMP with run lengths of 4 bits" : "BMP with 16 bits a pixel and no masks";
  }
  // Run lengths can leave out 255x255 pixels at a time; the end of the last row needs no padding.
  const double row = static_cast<double>((header.width * bits + 31) / 32 * 4), last = static_cast<double>((header.width * bits + 7) / 8);
  const bool runs = compression == kRle8 || compression == kRle4;
  header.least_bytes = runs ? static_cast<double>(header.height) * static_cast<double>(header.width) / (1 << 16)
                            : static_cast<double>(offset) + row * static_cast<double>(header.height - 1) + last;
  return header;
}

}  // namespace ndd
