// SPDX-License-Identifier: Apache-2.0
#include "decoders/tiff/directory.h"

#include "decoders/headers/file_header.h"

#include <cstring>
#include <utility>

namespace ndd {
namespace {

bool is_known(int tag) {
  switch (tag) {
    case kTiffWidth:
    case kTiffHeight:
    case kTiffBits:
    case kTiffCompression:
    case kTiffPhotometric:
    case kTiffFillOrder:
    case kTiffStripOffsets:
    case kTiffOrientation:
    case kTiffSamples:
    case kTiffRowsPerStrip:
    case kTiffStripBytes:
    case kTiffPlanar:
    case kTiffFax3Options:
    case kTiffFax4Options:
    case kTiffPredictor:
    case kTiffWhitePoint:
    case kTiffPalette:
    case kTiffTileWidth:
    case kTiffTileHeight:
    case kTiffTileOffsets:
    case kTiffTileBytes:
    case kTiffInkSet:
    case kTiffExtraSamples:
    case kTiffSampleFormat:
    case kTiffJpegTables:
    case kTiffLuma:
    case kTiffSubsampling:
    case kTiffBlackWhite: return true;
    // The tags of old-style JPEG, which libtiff reads.
    default: return tag >= 512 && tag <= 521;
  }
}

// Returns the size of a value, 0 for an unknown type.
uint64_t bytes_of(int type) {
  switch (type) {
    case 1:
    case 2:
    case 6:
    case 7: return 1;
    case 3:
    case 8: return 2;
    case 4:
    case 9:
    case 11:
    case 13: return 4;
    case 5:
    case 10:
    case 12:
    case 16:
    case 17:
    case 18: return 8;
    default: return 0;
  }
}

}  // namespace

TiffDirectory::TiffDirectory(const EncodedImage& file) : file_(file), little_(file.data[0] == 'I'), big_(read(file.data + 2, 2) == 43) {
  const size_t start = big_ ? 16 : 8, count_bytes = big_ ? 8 : 2, entry = big_ ? 20 : 12;
  if (file.size < start || (big_ && (read(file.data + 4, 2) != 8 || read(file.data + 6, 2) != 0))) reject_header("it ends in its header");
  // Comparisons are written as differences, because the sum of a hostile offset and a length may overflow.
  const uint64_t at = big_ ? read(file.data + 8, 8) : read(file.data + 4, 4);
  if (at < start || at > file.size || file.size - at < count_bytes) reject_header("its directory lies outside of the file");
  const uint64_t count = read(file.data + at, count_bytes);
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
    reject(tag, "is not a whole number");
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
      const auto single = static_cast<uint32_t>(pattern);
      float narrow;
      if (found->type == kTiffDouble) std::memcpy(&defaults[i], &pattern, sizeof pattern);
      else std::memcpy(&narrow, &single, sizeof single), defaults[i] = static_cast<double>(narrow);
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
