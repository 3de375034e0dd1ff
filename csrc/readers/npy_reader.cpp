// SPDX-License-Identifier: Apache-2.0
// Reads batches of .npy files, or of windows in them: first the headers, which give the shapes, then the elements to their places in the batch.
#include <algorithm>
#include <limits>
#include <mutex>
#include <unordered_map>

#include "ndd/error.h"
#include "ndd/kernel.h"
#include "ndd/python_interface.h"
#include "readers/npy_window.h"
#include "readers/record_request.h"

namespace ndd {
namespace {

constexpr int64_t kMaxHeaderBytes = 1 << 16;  // NumPy itself rejects headers of more than 10,000
constexpr int64_t kFirstRead = 128;           // bytes; the size of most headers, which NumPy pads to a multiple of 64

// Reads the prefix and the dict, in one or two calls.
NpyHeader read_npy_header(const OpenFile& file) {
  char first[kFirstRead];
  const int64_t got = file.read_some(first, 0, kFirstRead);
  const auto [prefix, length] = parse_npy_prefix(first, got);
  if (length > kMaxHeaderBytes) fail("the header of the .npy file is damaged: its length is ", length, " bytes");
  std::string text(static_cast<size_t>(length), 0);
  // Most headers are complete after the first read; only longer ones need a second.
  const int64_t here = std::min(length, got - prefix);
  std::copy(first + prefix, first + prefix + here, text.begin());
  if (file.read_some(text.data() + here, prefix + here, length - here) < length - here) {
    fail("the header of the .npy file is damaged: it ends too early");
  }
  NpyHeader header = parse_npy_header(text);
  // Where the elements begin.
  header.data = prefix + length;
  return header;
}

// Headers of files that were read before, for readers that are told to trust them.
class NpyHeaders {
 public:
  bool find(int64_t file, NpyHeader& header) {
    // The mutex of all kept files, which a fork takes so that the child finds the map complete.
    const std::lock_guard<ForkMutex> lock(kept_files_mutex());
    const auto found = known_.find(file);
    if (found == known_.end()) return false;
    header = found->second;
    return true;
  }

  void keep(int64_t file, const NpyHeader& header) {
    const std::lock_guard<ForkMutex> lock(kept_files_mutex());
    known_.emplace(file, header);
  }

 private:
  std::unordered_map<int64_t, NpyHeader> known_;
};

// The phases of a ReadRequest: measure() reads headers and computes windows, allocate() places them, read() fills them.
class NpyRequest : public ReadRequest {
 public:
  NpyRequest(std::shared_ptr<NpyHeaders> headers, FileRanges files, std::vector<NpyRoi> rois, float fill, bool only_headers)
      : ReadRequest(static_cast<int64_t>(files.parts.size())), known_(std::move(headers)), files_(std::move(files)), rois_(std::move(rois)),
        fill_(fill), only_headers_(only_headers), opened_(files_.parts.size()), headers_(files_.parts.size()), windows_(files_.parts.size()),
        offsets_(files_.parts.size() + 1) {}

  const std::vector<NpyHeader>& headers() const { return headers_; }
  const std::vector<NpyWindow>& windows() const { return windows_; }
  Tensor take_bytes() { return take_memory(memory_, offsets_); }

 protected:
  void measure(int64_t part) override {
    const auto k = static_cast<size_t>(part);
    NpyHeader& header = headers_[k];
    const int64_t file = files_.parts[k].file;
    if (!known_ || !known_->find(file, header)) {
      auto opened = std::make_shared<const OpenFile>(files_.path(part));
      header = read_npy_header(*opened);
      if (header.volume > (opened->size() - header.data) / header.item_bytes) {
        int64_t end = 0;
        if (__builtin_mul_overflow(header.volume, header.item_bytes, &end) || __builtin_add_overflow(end, header.data, &end)) end = INT64_MAX;
        fail("the file has ", opened->size(), " bytes, its array ends at byte ", end);
      }
      if (known_) known_->keep(file, header);
      if (OpenFile::may_stay_open()) opened_[k] = std::move(opened);  // else read() opens it again
    }
    windows_[k] = npy_window(header, rois_[rois_.size() == 1 ? 0 : k]);
  }

  void allocate() override {
    const NpyHeader* first = nullptr;
    int64_t at = 0, largest = 0;
    for (int64_t i = 0; i < size(); ++i) {
      const NpyHeader& header = headers_[i];
      offsets_[i] = at;
      if (failures().count(i)) continue;
      // The first sample that did not fail defines the type of the batch.
      if (!first) first = &header;
      if (header.dtype != first->dtype || header.shape.size() != first->shape.size()) {
        fail_part(i, "the array has another type or number of dimensions than the first one of the batch");
        continue;
      }
      const int64_t volume = windows_[i].volume;
      // A padded window can be larger than its file.
      if (volume > (std::numeric_limits<int64_t>::max() / 4 - at) / header.item_bytes) {
        fail_part(i, "too many elements");
        continue;
      }
      if (volume > windows_[largest].volume) largest = i;
      at += volume * header.item_bytes;
    }
    offsets_.back() = at;
    if (only_headers_) return;
    // Too little memory is reported for the largest array.
    try {
      memory_ = allocate_memory(at);
    } catch (const std::exception& error) {
      fail_part(largest, error.what());
    }
  }

  void read(int64_t part) override {
    const auto k = static_cast<size_t>(part);
    // Without memory all parts have failed already, or only headers are read.
    if (!memory_ || windows_[k].volume == 0) return;
    auto file = std::move(opened_[k]);
    if (!file) file = std::make_shared<const OpenFile>(files_.path(part));
    read_npy_window(*file, headers_[k], windows_[k], fill_, memory_.get() + offsets_[k]);
  }

 private:
  const std::shared_ptr<NpyHeaders> known_;
  const FileRanges files_;
  const std::vector<NpyRoi> rois_;  // one for all samples, or one for each
  const float fill_;
  const bool only_headers_;  // something else reads the elements
  std::vector<std::shared_ptr<const OpenFile>> opened_;
  std::vector<NpyHeader> headers_;
  std::vector<NpyWindow> windows_;
  std::vector<int64_t> offsets_;
  Memory memory_;
};

NpyRequest& arrays(void* handle) { return dynamic_cast<NpyRequest&>(**static_cast<ReadRequestPtr*>(handle)); }

// Returns the elements of all samples, one after the other. Can be called once.
Tensor npy_bytes(int64_t handle) { return find_request<NpyRequest>("ndd::npy_bytes: handle", handle)->take_bytes(); }

}  // namespace
}  // namespace ndd

NDD_FUNCTION(npy_bytes, "(int handle) -> Tensor", ndd::npy_bytes)

using Headers = std::shared_ptr<ndd::NpyHeaders>;

NDD_EXPORT(keep, void*, ndd_npy_headers_make, ()) { return new Headers(std::make_shared<ndd::NpyHeaders>()); }
NDD_EXPORT(keep, void, ndd_npy_headers_release, (void* headers)) { delete static_cast<Headers*>(headers); }

// Starts to read whole files, see ndd_ranges_start. `start` and `end` are tables of (rows, columns) with 0, 1 or n rows; `flags`: start is
// relative, end is relative, end is a shape, there are axes. With `only_headers` the elements are not read.
NDD_EXPORT(release, void*, ndd_npy_start,
           (void* headers, const char* root, const char* paths, const int64_t* offsets, const int32_t* numbers, int64_t n, const double* start,
            int64_t start_rows, int64_t start_columns, const double* end, int64_t end_rows, int64_t end_columns, const int64_t* flags,
            const int64_t* axes, int64_t n_axes, int64_t policy, double fill, int64_t only_headers)) {
  std::vector<ndd::NpyRoi> rois(static_cast<size_t>(std::max<int64_t>({1, start_rows, end_rows})));
  for (size_t i = 0; i < rois.size(); ++i) {
    // A table with one row applies to every sample.
    const auto row = [i](const double* values, int64_t rows, int64_t columns) {
      if (rows == 0) return std::vector<double>();
      const double* begin = values + (rows == 1 ? 0 : static_cast<int64_t>(i)) * columns;
      return std::vector<double>(begin, begin + columns);
    };
    rois[i].start = {row(start, start_rows, start_columns), flags[0] != 0};
    rois[i].end = {row(end, end_rows, end_columns), flags[1] != 0};
    rois[i].is_shape = flags[2] != 0;
    rois[i].has_axes = flags[3] != 0;
    rois[i].axes.assign(axes, axes + n_axes);
    rois[i].policy = ndd::NpyRoi::Policy(policy);
  }
  auto request = std::make_shared<ndd::NpyRequest>(headers ? *static_cast<Headers*>(headers) : nullptr,
                                                   ndd::file_ranges(root, paths, offsets, numbers, nullptr, nullptr, n), std::move(rois),
                                                   static_cast<float>(fill), only_headers != 0);
  ndd::start_reading(request);
  return ndd::handles<ndd::ReadRequestPtr>().make(std::move(request));
}

// Returns, after reading, the number of dimensions and the type of the first sample, and the shapes of all.
NDD_EXPORT(keep, int64_t, ndd_npy_shapes, (void* handle, int64_t* dtype, int64_t* shapes)) {
  const auto& request = ndd::arrays(handle);
  const auto ndim = static_cast<int64_t>(request.windows().front().extent.size());
  *dtype = static_cast<int64_t>(request.headers().front().dtype);
  if (shapes) {
    for (const auto& window : request.windows()) shapes = std::copy(window.extent.begin(), window.extent.end(), shapes);
  }
  return ndim;
}

// Returns, after reading, where the elements of each sample begin in its file, or -1 for elements in another order than a batch has them:
// big-endian, or the first axis contiguous.
NDD_EXPORT(keep, void, ndd_npy_positions, (void* handle, int64_t* positions)) {
  for (const auto& header : ndd::arrays(handle).headers()) {
    const bool reordered = header.swapped || (header.fortran_order && header.shape.size() > 1);
    *positions++ = reordered ? -1 : header.data;
  }
}
