// SPDX-License-Identifier: Apache-2.0
// Reads records of several parts, each of which becomes its own batch. Parsing a record finds the parts; large ones are then read directly
// to their places in the batch, without another copy.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "readers/range_reader.h"

namespace ndd {

// The bytes of a record, read on demand in small windows.
class RecordBytes {
 public:
  RecordBytes(const OpenFile& file, int64_t begin, int64_t length) : file_(file), begin_(begin), length_(length) {}

  int64_t length() const { return length_; }
  // Returns [begin, begin + length), which must lie within the record. Valid until the next call.
  std::string_view at(int64_t begin, int64_t length) {
    if (begin < window_begin_ || begin + length > window_begin_ + static_cast<int64_t>(window_.size())) {
      // The window starts at the request, because records are parsed from front to back.
      window_.resize(std::min(std::max(length, kWindow), length_ - begin));
      window_begin_ = begin;
      file_.read(&window_[0], begin_ + begin, static_cast<int64_t>(window_.size()));
    }
    return {window_.data() + (begin - window_begin_), static_cast<size_t>(length)};
  }

 private:
  static constexpr int64_t kWindow = 512;  // bytes; headers are short, and the data of parts is skipped
  const OpenFile& file_;
  const int64_t begin_, length_;
  std::string window_;
  int64_t window_begin_ = 0;
};

// One part of a record: a sequence of bytes and of ranges of the record.
struct RecordPart {
  struct Piece {
    std::string bytes;
    int64_t begin = 0, length = 0;  // of a range; if the length is 0, `bytes` is used
    int64_t size() const { return length > 0 ? length : static_cast<int64_t>(bytes.size()); }
  };
  std::vector<Piece> pieces;

  void add(std::string bytes) {
    // Joined, because a piece takes ten times the memory of a number.
    if (!pieces.empty() && pieces.back().length == 0) {
      pieces.back().bytes += bytes;
    } else {
      pieces.push_back({std::move(bytes), 0, 0});
    }
  }
  void add_range(int64_t begin, int64_t length) {
    if (length > 0) pieces.push_back({{}, begin, length});
  }
  // Adds bytes of the record: a few by a copy, more as a range, which is read into the batch later.
  void add_slice(RecordBytes& record, int64_t begin, int64_t length) {
    length <= kMaxCopiedBytes ? add(std::string(record.at(begin, length))) : add_range(begin, length);
  }
  int64_t size() const {
    int64_t total = 0;
    for (const auto& piece : pieces) total += piece.size();
    return total;
  }

 private:
  static constexpr int64_t kMaxCopiedBytes = 1024;
};

class RecordRequest : public ReadRequest {
 public:
  RecordRequest(std::shared_ptr<OpenFiles> files, FileRanges ranges, int64_t outputs);

  // One output of all samples.
  struct Output {
    Memory memory;
    std::vector<int64_t> offsets;
  };
  std::vector<Output>& outputs() { return outputs_; }

 protected:
  // Finds the parts of a record. Throws Error if it is damaged.
  virtual void parse(RecordBytes& record, std::vector<RecordPart>& parts) const = 0;
  void measure(int64_t sample) final;
  void allocate() final;
  void read(int64_t sample) final;
  void measure_some(int64_t begin, int64_t end, Reasons& reasons) final;
  void read_some(int64_t begin, int64_t end, Reasons& reasons) final;

 private:
  OpenFilePtr open(int64_t sample) const { return files_->get(ranges_.parts[sample].file, ranges_.path(sample)); }
  template <class Visit>
  void for_pieces(int64_t sample, const Visit& visit) const;
  void copy_bytes(int64_t sample);
  bool add_to(CloseRanges& run, int64_t sample) const;

  const std::shared_ptr<OpenFiles> files_;
  FileRanges ranges_;
  // Parts of each sample, by output.
  std::vector<std::vector<RecordPart>> samples_;
  std::vector<Output> outputs_;
  std::vector<OpenFilePtr> opened_;  // by sample
  std::vector<int64_t> order_;       // samples in the order of their files and offsets
};

}  // namespace ndd
