// SPDX-License-Identifier: Apache-2.0
#include "readers/record_request.h"

#include "ndd/kernel.h"
#include "ndd/python_interface.h"

#include <cstring>
#include <limits>

namespace ndd {

void RecordRequest::measure(int64_t sample) {
  const OpenFilePtr file = open(sample);
  auto& range = ranges_.parts[sample];
  check_range(range, file->size());
  // Parsing reads headers only; the data of large parts stay in the file until read().
  RecordBytes record(*file, range.begin, range.length);
  parse(record, samples_[sample]);
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
}

void RecordRequest::read(int64_t sample) {
  OpenFilePtr file;
  for (size_t k = 0; k < outputs_.size(); ++k) {
    if (!outputs_[k].memory) continue;
    char* out = outputs_[k].memory.get() + outputs_[k].offsets[sample];
    for (const auto& piece : samples_[sample][k].pieces) {
      if (piece.length > 0) {
        if (!file) file = open(sample);
        file->read(out, ranges_.parts[sample].begin + piece.begin, piece.length);
      } else if (!piece.bytes.empty()) {
        std::memcpy(out, piece.bytes.data(), piece.bytes.size());
      }
      out += piece.size();
    }
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
