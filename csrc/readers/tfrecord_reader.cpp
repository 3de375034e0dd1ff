// SPDX-License-Identifier: Apache-2.0
// TFRecords: length (8 bytes), checksum of the length (4), an Example, its checksum (4). Only the checksum of the length is verified: it protects the
// structure of the file.
#include <array>
#include <cstring>

#include "ndd/error.h"
#include "ndd/python_interface.h"
#include "readers/example.h"
#include "readers/file_window.h"
#include "readers/record_request.h"
#include "readers/scan.h"

namespace ndd {
namespace {

constexpr int64_t kHeader = 12, kFooter = 4;

// Returns the length of the Example. `available`: bytes from the header to the end. A checksum of zero means that none was written; but
// zeros in place of the whole header are an error, because a preallocated file is not a sequence of empty records.
int64_t example_length(const char* header, int64_t available, bool checked) {
  if (available < kHeader) fail("the record ends within its header");
  const auto length = load<uint64_t>(header);
  const auto checksum = load<uint32_t>(header + 8);
  if (checksum == 0 && length == 0) fail("there are zeros where a record should begin");
  if (checked && checksum != 0 && masked_crc32c(header, 8) != checksum) fail("the checksum of the record's length is wrong");
  if (available < kHeader + kFooter || length > static_cast<uint64_t>(available - kHeader - kFooter)) {
    fail("the record has ", length, " bytes, but the file ends earlier");
  }
  return static_cast<int64_t>(length);
}

class ExampleRequest : public RecordRequest {
 public:
  ExampleRequest(std::shared_ptr<OpenFiles> files, FileRanges ranges, std::vector<Feature> features, bool checked)
      : RecordRequest(std::move(files), std::move(ranges), static_cast<int64_t>(features.size())), features_(std::move(features)), checked_(checked) {
  }

 protected:
  void parse(RecordBytes& record, std::vector<RecordPart>& parts) const override {
    const int64_t available = record.length();
    const int64_t length = example_length(record.at(0, std::min(available, kHeader)).data(), available, checked_);
    if (length != available - kHeader - kFooter) fail("the length of the record differs from the one in the index");
    parse_example(record, kHeader, kHeader + length, features_, parts);
  }

 private:
  const std::vector<Feature> features_;
  const bool checked_;
};

}  // namespace

// CRC-32C (Castagnoli), reflected. The mask, a rotation and a constant, is TFRecord's own: the CRC of data that contain a CRC would be weak.
uint32_t masked_crc32c(const char* data, int64_t bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> entries{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0x82F63B78u : 0u);
      entries[i] = value;
    }
    return entries;
  }();
  uint32_t crc = ~0u;
  for (int64_t i = 0; i < bytes; ++i) crc = table[(crc ^ static_cast<uint8_t>(data[i])) & 255] ^ (crc >> 8);
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

Scan scan_tfrecords(const std::string& path, bool checked) {
  FileWindow file(path);
  Scan scan;
  for (int64_t at = 0; at < file.size();) {
    const int64_t available = file.size() - at;
    try {
      const char* header = file.at(at, std::min(kHeader, available));
      if (!header) fail("the file became shorter while it was read");
      const int64_t length = kHeader + example_length(header, available, checked) + kFooter;
      scan.begins.push_back(at);
      scan.lengths.push_back(length);
      at += length;
    } catch (const std::exception& error) {
      // The records before the damage can still be read.
      if (at == 0) throw;
      scan.damaged = at;
      scan.reason = error.what();
      break;
    }
  }
  return scan;
}

}  // namespace ndd

// Starts to read records, see ndd_ranges_start. The features of each record: names, and the elements to use for absent features, both with offsets.
NDD_EXPORT(release, void*, ndd_examples_start,
           (void* files, const char* root, const char* paths, const int64_t* offsets, const int32_t* numbers, const int64_t* begins,
            const int64_t* lengths, int64_t n, const char* names, const int64_t* name_offsets, const char* missing, const int64_t* missing_offsets,
            const int64_t* types, const int64_t* counts, const int64_t* rows, int64_t n_features, int checked)) {
  std::vector<ndd::Feature> features;
  for (int64_t k = 0; k < n_features; ++k) {
    features.push_back({std::string(names + name_offsets[k], static_cast<size_t>(name_offsets[k + 1] - name_offsets[k])),
                        ndd::Feature::Type(types[k]), counts[k], rows[k],
                        std::string(missing + missing_offsets[k], static_cast<size_t>(missing_offsets[k + 1] - missing_offsets[k]))});
  }
  auto request =
      std::make_shared<ndd::ExampleRequest>(*static_cast<std::shared_ptr<ndd::OpenFiles>*>(files),
                                            ndd::file_ranges(root, paths, offsets, numbers, begins, lengths, n), std::move(features), checked != 0);
  ndd::start_reading(request);
  return ndd::handles<ndd::ReadRequestPtr>().make(std::move(request));
}

// For writers of such files.
NDD_EXPORT(release, uint32_t, ndd_masked_crc32c, (const char* data, int64_t bytes)) { return ndd::masked_crc32c(data, bytes); }
