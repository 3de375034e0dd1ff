// SPDX-License-Identifier: Apache-2.0
// A tag is looked up by number; its values stay in the file and are converted when they are read. No count of the file leads to an allocation beyond
// the file's own size.
#include "decoders/tiff/directory.h"

#include "decoders/headers/file_header.h"
#include "ndd/same_bits.h"

#include <cstring>
#include <utility>

namespace ndd {
namespace {

// The tags that are read, here or by libtiff: a second entry of one of them is rejected.
bool is_known(int tag) {
  constexpr int kKnown[] = {kTiffWidth,        kTiffHeight,      kTiffBits,        kTiffCompression,  kTiffPhotometric,  kTiffFillOrder,
                            kTiffStripOffsets, kTiffOrientation, kTiffSamples,     kTiffRowsPerStrip, kTiffStripBytes,   kTiffPlanar,
                            kTiffFax3Options,  kTiffFax4Options, kTiffPredictor,   kTiffWhitePoint,   kTiffPalette,      kTiffTileWidth,
                            kTiffTileHeight,   kTiffTileOffsets, kTiffTileBytes,   kTiffInkSet,       kTiffExtraSamples, kTiffSampleFormat,
                            kTiffJpegTables,   kTiffLuma,        kTiffSubsampling, kTiffBlackWhite};
  // 512 to 521 are the tags of old-style JPEG, which libtiff reads.
  return (tag >= 512 && tag <= 521) || std::find(std::begin(kKnown), std::end(kKnown), tag) != std::end(kKnown);
}

// Returns the size of a value in bytes, 0 for an unknown type.
uint64_t bytes_of(int type) {
  // 1 to 12 are the types of TIFF 6.0, 13 is IFD, 16 to 18 are the 8-byte integers and offsets of BigTIFF.
  constexpr uint8_t kBytes[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8};
  return static_cast<size_t>(type) < std::size(kBytes) ? kBytes[type] : 0;
}

}  // namespace

// A file begins with its byte order, 42 (BigTIFF: 43) and the offset of the first directory: a count and entries of tag, type, number of values,
// and the values or their offset. BigTIFF adds the size of an offset (8) and a zero after the 43.
TiffDirectory::TiffDirectory(const EncodedImage& file) : file_(file), little_(file.data[0] == 'I'), big_(read(file.data + 2, 2) == 43) {
  const size_t start = big_ ? 16 : 8, count_bytes = big_ ? 8 : 2, entry = big_ ? 20 : 12;
  if (file.size < start || (big_ && (read(file.data + 4, 2) != 8 || read(file.data + 6, 2) != 0))) reject_header("it ends in its header");
  // Comparisons are written as differences, because the sum of a hostile offset and a length may overflow.
  const uint64_t at = big_ ? read(file.data + 8, 8) : read(file.data + 4, 4);
  if (at < start || at > file.size || file.size - at < count_bytes) reject_header("its directory lies outside of the file");
  const uint64_t count = read(file.data + at, count_bytes);
  // 65535 is what a count of TIFF can express; more in a BigTIFF would only cost time.
  if (count == 0 || count > (file.size - at - count_bytes) / entry || count > 65535) reject_header("its directory is longer than the file");
  const uint8_t* p = file.data + at + count_bytes;
  for (uint64_t i = 0; i < count; ++i, p += entry) {
    const int tag = static_cast<int>(read(p, 2));
    if (!entries_.emplace(tag, p).second && is_known(tag)) reject_header("it has the tag " + std::to_string(tag) + " twice");
  }
}

std::optional<TiffValues> TiffDirectory::values(int tag) const {
  const auto found = entries_.find(tag);
  if (found == entries_.end()) return {};
  const uint8_t* p = found->second;
  const int type = static_cast<int>(read(p + 2, 2));
  const uint64_t count = big_ ? read(p + 4, 8) : read(p + 4, 4), place = big_ ? 8 : 4, bytes = bytes_of(type);
  if (bytes == 0) reject(tag, "has the unknown type " + std::to_string(type));
  // The bound also keeps the product below from overflowing.
  if (count == 0 || count > file_.size / bytes) reject(tag, "has " + std::to_string(count) + " values");
  // Values that fit into the place of an offset are stored there.
  const uint8_t* inside = p + 4 + place;
  if (count * bytes <= place) return TiffValues{type, count, inside};
  const uint64_t at = read(inside, place);
  if (at > file_.size || count * bytes > file_.size - at) reject(tag, "has values outside of the file");
  return TiffValues{type, count, file_.data + at};
}

std::optional<TiffValues> TiffDirectory::numbers(int tag) const {
  const auto found = values(tag);
  if (found && found->type != kTiffByte && found->type != kTiffShort && found->type != kTiffLong && found->type != kTiffLong8)
    reject(tag, "is not an integer");
  return found;
}

uint64_t TiffDirectory::number_at(const TiffValues& values, uint64_t i) const {
  const uint64_t bytes = bytes_of(values.type);
  return read(values.data + i * bytes, bytes);
}

int64_t TiffDirectory::number(int tag, int64_t otherwise) const {
  const auto found = numbers(tag);
  if (!found) return otherwise;
  if (found->count != 1) reject(tag, "has " + std::to_string(found->count) + " values");
  const uint64_t value = number_at(*found, 0);
  if (value > UINT32_MAX) reject(tag, "is out of range");
  return static_cast<int64_t>(value);
}

std::vector<double> TiffDirectory::reals(int tag, std::vector<double> defaults) const {
  const auto found = values(tag);
  if (!found) return defaults;
  // More values than needed are ignored, as in libtiff.
  if (found->count < defaults.size()) reject(tag, "has " + std::to_string(found->count) + " values");
  for (size_t i = 0; i < defaults.size(); ++i) {
    const uint64_t bytes = bytes_of(found->type);
    const uint8_t* p = found->data + i * bytes;
    if (found->type == kTiffRational) {
      const uint64_t below = read(p + 4, 4);
      if (below == 0) reject(tag, "has a zero denominator");
      defaults[i] = static_cast<double>(read(p, 4)) / static_cast<double>(below);
    } else if (found->type == kTiffFloat || found->type == kTiffDouble) {
      const uint64_t pattern = read(p, bytes);
      if (found->type == kTiffDouble) defaults[i] = same_bits<double>(pattern);
      else defaults[i] = static_cast<double>(same_bits<float>(static_cast<uint32_t>(pattern)));
    } else {
      reject(tag, "is not a real number");
    }
  }
  return defaults;
}

// The old directory stays in the file and becomes unreachable; its values keep their offsets.
std::vector<uint8_t> TiffDirectory::with_numbers(const std::map<int, uint16_t>& changed) const {
  const size_t count_bytes = big_ ? 8 : 2, entry = big_ ? 20 : 12, place = big_ ? 8 : 4;
  std::map<int, const uint8_t*> tags = entries_;
  for (const auto& [tag, value] : changed) tags[tag] = nullptr;
  std::vector<uint8_t> copy(file_.data, file_.data + file_.size);
  copy.resize(copy.size() + copy.size() % 2);  // directories begin at even offsets
  const uint64_t at = copy.size();
  copy.resize(copy.size() + count_bytes + tags.size() * entry + place);  // ends with a zero offset: no further directory
  uint8_t* p = copy.data() + at;
  const auto write = [&](uint8_t* to, size_t bytes, uint64_t value) { write_number(to, bytes, little_, value); };
  write(p, count_bytes, tags.size());
  p += count_bytes;
  for (const auto& [tag, old] : tags) {
    if (old) {
      std::memcpy(p, old, entry);
    } else {
      write(p, 2, static_cast<uint64_t>(tag));
      write(p + 2, 2, kTiffShort);
      write(p + 4, place, 1);
      // A SHORT lies at the beginning of the place of the offset, in both byte orders; the rest is zero.
      write(p + 4 + place, 2, changed.at(tag));
    }
    p += entry;
  }
  if (big_) write(copy.data() + 8, 8, at);
  else write(copy.data() + 4, 4, at);
  return copy;
}

void TiffDirectory::reject(int tag, const std::string& what) { reject_header("its tag " + std::to_string(tag) + " " + what); }

}  // namespace ndd
