// SPDX-License-Identifier: Apache-2.0
// Uncompressed pieces are read where they lie. The others become strips of a new file (packed_strips.cpp), which libtiff decompresses; of its result
// only the rows of the part are unpacked.
#include "decoders/tiff/pieces.h"

#include "decoders/headers/file_header.h"
#include "decoders/tiff/colors.h"
#include "decoders/tiff/samples.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

namespace ndd {
namespace {

constexpr int64_t kMaxBatch = 32 << 20;  // bytes of pieces that are decompressed together; a single larger one is possible
constexpr size_t kMaxBatchPieces = 1 << 20;

// Returns uninitialized memory.
std::unique_ptr<uint8_t[]> new_bytes(int64_t size) { return std::unique_ptr<uint8_t[]>(new uint8_t[static_cast<size_t>(size)]); }

// Reads the samples of a part of the image, piece by piece; compressed pieces in batches, one call of the codec for each.
class PieceReader {
 public:
  PieceReader(const TiffImage& image, const CropWindow& part, const DecodeStrips& decode_strips)
      : image_(image), part_(part), decode_strips_(decode_strips), item_(item_bytes(image.dtype())),
        unpacker_(image, image.colors != TiffColors::palette) {}

  // `out` has pixels of `stride` samples: in a planar file the first `stride` planes.
  void read(int64_t stride, uint8_t* out) {
    stride_ = stride;
    const int64_t left = part_.x / image_.piece_width, right = (part_.x + part_.width - 1) / image_.piece_width;
    const int64_t top = part_.y / image_.piece_height, bottom = (part_.y + part_.height - 1) / image_.piece_height;
    // Pieces are numbered row by row; in planar files all pieces of a plane come before those of the next.
    for (int64_t plane = 0; plane < (image_.planar ? stride : 1); ++plane) {
      out_ = out + plane * item_;
      for (int64_t row = top; row <= bottom; ++row) {
        for (int64_t column = left; column <= right; ++column) add({row, column, (plane * image_.down() + row) * image_.across() + column});
      }
      flush();
    }
  }

 private:
  // Row and column in the grid of pieces; index in the tables of offsets and lengths.
  struct Piece {
    int64_t row, column, index;
  };

  // Stored pieces have the rows of the file; from libtiff they have the rows that strip_format() declared.
  int64_t packed_row_bytes() const {
    const StripFormat format = strip_format(image_);
    if (image_.compression == 1) return image_.packed_row_bytes();
    return format.width * format.channels * item_bytes(format.dtype);
  }

  void add(const Piece& piece) {
    // Without compression there is nothing to decode: the rows are read from the file.
    if (image_.compression == 1) return unpack(piece, stored_piece(piece), 0);
    batch_.push_back(piece);
    // libtiff also decodes the rows above the requested ones, so a batch begins with the first row of pieces that the part needs.
    if (static_cast<int64_t>(batch_.size() + 1) * image_.packed_rows(image_.piece_height) * packed_row_bytes() > kMaxBatch ||
        batch_.size() == kMaxBatchPieces)
      flush();
  }

  // Checked again, although the header check did: the memory of the file belongs to the caller and may have changed.
  const uint8_t* stored_piece(const Piece& piece) const {
    const uint64_t at = image_.tags.number_at(*image_.offsets, static_cast<uint64_t>(piece.index)), size = image_.file.size;
    const auto bytes = static_cast<uint64_t>(image_.packed_rows(image_.rows_of_piece(piece.row)) * packed_row_bytes());
    if (at > size || bytes > size - at) reject_header("a strip or tile is longer than the file");
    return image_.file.data + at;
  }

  // The range of packed rows of a piece that the part needs.
  int64_t first_packed_row(const Piece& piece) const { return std::max<int64_t>(part_.y - piece.row * image_.piece_height, 0) / image_.chroma_y; }
  int64_t end_packed_row(const Piece& piece) const {
    const int64_t rows = std::min(part_.y + part_.height - piece.row * image_.piece_height, image_.rows_of_piece(piece.row));
    return image_.packed_rows(rows);
  }

  void flush() {
    if (batch_.empty()) return;
    std::vector<int64_t> indices;
    for (const Piece& piece : batch_) indices.push_back(piece.index);
    const int64_t rows = image_.packed_rows(image_.piece_height), last = image_.packed_rows(image_.rows_of_piece(batch_.back().row));
    const PackedStrips strips = pack_strips(image_, indices, rows, last);
    // libtiff sees the pieces of the batch as one tall image. Rows above the part in the first piece and below it in the last are not requested.
    // In packed rows, each of which holds chroma_y rows of pixels.
    const int64_t skipped = first_packed_row(batch_.front()), before_last = static_cast<int64_t>(batch_.size() - 1) * rows;
    const int64_t needed = before_last + end_packed_row(batch_.back()) - skipped, row_bytes = packed_row_bytes();
    const auto bytes = new_bytes(needed * row_bytes);
    decode_strips_(strips, skipped, needed, bytes.get());
    for (size_t i = 0; i < batch_.size(); ++i) {
      // The skipped rows of the first piece would lie before the buffer; unpack() does not access them.
      const int64_t start = static_cast<int64_t>(i) * rows - skipped;
      const int64_t hidden = std::max<int64_t>(-start, 0);
      unpack(batch_[i], bytes.get() + (start + hidden) * row_bytes, hidden);
    }
    batch_.clear();
  }

  // `packed` begins with the packed row `hidden` of the piece.
  void unpack(const Piece& piece, const uint8_t* packed, int64_t hidden) {
    // The intersection of the piece and the part, in coordinates of the image.
    const int64_t row_bytes = packed_row_bytes(), y0 = piece.row * image_.piece_height, x0 = piece.column * image_.piece_width;
    const int64_t top = std::max(part_.y, y0), bottom = std::min(part_.y + part_.height, y0 + image_.rows_of_piece(piece.row));
    const int64_t left = std::max(part_.x, x0), right = std::min(part_.x + part_.width, x0 + image_.piece_width);
    for (int64_t y = top; y < bottom; ++y) {
      const uint8_t* row = packed + ((y - y0) / image_.chroma_y - hidden) * row_bytes;
      uint8_t* out = out_ + ((y - part_.y) * part_.width + left - part_.x) * stride_ * item_;
      unpack_row(row, (y - y0) % image_.chroma_y, left - x0, right - left, out);
    }
  }

  void unpack_row(const uint8_t* row, int64_t row_in_block, int64_t first, int64_t pixels, uint8_t* out) {
    if (image_.compression != 1 && !is_byte_compression(image_.compression)) return copy_samples(row, first, pixels, out);
    if (image_.compression == 1 && image_.reversed_bits) {
      mirrored_.assign(row, row + image_.packed_row_bytes());
      for (uint8_t& byte : mirrored_) byte = reverse_bits(byte);
      row = mirrored_.data();
    }
    unpacker_.unpack(row, row_in_block, first, pixels, out, stride_);
  }

  // Copies samples as libtiff delivers them, scaled to the full range of their type unless they are floats. Palette indices are scaled back.
  void copy_samples(const uint8_t* row, int64_t first, int64_t pixels, uint8_t* out) const {
    const int64_t samples = image_.samples_in_piece(), codec_item = item_bytes(strip_format(image_).dtype);
    const bool indices = image_.colors == TiffColors::palette;
    const int64_t step = indices ? ((codec_item == 1 ? 255 : 65535) / ((static_cast<int64_t>(1) << image_.bits) - 1)) : 1;
    for (int64_t i = 0; i < pixels; ++i) {
      for (int64_t s = 0; s < samples; ++s) {
        const uint8_t* in = row + ((first + i) * samples + s) * codec_item;
        uint8_t* target = out + (i * stride_ + s) * item_;
        if (!indices) {
          std::memcpy(target, in, static_cast<size_t>(item_));
          continue;
        }
        // libtiff scaled the index to the full range like a gray level; dividing by the step restores it. Only the first sample is an index.
        // Index 3 of 4 bits, for example, arrives as 3 * 17 = 51.
        uint16_t value = *in;
        if (codec_item == 2) std::memcpy(&value, in, sizeof value);
        value = static_cast<uint16_t>(s == 0 ? value / step : value);
        std::memcpy(target, &value, sizeof value);
      }
    }
  }

  const TiffImage& image_;
  const CropWindow part_;
  const DecodeStrips& decode_strips_;
  const int64_t item_;
  RowUnpacker unpacker_;
  int64_t stride_ = 0;
  uint8_t* out_ = nullptr;
  std::vector<Piece> batch_;
  std::vector<uint8_t> mirrored_;
};

}  // namespace

void decode_tiff_pieces(const TiffImage& image, const CropWindow& part, bool all_channels, const DecodeStrips& decode_strips, void* out) {
  const TiffColorConverter colors(image, all_channels);
  PieceReader reader(image, part, decode_strips);
  // Interleaved samples are read including those that are not needed; planes are read separately.
  const int64_t stride = image.planar ? colors.samples() : image.samples;
  if (!colors.is_needed() && stride == colors.channels()) return reader.read(stride, static_cast<uint8_t*>(out));
  const int64_t pixels = part.height * part.width;
  const auto samples = new_bytes(pixels * stride * item_bytes(image.dtype()));
  reader.read(stride, samples.get());
  colors.convert(samples.get(), stride, pixels, out);
}

}  // namespace ndd
