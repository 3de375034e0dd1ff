// SPDX-License-Identifier: Apache-2.0
// The header was checked by headers/bmp_header.cpp. The pixels are checked here, while they are read: an index beyond the palette and a run beyond
// the image are possible in any file.
#include "decoders/bmp_image.h"

#include "decoders/codecs/codec_output.h"
#include "decoders/decoded_pixels.h"
#include "decoders/headers/bmp_layout.h"
#include "decoders/headers/file_header.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace ndd {
namespace {

// Decodes run lengths to one index per pixel; skipped pixels are 0. The part of a run beyond the end of its row is dropped, and so are rows
// beyond the image, because moves may lead anywhere.
// A pair (count, index) repeats an index; RLE4 alternates between the two halves of the byte. A count of 0 escapes: 0 ends the row, 1 the image,
// 2 moves right and up by the next two bytes, and a larger number of literal indices follows.
class RunReader {
 public:
  RunReader(const EncodedImage& file, const BmpLayout& layout)
      : file_(file), layout_(layout), at_(layout.pixels), indices_(static_cast<size_t>(layout.height * layout.width)) {}

  std::vector<uint8_t> read() {
    while (y_ < layout_.height) {
      const int count = next();
      const int value = next();
      if (count > 0) add_run(count, value);
      else if (value == kEndOfRow) start_row(y_ + 1);
      else if (value == kEndOfImage) break;
      else if (value == kMove) move();
      else copy(value);
    }
    return std::move(indices_);
  }

 private:
  enum Escape : int { kEndOfRow = 0, kEndOfImage = 1, kMove = 2 };

  int next() {
    if (at_ >= file_.size) {
      // Many writers omit the end-of-image code, so a missing end is accepted after the last pixel.
      if (y_ + 1 < layout_.height || x_ < layout_.width) reject_header("it ends in its pixels");
      y_ = layout_.height;
      return 0;
    }
    return file_.data[at_++];
  }

  void start_row(int64_t y) {
    y_ = y;
    x_ = 0;
  }

  void move() {
    x_ += next();
    y_ += next();
  }

  void add(int index) {
    // x_ may run beyond the row, so only add() has to compare.
    if (y_ < layout_.height && x_ < layout_.width) indices_[static_cast<size_t>(y_ * layout_.width + x_)] = static_cast<uint8_t>(index);
    ++x_;
  }

  void add_run(int count, int value) {
    for (int i = 0; i < count; ++i) add(layout_.coding == BmpCoding::rle8 ? value : i % 2 ? value & 15 : value >> 4);
  }

  // Copies literal indices, which are padded to an even number of bytes.
  void copy(int count) {
    const bool bytes = layout_.coding == BmpCoding::rle8;
    const size_t length = static_cast<size_t>(bytes ? count : (count + 1) / 2);
    if (length > file_.size - at_) reject_header("it ends in its pixels");
    for (int i = 0; i < count; ++i) {
      const int value = file_.data[at_ + static_cast<size_t>(bytes ? i : i / 2)];
      add(bytes ? value : i % 2 ? value & 15 : value >> 4);
    }
    at_ += length + length % 2;
  }

  const EncodedImage& file_;
  const BmpLayout& layout_;
  size_t at_;
  int64_t y_ = 0, x_ = 0;
  std::vector<uint8_t> indices_;
};

// Extracts a channel of 16- or 32-bit pixels, scaled to 8 bits. Channels of up to 8 bits use a table instead of a division.
class Channel {
 public:
  explicit Channel(const BmpMask& mask) : mask_(mask), largest_(mask.bits == 32 ? UINT32_MAX : (1u << mask.bits) - 1) {
    for (uint32_t value = 0; mask_.bits > 0 && mask_.bits <= 8 && value <= largest_; ++value) table_[value] = scaled(value);
  }

  uint8_t of(uint32_t pixel) const {
    const uint32_t value = pixel >> mask_.shift & largest_;
    return mask_.bits <= 8 ? table_[value] : scaled(value);
  }

  bool is_stored() const { return mask_.bits > 0; }

 private:
  // Rounds to nearest.
  uint8_t scaled(uint32_t value) const { return static_cast<uint8_t>((static_cast<uint64_t>(value) * 255 + largest_ / 2) / largest_); }

  BmpMask mask_;
  uint32_t largest_;
  uint8_t table_[256] = {};
};

// Decodes rows of the image, numbered from the top, to 1 channel (gray palette), 3, or 4 (with alpha).
class RowReader {
 public:
  RowReader(const EncodedImage& file, const BmpLayout& layout, int out_channels)
      : file_(file), layout_(layout), out_channels_(out_channels),
        channels_{Channel(layout.masks[0]), Channel(layout.masks[1]), Channel(layout.masks[2]), Channel(layout.masks[3])} {
    if (layout.coding != BmpCoding::plain) indices_ = RunReader(file, layout).read();
    for (int64_t i = 0; i < layout.colors; ++i) {
      const uint8_t* color = file.data + layout.palette + i * layout.color_bytes;
      for (int c = 0; c < 3; ++c) palette_[i][c] = color[2 - c];
    }
  }

  // Writes the pixels [x, x + width) of row `y`.
  void read(int64_t y, int64_t x, int64_t width, uint8_t* out) const {
    // Bitmaps are stored bottom up unless their height is negative.
    const int64_t stored = layout_.top_down ? y : layout_.height - 1 - y;
    if (!indices_.empty()) return look_up(indices_.data() + stored * layout_.width + x, 8, 0, width, out);
    const uint8_t* row = file_.data + layout_.pixels + static_cast<size_t>(stored) * layout_.row_bytes();
    if (layout_.bits <= 8) return look_up(row, layout_.bits, x, width, out);
    if (layout_.bits == 24) return reverse(row + 3 * x, width, out);
    for (int64_t i = x; i < x + width; ++i) {
      const uint32_t pixel = layout_.bits == 16 ? little16(row + 2 * i) : little32(row + 4 * i);
      for (int c = 0; c < 3; ++c) *out++ = channels_[c].of(pixel);
      if (out_channels_ == 4) *out++ = channels_[3].is_stored() ? channels_[3].of(pixel) : 255;
    }
  }

 private:
  // Pixel 0 is in the most significant bits of a byte. Run lengths were expanded to 8 bits.
  void look_up(const uint8_t* row, int bits, int64_t x, int64_t width, uint8_t* out) const {
    const int in_byte = 8 / bits, mask = (1 << bits) - 1;
    for (int64_t i = x; i < x + width; ++i, out += out_channels_) {
      const int index = row[i / in_byte] >> (8 - bits - static_cast<int>(i % in_byte) * bits) & mask;
      if (out_channels_ == 1) *out = palette_[index][0];
      else std::memcpy(out, palette_[index], 3);
    }
  }

  // Stored as blue, green, red.
  static void reverse(const uint8_t* pixel, int64_t width, uint8_t* out) {
    for (int64_t i = 0; i < width; ++i, pixel += 3, out += 3) {
      out[0] = pixel[2];
      out[1] = pixel[1];
      out[2] = pixel[0];
    }
  }

  const EncodedImage& file_;
  const BmpLayout& layout_;
  const int out_channels_;
  // Red, green, blue, alpha.
  const Channel channels_[4];
  std::vector<uint8_t> indices_;
  uint8_t palette_[256][3] = {};  // black for indices beyond the stored colors
};

}  // namespace

void decode_bmp(const EncodedImage& file, const ImageHeader& header, const DecodeOptions& options, void* out, DType out_dtype) {
  const BmpLayout layout = read_bmp_layout(file);
  // The header is read again, because the memory of the file belongs to the caller and may have changed: all offsets below come from this reading.
  const bool same = layout.height == header.height && layout.width == header.width && layout.channels == header.channels;
  if (!same || layout.min_bytes() > static_cast<double>(file.size)) codec_error("the encoded image changed after the call");
  const ImageShape shape = decoded_shape(header, options);
  const CropWindow window = options.window ? *options.window : CropWindow{0, 0, shape.height, shape.width};
  const bool rgb = options.type == ImageType::rgb;
  // Most images need no conversion and are written straight to the output.
  const bool direct =
      out_dtype == DType::uint8 && (rgb || options.type == ImageType::any || (layout.channels == 1 && options.type == ImageType::gray));
  const int channels = direct && rgb ? 3 : layout.channels;
  const RowReader rows(file, layout, channels);
  std::vector<uint8_t> pixels(direct ? 0 : static_cast<size_t>(window.width * channels));
  const int64_t row_bytes = shape.width * shape.channels * static_cast<int64_t>(item_bytes(out_dtype));
  for (int64_t y = 0; y < window.height; ++y) {
    auto* target = static_cast<uint8_t*>(out) + y * row_bytes;
    rows.read(window.y + y, window.x, window.width, direct ? target : pixels.data());
    if (direct) continue;
    convert_pixels({pixels.data(), DType::uint8, window.width, channels}, options.type, static_cast<int>(shape.channels), target, out_dtype);
  }
}

}  // namespace ndd
