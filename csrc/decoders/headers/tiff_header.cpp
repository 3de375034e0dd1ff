// SPDX-License-Identifier: Apache-2.0
// TIFF and BigTIFF: the first directory. libtiff and nvImageCodec's parser take another one of two entries with the same tag, and where strips or tiles do
// not cover the image libtiff's rows are shorter than the parser's.
#include "decoders/headers/file_header.h"

#include "ndd/error.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

namespace ndd {
namespace {

enum Tag : int {
  kWidth = 256,
  kHeight = 257,
  kBits = 258,
  kCompression = 259,
  kPhotometric = 262,
  kStripOffsets = 273,
  kSamples = 277,
  kRowsPerStrip = 278,
  kStripBytes = 279,
  kPlanar = 284,
  kPalette = 320,
  kTileWidth = 322,
  kTileHeight = 323,
  kTileOffsets = 324,
  kTileBytes = 325,
  kSampleFormat = 339
};
enum Type : int { kShort = 3, kLong = 4, kLong8 = 16 };
constexpr int kPaletteColors = 3, kFloat = 3;
constexpr int64_t kMaxSamples = 32;  // of nvImageCodec

// A number of values in the file, which has been found to hold them.
struct Values {
  int type;
  uint64_t count;
  const uint8_t* data;
};

class Directory {
 public:
  explicit Directory(const EncodedImage& file) : file_(file), little_(file.data[0] == 'I'), big_(number(file.data + 2, 2) == 43) {
    const size_t start = big_ ? 16 : 8, count_bytes = big_ ? 8 : 2, entry = big_ ? 20 : 12;
    if (file.size < start || (big_ && (number(file.data + 4, 2) != 8 || number(file.data + 6, 2) != 0))) {
      damaged_header("it ends in its header");
    }
    const uint64_t at = big_ ? number(file.data + 8, 8) : number(file.data + 4, 4);
    if (at < start || at > file.size || file.size - at < count_bytes) damaged_header("its directory lies outside of the file");
    const uint64_t count = number(file.data + at, count_bytes);
    if (count == 0 || count > (file.size - at - count_bytes) / entry || count > 65535) damaged_header("its directory is longer than the file");
    const uint8_t* p = file.data + at + count_bytes;
    for (uint64_t i = 0; i < count; ++i, p += entry) {
      if (!entries_.emplace(static_cast<int>(number(p, 2)), p).second) damaged_header("it has the tag " + std::to_string(number(p, 2)) + " twice");
    }
  }

  bool has(int tag) const { return entries_.count(tag) != 0; }

  std::optional<Values> values(int tag) const {
    const auto found = entries_.find(tag);
    if (found == entries_.end()) return {};
    const uint8_t* p = found->second;
    const int type = static_cast<int>(number(p + 2, 2));
    const uint64_t count = big_ ? number(p + 4, 8) : number(p + 4, 4), place = big_ ? 8 : 4;
    if (type != kShort && type != kLong && !(big_ && type == kLong8)) wrong(tag, "has a type that is no whole number's");
    const uint64_t bytes = bytes_of(type);
    if (count == 0 || count > file_.size / bytes) wrong(tag, "has " + std::to_string(count) + " values");
    const uint8_t* inside = p + 4 + place;
    if (count * bytes <= place) return Values{type, count, inside};
    const uint64_t at = number(inside, place);
    if (at > file_.size || count * bytes > file_.size - at) wrong(tag, "has values outside of the file");
    return Values{type, count, file_.data + at};
  }

  uint64_t at(const Values& values, uint64_t i) const { return number(values.data + i * bytes_of(values.type), bytes_of(values.type)); }

  // The tag's only value.
  int64_t single(int tag, int64_t otherwise) const {
    const auto found = values(tag);
    if (!found) return otherwise;
    if (found->count != 1) wrong(tag, "has " + std::to_string(found->count) + " values");
    const uint64_t value = at(*found, 0);
    if (value > UINT32_MAX) wrong(tag, "is out of range");
    return static_cast<int64_t>(value);
  }

  // What the tag says of all samples of a pixel.
  int64_t of_samples(int tag, int64_t samples, int64_t otherwise) const {
    const auto found = values(tag);
    if (!found) return otherwise;
    if (found->type != kShort || (found->count != 1 && found->count < static_cast<uint64_t>(samples)))
      wrong(tag, "does not fit the samples of a pixel");
    for (uint64_t i = 1; i < found->count; ++i) {
      if (at(*found, i) != at(*found, 0)) wrong(tag, "is not the same for all samples of a pixel");
    }
    return static_cast<int64_t>(at(*found, 0));
  }

  [[noreturn]] static void wrong(int tag, const std::string& what) { damaged_header("its tag " + std::to_string(tag) + " " + what); }

 private:
  static uint64_t bytes_of(int type) { return type == kShort ? 2 : type == kLong ? 4 : 8; }

  uint64_t number(const uint8_t* p, size_t bytes) const {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value = value << 8 | p[little_ ? bytes - 1 - i : i];
    return value;
  }

  const EncodedImage& file_;
  const bool little_, big_;
  std::map<int, const uint8_t*> entries_;
};

[[noreturn]] void lacking(const std::string& kind) { fail("no CPU decoder for ", kind); }

// How much a compression shrinks at most; 0 where there is no bound.
double largest_ratio(int64_t compression) {
  switch (compression) {
    case 1: return 1;
    case 5: return 4096;  // LZW: a code of 12 bits stands for fewer bytes
    case 8:
    case 32946: return 1032;  // deflate
    case 32773: return 64;  // PackBits: two bytes for 128
    default: return 0;
  }
}

// Strips or tiles: the pieces that the samples lie in.
struct Pieces {
  int64_t width, height, across, down, planes;
};

int64_t parts(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

Pieces pieces_of(const Directory& tags, const FileHeader& header, int64_t samples) {
  const bool tiled = tags.has(kTileWidth) || tags.has(kTileHeight);
  const int64_t planes = tags.single(kPlanar, 1) == 2 ? samples : 1;
  int64_t width = header.width, height = 0;
  if (tiled) {
    if (tags.has(kRowsPerStrip)) damaged_header("it has both strips and tiles");
    width = tags.single(kTileWidth, 0);
    height = tags.single(kTileHeight, 0);
  } else {
    height = std::min(tags.single(kRowsPerStrip, UINT32_MAX), header.height);
  }
  if (width < 1 || height < 1) damaged_header("its strips or tiles have no pixels");
  return {width, height, parts(header.width, width), parts(header.height, height), planes};
}

// That the pieces cover the image, and that the file can hold them.
void check_data(const Directory& tags, const EncodedImage& file, FileHeader& header, int64_t samples, int64_t bits) {
  const Pieces pieces = pieces_of(tags, header, samples);
  // The codec counts the samples of a row or a tile in 32 bits.
  const double row = static_cast<double>(pieces.width) * static_cast<double>(samples);
  if (row * static_cast<double>(pieces.planes > 1 || !tags.has(kTileWidth) ? 1 : pieces.height) > INT32_MAX / 4)
    damaged_header("its rows or tiles are too large");

  if (tags.has(kStripOffsets) && tags.has(kTileOffsets)) damaged_header("it has both strips and tiles");
  const auto offsets = tags.values(tags.has(kTileOffsets) ? kTileOffsets : kStripOffsets);
  const auto lengths = tags.values(tags.has(kTileBytes) ? kTileBytes : kStripBytes);
  const double count = static_cast<double>(pieces.across) * static_cast<double>(pieces.down) * static_cast<double>(pieces.planes);
  if (!offsets || static_cast<double>(offsets->count) < count) damaged_header("it has fewer strips or tiles than its size needs");
  if (lengths && static_cast<double>(lengths->count) < count) damaged_header("it has fewer lengths of strips or tiles than its size needs");

  const int64_t compression = tags.single(kCompression, 1);
  if (compression == 0) damaged_header("its compression is 0");
  const double ratio = largest_ratio(compression), in_row = static_cast<double>(pieces.planes > 1 ? 1 : samples) * static_cast<double>(bits) / 8;
  double raw = 0, held = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(count) && ratio > 0; ++i) {
    const int64_t top = i / pieces.across % pieces.down * pieces.height;
    const int64_t rows = tags.has(kTileWidth) ? pieces.height : std::min(pieces.height, header.height - top);
    const double bytes = static_cast<double>(rows) * static_cast<double>(static_cast<int64_t>(static_cast<double>(pieces.width) * in_row + 0.99999));
    const uint64_t at = tags.at(*offsets, static_cast<uint64_t>(i));
    if (at > file.size) damaged_header("a strip or tile lies outside of the file");
    const uint64_t behind = file.size - at;
    if (compression == 1 && bytes > static_cast<double>(behind)) damaged_header("a strip or tile is longer than the file");
    raw += bytes;
    held += static_cast<double>(lengths ? std::min(behind, tags.at(*lengths, static_cast<uint64_t>(i))) : behind);
  }
  if (ratio > 0 && compression != 1 && raw > held * ratio) damaged_header("its strips or tiles are too short for its size");
}

}  // namespace

FileHeader read_tiff_header(const EncodedImage& file) {
  const Directory tags(file);
  FileHeader header;
  header.codec = "tiff";
  header.width = tags.single(kWidth, 0);
  header.height = tags.single(kHeight, 0);
  if (header.width < 1 || header.height < 1) damaged_header("its size is missing or zero");
  const int64_t samples = tags.single(kSamples, 1);
  if (samples < 1 || samples > kMaxSamples) damaged_header("it has " + std::to_string(samples) + " samples a pixel");
  const int64_t bits = tags.of_samples(kBits, samples, 1);
  if (bits < 1 || bits > 64) damaged_header("it has " + std::to_string(bits) + " bits a sample");
  const bool palette = tags.single(kPhotometric, 1) == kPaletteColors;
  if (palette) {
    const auto colors = tags.values(kPalette);
    if (bits > 16 || !colors || colors->type != kShort || colors->count != static_cast<uint64_t>(3) << bits)
      damaged_header("its palette does not fit its samples");
    if (samples != 1) lacking("TIFF with a palette and " + std::to_string(samples) + " samples a pixel");
  }
  const bool floats = tags.of_samples(kSampleFormat, samples, 1) == kFloat;
  header.channels = palette ? 3 : static_cast<int>(samples);
  header.dtype = palette ? DType::uint16 : floats ? DType::float32 : bits <= 8 ? DType::uint8 : bits <= 16 ? DType::uint16 : DType::uint32;
  // OpenCV's decoder delivers uninitialised samples.
  if (samples > 1 && bits != 8 && tags.single(kPlanar, 1) == 2) lacking("TIFF with planes of " + std::to_string(bits) + " bits a sample");
  check_data(tags, file, header, samples, bits);
  return header;
}

}  // namespace ndd
