// SPDX-License-Identifier: Apache-2.0
// The new directory leaves nothing to interpretation: its tags are written here, from values that were checked, and the compressed bytes are copied
// as they are.
#include "decoders/tiff/packed_strips.h"

#include "decoders/headers/file_header.h"

#include <algorithm>
#include <map>

namespace ndd {
namespace {

constexpr uint64_t kMaxJpegTables = 1 << 16;  // bytes; four Huffman tables of each kind and four quantization tables take 1,400

// Bytes of the file, the end excluded.
struct Range {
  uint64_t begin, end;
};

// Returns where pieces lie in the file. A piece without a length ends at the next piece or at the end of the file.
std::vector<Range> ranges_of(const TiffImage& image, const std::vector<int64_t>& pieces) {
  std::vector<uint64_t> starts;
  if (!image.lengths) {
    for (uint64_t i = 0; i < image.offsets->count; ++i) starts.push_back(image.tags.number_at(*image.offsets, i));
    std::sort(starts.begin(), starts.end());
  }
  std::vector<Range> ranges;
  for (const int64_t piece : pieces) {
    const uint64_t begin = image.tags.number_at(*image.offsets, static_cast<uint64_t>(piece)), size = image.file.size;
    // A length beyond the end is cut: libtiff decodes what is there.
    if (begin >= size) reject_header("a strip or tile lies outside of the file");
    uint64_t end = size;
    if (image.lengths) {
      end = begin + std::min(image.tags.number_at(*image.lengths, static_cast<uint64_t>(piece)), size - begin);
    } else if (const auto next = std::upper_bound(starts.begin(), starts.end(), begin); next != starts.end()) {
      end = std::min(*next, size);
    }
    if (end == begin) reject_header("a strip or tile is empty");
    ranges.push_back({begin, end});
  }
  return ranges;
}

// Writes a BigTIFF, little-endian, because its 64-bit offsets fit any input.
// Values longer than an entry's 8 bytes are written when they are added, the directory at the end. std::map keeps the tags in ascending order, as
// the format demands.
class Writer {
 public:
  explicit Writer(std::vector<uint8_t>& file) : file_(file) {}

  void put(uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i, value >>= 8) file_.push_back(static_cast<uint8_t>(value));
  }

  void add(int tag, int type, const std::vector<uint64_t>& values) {
    const size_t bytes = type == kTiffUndefined ? 1 : type == kTiffShort ? 2 : type == kTiffLong ? 4 : 8;
    Entry& entry = entries_[tag];
    entry.type = type;
    entry.count = values.size();
    // Short values are stored in the entry, from its first byte on.
    if (values.size() * bytes <= 8) {
      for (size_t i = 0; i < values.size(); ++i) entry.value |= values[i] << (8 * bytes * i);
      return;
    }
    align();
    // The directory will hold their offset.
    entry.value = file_.size();
    for (const uint64_t value : values) put(value, bytes);
  }

  void finish() {
    align();
    const uint64_t at = file_.size();
    put(entries_.size(), 8);
    for (const auto& [tag, entry] : entries_) {
      put(static_cast<uint64_t>(tag), 2);
      put(static_cast<uint64_t>(entry.type), 2);
      put(entry.count, 8);
      put(entry.value, 8);
    }
    put(0, 8);  // no further directory
    // The header reserved these bytes for the offset of the directory.
    for (size_t i = 0; i < 8; ++i) file_[8 + i] = static_cast<uint8_t>(at >> 8 * i);
  }

 private:
  struct Entry {
    int type = 0;
    uint64_t count = 0, value = 0;
  };

  void align() { file_.resize((file_.size() + 7) / 8 * 8); }

  std::vector<uint8_t>& file_;
  std::map<int, Entry> entries_;
};

}  // namespace

StripFormat strip_format(const TiffImage& image) {
  // A predictor is left out, too: RowUnpacker undoes it.
  if (is_byte_compression(image.compression)) return {image.packed_row_bytes(), 1, 8, false, 1, DType::uint8};
  const bool floating = image.kind == TiffSampleKind::floating;
  const int channels = static_cast<int>(image.samples_in_piece());
  // Declared as YCbCr only for JPEG, where libtiff converts it to RGB. All other colors are declared as RGB or gray, so libtiff leaves
  // the samples unchanged.
  const int64_t photometric = image.colors == TiffColors::ycbcr && !image.planar ? 6 : channels >= 3 ? 2 : 1;
  const DType dtype = floating ? DType::float32 : image.bits <= 8 ? DType::uint8 : DType::uint16;
  return {image.piece_width, channels, image.bits, floating, photometric, dtype};
}

PackedStrips pack_strips(const TiffImage& image, const std::vector<int64_t>& pieces, int64_t rows, int64_t last_rows) {
  const std::vector<Range> ranges = ranges_of(image, pieces);
  const StripFormat format = strip_format(image);
  const uint64_t begin = std::min_element(ranges.begin(), ranges.end(), [](Range a, Range b) { return a.begin < b.begin; })->begin;
  const uint64_t end = std::max_element(ranges.begin(), ranges.end(), [](Range a, Range b) { return a.end < b.end; })->end;

  PackedStrips packed;
  packed.height = static_cast<int64_t>(pieces.size() - 1) * rows + last_rows;
  packed.width = format.width;
  packed.channels = format.channels;
  packed.dtype = format.dtype;
  // The pieces are copied as one range with the gaps between them: in most files they are contiguous.
  packed.file.reserve(end - begin + 40 * pieces.size() + 512);
  Writer writer(packed.file);
  // The header of a BigTIFF: "II", 43, 8 bytes per offset, 0, and the offset of the directory, which finish() fills in.
  for (const uint64_t part : {0x4949, 43, 8, 0}) writer.put(part, 2);
  writer.put(0, 8);
  const uint64_t moved = packed.file.size();
  packed.file.insert(packed.file.end(), image.file.data + begin, image.file.data + end);
  if (image.reversed_bits) {  // so that libtiff needs no FillOrder
    for (size_t i = moved; i < packed.file.size(); ++i) packed.file[i] = reverse_bits(packed.file[i]);
  }

  std::vector<uint64_t> offsets, lengths;
  for (const Range& range : ranges) {
    offsets.push_back(range.begin - begin + moved);
    lengths.push_back(range.end - range.begin);
  }
  const auto channels = static_cast<size_t>(format.channels);
  writer.add(kTiffWidth, kTiffLong, {static_cast<uint64_t>(packed.width)});
  writer.add(kTiffHeight, kTiffLong, {static_cast<uint64_t>(packed.height)});
  writer.add(kTiffBits, kTiffShort, std::vector<uint64_t>(channels, static_cast<uint64_t>(format.bits)));
  writer.add(kTiffCompression, kTiffShort, {static_cast<uint64_t>(image.compression)});
  writer.add(kTiffPhotometric, kTiffShort, {static_cast<uint64_t>(format.photometric)});
  writer.add(kTiffStripOffsets, kTiffLong8, offsets);
  writer.add(kTiffSamples, kTiffShort, {channels});
  writer.add(kTiffRowsPerStrip, kTiffLong, {static_cast<uint64_t>(pieces.size() > 1 ? rows : last_rows)});
  writer.add(kTiffStripBytes, kTiffLong8, lengths);
  writer.add(kTiffPlanar, kTiffShort, {1});
  if (format.floating) writer.add(kTiffSampleFormat, kTiffShort, std::vector<uint64_t>(channels, 3));
  // Fax options determine how the codes are read: one or two dimensions, fill bits.
  for (const int tag : {kTiffFax3Options, kTiffFax4Options}) {
    if (image.tags.has(tag)) writer.add(tag, kTiffLong, {static_cast<uint64_t>(image.tags.number(tag, 0))});
  }
  if (format.photometric == 6) {
    std::vector<uint64_t> steps{2, 2};
    if (const auto found = image.tags.numbers(kTiffSubsampling); found && found->count >= 2)
      steps = {image.tags.number_at(*found, 0) & 0xffff, image.tags.number_at(*found, 1) & 0xffff};
    writer.add(kTiffSubsampling, kTiffShort, steps);
  }
  if (image.tags.has(kTiffJpegTables)) {
    const auto tables = image.tags.values(kTiffJpegTables);
    if (tables->type != kTiffUndefined && tables->type != kTiffByte) TiffDirectory::reject(kTiffJpegTables, "does not hold bytes");
    if (tables->count > kMaxJpegTables) TiffDirectory::reject(kTiffJpegTables, "has " + std::to_string(tables->count) + " values");
    writer.add(kTiffJpegTables, kTiffUndefined, {tables->data, tables->data + tables->count});
  }
  writer.finish();
  return packed;
}

}  // namespace ndd
