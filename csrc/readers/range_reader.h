// SPDX-License-Identifier: Apache-2.0
// Reads byte ranges of files into packed batches, one for each component of the samples. A whole file is a range of unknown length.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ndd/handles.h"
#include "ndd/samples.h"
#include "readers/open_files.h"
#include "readers/read_ahead.h"

namespace ndd {

// Memory that a tensor will own.
struct FreeMemory {
  size_t pooled = 0;  // size of a block of the pool in ndd/stream/host_memory.h, else 0
  std::optional<Tensor> pinned{};  // the owner of pinned memory
  void operator()(char* data) const;
};
using Memory = std::unique_ptr<char, FreeMemory>;

// Allocates memory. Throws Error with the number of bytes.
Memory allocate_memory(int64_t bytes);
Tensor tensor_of(Memory memory, int64_t bytes);
// The same for the memory of a request, whose samples end at the last of `offsets`. Throws if it was taken before, or if nothing was read.
Tensor take_memory(Memory& memory, const std::vector<int64_t>& offsets);

struct FileRange {
  int64_t file;           // negative: no file, an empty part
  int64_t begin, length;  // -1: up to the end of the file; -1 - n: the same, but at most n bytes
};
// Checks a range against the size of its file, and replaces a negative length by the actual one. Throws Error if the file is too short.
void check_range(FileRange& range, int64_t file_size);

// The requested ranges of a batch. The paths are stored in one string: separate strings for 64 paths cost the calling thread 15 us per batch.
struct FileRanges {
  std::string paths;
  std::vector<size_t> ends;  // of the paths
  std::vector<FileRange> parts;
  std::vector<int32_t> path_of;  // index of the path of each part; neighbors in a container share one
  std::string path(int64_t part) const {
    const auto k = static_cast<size_t>(path_of[static_cast<size_t>(part)]);
    const size_t begin = k > 0 ? ends[k - 1] : 0;
    return paths.substr(begin, ends[k] - begin);
  }
};
// Converts the arguments of ndd_*_start. Part k is [begins[k], begins[k] + lengths[k]) of file numbers[k], whose path is `root` followed by
// the text between offsets[number] and offsets[number + 1] in `paths`. Negative numbers are empty parts; without `begins`, parts are whole
// files.
FileRanges file_ranges(const char* root, const char* paths, const int64_t* offsets, const int32_t* numbers, const int64_t* begins,
                       const int64_t* lengths, int64_t n);

// Returns the parts in the order of their files and offsets.
std::vector<int64_t> order_of(const std::vector<FileRange>& parts);

// Ranges of one file that follow each other closely, in the order of their offsets: they are read by one call, together with the gaps.
class CloseRanges {
 public:
  // Adds [begin, begin + length), which is read to `out`. Returns false if it is too far from the last range, or if there are enough.
  bool add(int64_t begin, int64_t length, char* out);
  void clear() { places_.clear(); }
  bool empty() const { return places_.empty(); }
  // Returns false if one system call did not read everything.
  bool read(const OpenFile& file) const { return file.read_scattered(places_, begin_); }

 private:
  std::vector<iovec> places_;
  int64_t begin_ = 0, end_ = 0;
};

// The phases of a ReadRequest: measure() opens files and checks ranges, allocate() lays out the batches, read() fills them.
// Returns the finished request behind a handle that a caller of torch.ops passed; throws for any other number.
template <class Request>
std::shared_ptr<Request> find_request(const char* argument, int64_t handle) {
  const auto request = find_handle<ReadRequestPtr>(argument, handle);
  auto found = std::dynamic_pointer_cast<Request>(request);
  if (!found) fail(Error::Value, argument, " belongs to another kind of request");
  if (!wait_until_read(request, {})) fail(Error::Value, argument, " belongs to a request that is not finished: wait for it first");
  return found;
}

class RangeRequest : public ReadRequest {
 public:
  using Part = FileRange;
  // The parts of `components` batches, one batch after the other.
  RangeRequest(std::shared_ptr<OpenFiles> files, FileRanges ranges, int64_t components);

  const std::vector<Part>& parts() const { return ranges_.parts; }
  // Offsets of the parts in bytes(), and of the end. Every component begins at a multiple of 64, so its bytes can be viewed as numbers.
  const std::vector<int64_t>& offsets() const { return offsets_; }
  const char* bytes() const { return memory_.get(); }
  Tensor take_bytes() { return take_memory(memory_, offsets_); }

 protected:
  void measure(int64_t part) override;
  void allocate() override;
  void read(int64_t part) override;
  void measure_some(int64_t begin, int64_t end, Reasons& reasons) override;
  void read_some(int64_t begin, int64_t end, Reasons& reasons) override;

 private:
  OpenFilePtr open(int64_t part) const;
  bool read_run(const CloseRanges& run, size_t lead) const;

  const std::shared_ptr<OpenFiles> files_;  // null: each file is opened for one part only
  FileRanges ranges_;
  const int64_t components_;
  std::vector<OpenFilePtr> opened_;
  std::vector<int64_t> offsets_;
  std::vector<int64_t> order_;  // parts in the order of their files and offsets; empty: the order of the request
  Memory memory_;
};

}  // namespace ndd
