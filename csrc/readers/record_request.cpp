// SPDX-License-Identifier: Apache-2.0
// As range_reader.cpp, with one difference: measuring a record means parsing it, which yields small parts as copies and large ones as ranges of
// the file.
#include "readers/record_request.h"

#include "ndd/kernel.h"
#include "ndd/python_interface.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace ndd {

RecordRequest::RecordRequest(std::shared_ptr<OpenFiles> files, FileRanges ranges, int64_t outputs)
    : ReadRequest(static_cast<int64_t>(ranges.parts.size())), files_(std::move(files)), ranges_(std::move(ranges)),
      samples_(ranges_.parts.size(), std::vector<RecordPart>(static_cast<size_t>(outputs))), outputs_(static_cast<size_t>(outputs)),
      opened_(ranges_.parts.size()) {}

void RecordRequest::measure(int64_t sample) {
  OpenFilePtr& file = opened_[sample];
  if (!file) file = open(sample);
  auto& range = ranges_.parts[sample];
  check_range(range, file->size());
  // Parsing reads headers only; the data of large parts stay in the file until read().
  RecordBytes record(*file, range.begin, range.length);
  parse(record, samples_[sample]);
}

void RecordRequest::measure_some(int64_t begin, int64_t end, Reasons& reasons) {
  for (int64_t k = begin; k < end; ++k) {
    // Neighbors in a container share the open file without a look-up under the lock.
    if (k > begin && ranges_.path_of[k] == ranges_.path_of[k - 1]) opened_[k] = opened_[k - 1];
    ReadRequest::measure_some(k, k + 1, reasons);
    if (!OpenFile::may_stay_open()) opened_[k] = nullptr;  // read() opens it again
  }
}

void RecordRequest::allocate() {
  if (!failures().empty()) return;  // the batch is not used if a record failed
  for (size_t k = 0; k < outputs_.size(); ++k) {
    auto& offsets = outputs_[k].offsets;
    offsets.assign(1, 0);
    // Each record fits its file, but many ranges of sparse files could still overflow the sum.
    for (const auto& parts : samples_) {
      if (parts[k].size() > std::numeric_limits<int64_t>::max() / 4 - offsets.back()) fail("too many bytes");
      offsets.push_back(offsets.back() + parts[k].size());
    }
    outputs_[k].memory = allocate_memory(offsets.back());
  }
  order_ = order_of(ranges_.parts);
}

// Calls visit(piece, out) for each piece of a sample, with its place in the batch.
template <class Visit>
void RecordRequest::for_pieces(int64_t sample, const Visit& visit) const {
  for (size_t k = 0; k < outputs_.size(); ++k) {
    if (!outputs_[k].memory) continue;
    char* out = outputs_[k].memory.get() + outputs_[k].offsets[sample];
    for (const auto& piece : samples_[sample][k].pieces) {
      visit(piece, out);
      out += piece.size();
    }
  }
}

void RecordRequest::copy_bytes(int64_t sample) {
  for_pieces(sample, [](const RecordPart::Piece& piece, char* out) {
    if (piece.length == 0 && !piece.bytes.empty()) std::memcpy(out, piece.bytes.data(), piece.bytes.size());
  });
}

void RecordRequest::read(int64_t sample) {
  OpenFilePtr file = std::move(opened_[sample]);
  copy_bytes(sample);
  for_pieces(sample, [&](const RecordPart::Piece& piece, char* out) {
    if (piece.length == 0) return;
    if (!file) file = open(sample);
    file->read(out, ranges_.parts[sample].begin + piece.begin, piece.length);
  });
}

// Adds the range of a sample to a run; false if it has none, several, or one that is too far away.
bool RecordRequest::add_to(CloseRanges& run, int64_t sample) const {
  int64_t ranges = 0, begin = 0, length = 0;
  char* place = nullptr;
  for_pieces(sample, [&](const RecordPart::Piece& piece, char* out) {
    if (piece.length == 0) return;
    ++ranges;
    begin = ranges_.parts[sample].begin + piece.begin;
    length = piece.length;
    place = out;
  });
  return ranges == 1 && run.add(begin, length, place);
}

// Images that follow each other in a file, with headers between them, are read by one call: MXNet's take 0.85 of the CPU time.
void RecordRequest::read_some(int64_t begin, int64_t end, Reasons& reasons) {
  if (order_.empty()) return;  // a record failed, and the batch is not used
  CloseRanges run;
  for (int64_t first = begin, last; first < end; first = last) {
    const int64_t lead = order_[first];
    run.clear();
    for (last = first; last < end; ++last) {
      const int64_t sample = order_[last];
      if (ranges_.parts[sample].file != ranges_.parts[lead].file || !add_to(run, sample)) break;
    }
    // A short read is not an error here: the samples are then read individually, which finds the one to blame.
    if (last - first > 1 && opened_[lead] && run.read(*opened_[lead])) {
      for (int64_t i = first; i < last; ++i) copy_bytes(order_[i]);
      continue;
    }
    last = std::max(last, first + 1);
    for (int64_t i = first; i < last; ++i) try_read(order_[i], reasons);
  }
}

namespace {

RecordRequest& records(void* handle) { return dynamic_cast<RecordRequest&>(**static_cast<ReadRequestPtr*>(handle)); }

// Returns the bytes of one output of all samples, one after the other. Can be called once per output.
Tensor record_output(int64_t handle, int64_t output) {
  const auto request = find_request<RecordRequest>("ndd::record_output: handle", handle);
  auto& outputs = request->outputs();
  if (output < 0 || output >= static_cast<int64_t>(outputs.size())) fail(Error::Value, "ndd::record_output: there is no output ", output);
  auto& found = outputs[static_cast<size_t>(output)];
  return take_memory(found.memory, found.offsets);
}

}  // namespace
}  // namespace ndd

NDD_FUNCTION(record_output, "(int handle, int output) -> Tensor", ndd::record_output)

// Fills `bytes` with the sizes of an output in each sample.
NDD_EXPORT(keep, void, ndd_record_bytes, (void* handle, int64_t output, int64_t* bytes)) {
  const auto& offsets = ndd::records(handle).outputs().at(output).offsets;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) bytes[i] = offsets[i + 1] - offsets[i];
}
