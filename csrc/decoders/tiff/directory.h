// SPDX-License-Identifier: Apache-2.0
// The first directory of a TIFF or BigTIFF file: its tags and their values, all checked to lie within the file.
#pragma once

#include "decoders/encoded_image.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ndd {

// The tags that determine the pixels, for this library or for libtiff.
enum TiffTag : int {
  kTiffWidth = 256,
  kTiffHeight = 257,
  kTiffBits = 258,
  kTiffCompression = 259,
  kTiffPhotometric = 262,
  kTiffFillOrder = 266,
  kTiffStripOffsets = 273,
  kTiffOrientation = 274,
  kTiffSamples = 277,
  kTiffRowsPerStrip = 278,
  kTiffStripBytes = 279,
  kTiffPlanar = 284,
  kTiffFax3Options = 292,
  kTiffFax4Options = 293,
  kTiffPredictor = 317,
  kTiffWhitePoint = 318,
  kTiffPalette = 320,
  kTiffTileWidth = 322,
  kTiffTileHeight = 323,
  kTiffTileOffsets = 324,
  kTiffTileBytes = 325,
  kTiffInkSet = 332,
  kTiffExtraSamples = 338,
  kTiffSampleFormat = 339,
  kTiffJpegTables = 347,
  kTiffLuma = 529,
  kTiffSubsampling = 530,
  kTiffBlackWhite = 532
};

// The types of TIFF 6.0 and BigTIFF whose values are read here; bytes_of() knows all.
enum TiffType : int {
  kTiffByte = 1,
  kTiffShort = 3,
  kTiffLong = 4,
  kTiffRational = 5,
  kTiffUndefined = 7,
  kTiffFloat = 11,
  kTiffDouble = 12,
  kTiffLong8 = 16
};

// The values of a tag, in the file.
struct TiffValues {
  int type;
  uint64_t count;
  const uint8_t* data;
};

// A number of up to 8 bytes, in the byte order of a file.
inline uint64_t read_number(const uint8_t* p, size_t bytes, bool little_endian) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value = value << 8 | p[little_endian ? bytes - 1 - i : i];
  return value;
}

inline void write_number(uint8_t* p, size_t bytes, bool little_endian, uint64_t value) {
  for (size_t i = 0; i < bytes; ++i, value >>= 8) p[little_endian ? i : bytes - 1 - i] = static_cast<uint8_t>(value);
}

class TiffDirectory {
 public:
  // Throws Error for a directory outside the file, and for two entries with one of the tags above: parsers would differ in which one they use.
  explicit TiffDirectory(const EncodedImage& file);

  bool has(int tag) const { return entries_.count(tag) != 0; }
  bool little_endian() const { return little_; }

  // Returns values of any type, or nothing if the tag is absent.
  std::optional<TiffValues> values(int tag) const;
  // Returns unsigned integers of any size. Throws Error for other types.
  std::optional<TiffValues> numbers(int tag) const;
  uint64_t number_at(const TiffValues& values, uint64_t i) const;

  // Returns the only value of a tag.
  int64_t number(int tag, int64_t otherwise) const;
  // Returns the first `defaults.size()` rational or floating-point values.
  std::vector<double> reals(int tag, std::vector<double> defaults) const;

  // Returns a copy of the file in which some tags have other values, one number each: a new directory is appended.
  std::vector<uint8_t> with_numbers(const std::map<int, uint16_t>& changed) const;

  [[noreturn]] static void reject(int tag, const std::string& what);

 private:
  uint64_t read(const uint8_t* p, size_t bytes) const { return read_number(p, bytes, little_); }

  EncodedImage file_;
  // Byte order of the file, and whether it is a BigTIFF, whose offsets have 64 bits.
  bool little_, big_;
  // Entries in the file, by tag. Their values are checked when they are requested.
  std::map<int, const uint8_t*> entries_;
};

}  // namespace ndd
