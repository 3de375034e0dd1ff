// SPDX-License-Identifier: Apache-2.0
// Byte ranges of files as packed batches, one for each component of the samples. A whole file is a range of unknown length.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ndd/samples.h"
#include "readers/open_files.h"
#include "readers/read_ahead.h"

namespace ndd {

// Bytes that belong to a tensor in the end.
struct FreeMemory {
  size_t pooled = 0;  // bytes of a block of the pool of ndd/stream/host_memory.h
  std::optional<Tensor> pinned{};  // whose memory it is
  void operator()(char* data) const;
};
using Memory = std::unique_ptr<char, FreeMemory>;

// Error with the number of bytes.
Memory allocate_memory(int64_t bytes);
Tensor tensor_of(Memory memory, int64_t bytes);

struct FileRange {
  int64_t file;           // below 0: nothing
  int64_t begin, length;  // length below 0: to the end of the file
};
// Makes an open length a number. Error when the file is shorter.
void check_range(FileRange& range, int64_t file_size);

// What ndd_*_start is given about the ranges. The paths are in one text: with a string for each of 64, a batch takes the pipeline's thread 15 us longer.
struct GivenRanges {
  std::string paths;
  std::vector<size_t> ends;  // of each path
  std::vector<FileRange> parts;
  std::vector<int32_t> path_of;  // the number of the path of each part: neighbors in a container share one
  std::string path(int64_t part) const {
    const auto k = static_cast<size_t>(path_of[static_cast<size_t>(part)]);
    const size_t begin = k > 0 ? ends[k - 1] : 0;
    return paths.substr(begin, ends[k] - begin);
  }
};
// begins[k] and lengths[k] belong to numbers[k], a file whose path lies in `paths` with the others, one after the other with the given offsets,
// behind `root`. Numbers below 0 stand for nothing; without begins: whole files.
GivenRanges given_ranges(const char* root, const char* paths, const int64_t* offsets, const int32_t* numbers, const int64_t* begins,
                         const int64_t* lengths, int64_t n);

class RangeRequest : public ReadRequest {
 public:
  using Part = FileRange;
  // The parts of `components` batches, one batch after the other.
  RangeRequest(std::shared_ptr<OpenFiles> files, GivenRanges given, int64_t components);

  const std::vector<Part>& parts() const { return given_.parts; }
  // Of each part and of the end, in bytes(). Every component begins at a multiple of 64, so that its bytes may become numbers.
  const std::vector<int64_t>& offsets() const { return offsets_; }
  const char* bytes() const { return memory_.get(); }
  Tensor take_bytes() { return tensor_of(std::move(memory_), offsets_.back()); }

 protected:
  void measure(int64_t part) override;
  void allocate() override;
  void read(int64_t part) override;
  void measure_some(int64_t begin, int64_t end, Reasons& reasons) override;
  void read_some(int64_t begin, int64_t end, Reasons& reasons) override;

 private:
  OpenFilePtr open(int64_t part) const;

  const std::shared_ptr<OpenFiles> files_;  // null: each file is opened for one part
  GivenRanges given_;
  const int64_t components_;
  std::vector<OpenFilePtr> opened_;
  std::vector<int64_t> offsets_;
  std::vector<int64_t> order_;  // parts as they lie in their files; empty: as they are
  Memory memory_;
};

}  // namespace ndd
