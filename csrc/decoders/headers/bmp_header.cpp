// SPDX-License-Identifier: Apache-2.0
// Windows and OS/2 bitmaps: a file header of 14 bytes, an info header of 12 (OS/2) or at least 40 bytes, channel masks, the palette, the rows.
#include "decoders/headers/bmp_layout.h"
#include "decoders/headers/file_header.h"
#include "ndd/error.h"

#include <cstdlib>
#include <string>

namespace ndd {
namespace {

// Numbers of biCompression. Embedded JPEG and PNG exist for printers only.
constexpr size_t kFileHeader = 14, kMasks = 40;  // bytes; offset of the masks from the info header
enum Compression : uint32_t { kRgb = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3, kJpeg = 4, kPng = 5, kAlphaBitFields = 6 };

[[noreturn]] void reject_unsupported(const std::string& what) { fail("no CPU decoder for BMP ", what); }

// Whether any entry of the palette is not gray; without one the image is delivered with one channel.
bool has_color(const EncodedImage& file, const BmpLayout& layout) {
  const uint8_t* color = file.data + layout.palette;
  for (int64_t i = 0; i < layout.colors; ++i, color += layout.color_bytes) {
    if (color[0] != color[1] || color[0] != color[2]) return true;
  }
  return false;
}

// Converts a mask to the position and the number of its bits. An empty mask means that the channel is not stored.
BmpMask mask_of(uint32_t bits, int pixel_bits) {
  if (bits == 0) return {};
  // The set bits must be consecutive. The comparison with 32 avoids a shift by the full width of the type, which is undefined.
  const BmpMask mask{__builtin_ctz(bits), __builtin_popcount(bits)};
  if (bits >> mask.shift != (mask.bits == 32 ? UINT32_MAX : (1u << mask.bits) - 1)) reject_header("the bits of a channel are not next to each other");
  if (mask.shift + mask.bits > pixel_bits) reject_header("a channel has bits outside of its pixels");
  return mask;
}

// Without bit fields the channels have fixed places: 5 bits each in 16, a byte each in 32.
void read_masks(const EncodedImage& file, size_t header_size, uint32_t compression, BmpLayout& layout) {
  if (compression == kRgb) {
    if (layout.bits == 16) layout.masks = {BmpMask{10, 5}, BmpMask{5, 5}, BmpMask{0, 5}, BmpMask{}};
    else layout.masks = {BmpMask{16, 8}, BmpMask{8, 8}, BmpMask{0, 8}, BmpMask{24, 8}};
    return;
  }
  // The masks lie in a long header, or after one of 40 bytes; the offset is the same. A header of 56 bytes or more includes the mask of alpha.
  const bool alpha = compression == kAlphaBitFields || header_size >= 56;
  const size_t count = alpha ? 4 : 3;
  if (file.size < kFileHeader + kMasks + 4 * count) reject_header("it ends in its masks");
  for (size_t i = 0; i < count; ++i) layout.masks[i] = mask_of(little32(file.data + kFileHeader + kMasks + 4 * i), layout.bits);
}

void read_palette(const EncodedImage& file, size_t header_size, bool os2, BmpLayout& layout) {
  layout.color_bytes = os2 ? 3 : 4;  // Windows pads each color with a byte
  // biClrUsed: 0 means as many colors as the bits of a pixel can select.
  const int64_t used = os2 ? 0 : static_cast<int64_t>(little32(file.data + kFileHeader + 32));
  layout.colors = used == 0 ? static_cast<int64_t>(1) << layout.bits : used;
  layout.palette = kFileHeader + header_size;
  // RowReader keeps 256 colors, and an index of `bits` bits cannot select more.
  if (layout.colors > static_cast<int64_t>(1) << layout.bits) reject_header("its palette has more colors than its pixels can refer to");
  if (static_cast<uint64_t>(layout.colors * layout.color_bytes) > file.size - layout.palette) reject_header("its palette is longer than the file");
}

}  // namespace

BmpLayout read_bmp_layout(const EncodedImage& file) {
  if (file.size < kFileHeader + 12) reject_header("it ends in its header");
  const uint32_t offset = little32(file.data + 10), size = little32(file.data + 14);
  const uint8_t* info = file.data + kFileHeader;
  const bool os2 = size == 12;
  if (size > 12 && size < 40) reject_unsupported("with a header of " + std::to_string(size) + " bytes");
  // 64 kB is far beyond the largest header in use, 124 bytes: the offsets below cannot overflow.
  if (!os2 && (size < 40 || size > 1 << 16)) reject_header("its header has a size of " + std::to_string(size) + " bytes");
  if (file.size < kFileHeader + size || offset < kFileHeader + size) reject_header("its header is longer than the space in front of its pixels");

  BmpLayout layout;
  layout.pixels = offset;
  // OS/2 stores unsigned extents of 16 bits, Windows signed ones of 32.
  layout.width = os2 ? static_cast<int64_t>(little16(info + 4)) : static_cast<int64_t>(static_cast<int32_t>(little32(info + 4)));
  // Widened before abs(): the absolute value of INT32_MIN does not fit in 32 bits.
  const int64_t rows = os2 ? static_cast<int64_t>(little16(info + 6)) : static_cast<int64_t>(static_cast<int32_t>(little32(info + 8)));
  layout.height = std::abs(rows);
  layout.top_down = rows < 0;  // a negative height: the first row is the top one
  if (layout.width < 1 || layout.height < 1) {
    reject_header("its header promises " + std::to_string(rows) + "x" + std::to_string(layout.width) + " pixels");
  }
  layout.bits = static_cast<int>(os2 ? little16(info + 10) : little16(info + 14));
  const uint32_t compression = os2 ? static_cast<uint32_t>(kRgb) : little32(info + 16);
  // Indices into a palette of up to 8 bits, or channels cut out of 16 or 32 bits by masks; 24 bits are plain blue, green, red.
  const int bits = layout.bits;
  const bool indexed = bits == 1 || bits == 2 || bits == 4 || bits == 8, masked = bits == 16 || bits == 32;
  const bool known = (compression == kRgb && (indexed || masked || bits == 24)) || (compression == kRle8 && bits == 8) ||
                     (compression == kRle4 && bits == 4) || ((compression == kBitFields || compression == kAlphaBitFields) && masked);
  if (compression == kJpeg || compression == kPng) reject_unsupported(std::string("that contains a ") + (compression == kJpeg ? "JPEG" : "PNG"));
  if (!known) reject_unsupported("with " + std::to_string(bits) + " bits a pixel and compression " + std::to_string(compression));
  if (compression == kRle8) layout.coding = BmpCoding::rle8;
  if (compression == kRle4) layout.coding = BmpCoding::rle4;

  if (indexed) {
    read_palette(file, size, os2, layout);
    layout.channels = has_color(file, layout) ? 3 : 1;
  } else {
    if (masked) read_masks(file, size, compression, layout);
    // Pixels of 32 bits always become four channels; alpha without a mask is opaque.
    layout.channels = bits == 32 || layout.masks[3].bits > 0 ? 4 : 3;
  }
  return layout;
}

// In floating point, because the product of hostile extents overflows 64 bits.
double BmpLayout::min_bytes() const {
  const double rows = static_cast<double>(height), last = static_cast<double>((width * bits + 7) / 8);
  if (coding != BmpCoding::plain) return rows * static_cast<double>(width) / (1 << 16);
  return static_cast<double>(pixels) + static_cast<double>(row_bytes()) * (rows - 1) + last;
}

FileHeader read_bmp_header(const EncodedImage& file) {
  const BmpLayout layout = read_bmp_layout(file);
  FileHeader header;
  header.codec = "bmp";
  header.height = layout.height;
  header.width = layout.width;
  header.channels = layout.channels;
  header.min_bytes = layout.min_bytes();
  return header;
}

}  // namespace ndd
