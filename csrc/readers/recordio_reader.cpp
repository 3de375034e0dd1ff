// SPDX-License-Identifier: Apache-2.0
// Records of images in MXNet's format: flag (4 bytes), label (4), two ids (16), as many labels as the flag states, the image.
#include <cstring>

#include "ndd/error.h"
#include "ndd/python_interface.h"
#include "readers/record_request.h"
#include "readers/recordio.h"

namespace ndd {
namespace {

constexpr int64_t kImageHeader = 24;

class ImageRecordRequest : public RecordRequest {
 public:
  ImageRecordRequest(std::shared_ptr<OpenFiles> files, FileRanges ranges) : RecordRequest(std::move(files), std::move(ranges), 2) {}

 protected:
  // Output 0 is the image, output 1 its labels.
  void parse(RecordBytes& record, std::vector<RecordPart>& parts) const override {
    Content content = content_of(record);
    const std::string header = content.take(record, kImageHeader);
    if (static_cast<int64_t>(header.size()) < kImageHeader) fail("the record has no room for the header of an image");
    uint32_t labels;
    std::memcpy(&labels, header.data(), 4);
    // A flag of zero: the only label is in the header; otherwise the flag counts labels behind it.
    std::string values = labels > 0 ? content.take(record, int64_t{4} * labels) : header.substr(4, 4);
    if (labels > 0 && values.size() < size_t{4} * labels) fail("the record has no room for ", labels, " labels");
    parts[1].add(std::move(values));
    parts[0].pieces = std::move(content.pieces);
  }

 private:
  // The data of a record, joined from its parts.
  struct Content : RecordPart {
    // Removes and returns up to `bytes` bytes from the front.
    std::string take(RecordBytes& record, int64_t bytes) {
      std::string taken;
      while (bytes > 0 && !pieces.empty()) {
        auto& piece = pieces.front();
        const int64_t count = std::min(bytes, piece.size());
        if (piece.length > 0) {
          taken.append(record.at(piece.begin, count));
          piece.begin += count;
          piece.length -= count;
        } else {
          taken.append(piece.bytes, 0, static_cast<size_t>(count));
          piece.bytes.erase(0, static_cast<size_t>(count));
        }
        bytes -= count;
        if (piece.size() == 0) pieces.erase(pieces.begin());
      }
      return taken;
    }
  };

  static Content content_of(RecordBytes& record) {
    Content content;
    for (int64_t at = 0;;) {
      const int64_t available = record.length() - at;
      const RecordIOPart part = recordio_part(record.at(at, std::min(available, kRecordIOHeader)).data(), available);
      // The first part, and only that, is a whole record (0) or the first of several (1).
      if ((at == 0) != (part.kind < 2)) fail("the parts of a record are not in order");
      // The magic number at which the data was split.
      if (at > 0) content.add(std::string(reinterpret_cast<const char*>(&kRecordIOMagic), 4));
      content.add_range(at + kRecordIOHeader, part.length);
      if (part.kind == 0 || part.kind == 3) return content;
      at = std::min(at + kRecordIOHeader + (part.length + 3) / 4 * 4, record.length());
    }
  }
};

}  // namespace
}  // namespace ndd

// Starts to read records, see ndd_ranges_start.
NDD_EXPORT(release, void*, ndd_image_records_start,
           (void* files, const char* root, const char* paths, const int64_t* offsets, const int32_t* numbers, const int64_t* begins,
            const int64_t* lengths, int64_t n)) {
  auto request = std::make_shared<ndd::ImageRecordRequest>(*static_cast<std::shared_ptr<ndd::OpenFiles>*>(files),
                                                           ndd::file_ranges(root, paths, offsets, numbers, begins, lengths, n));
  ndd::start_reading(request);
  return ndd::handles<ndd::ReadRequestPtr>().make(std::move(request));
}
