// SPDX-License-Identifier: Apache-2.0
// A request goes through three steps: lengths are measured (measure_some), memory for all parts is allocated (allocate), and parts are read to
// their places (read_some). Threads take pieces of the first and the last step; see read_ahead.cpp.
#include "readers/range_reader.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <new>
#include <numeric>
#include <tuple>
#include <utility>

#include "ndd/error.h"
#include "ndd/host_numbers.h"
#include "ndd/kernel.h"
#include "ndd/python_interface.h"
#include "ndd/stream/host_memory.h"
#include "readers/record_request.h"

namespace ndd {
namespace {

// Bytes; a cache line, and enough for numbers of any type.
constexpr int64_t kAlignment = 64;
// Parts of a file with gaps of up to so many bytes are read by one call, together with the gaps: an image and its label in a tar archive,
// for example. 64 pairs of 52 kB and 1 byte then take 0.29 ms of a thread instead of 0.34.
constexpr int64_t kMaxGap = 2048;
// Per call of preadv(); the system allows 1024.
constexpr size_t kMaxPlaces = 64;

}  // namespace

// Pinned memory belongs to its tensor, pooled memory returns to the pool.
void FreeMemory::operator()(char* data) const {
  if (pinned) return;
  pooled > 0 ? give_back_host_memory(data, pooled) : std::free(data);
}

Memory allocate_memory(int64_t bytes) {
  const auto wanted = static_cast<size_t>(std::max<int64_t>(1, bytes));
  // Large buffers come from a pool; ndd/stream/host_memory.cpp has the measurements.
  if (wanted >= kPooledHostMemory) {
    if (std::optional<Tensor> pinned = pinned_host_memory(wanted)) {
      auto* const data = static_cast<char*>(pinned->data_ptr());
      return Memory(data, FreeMemory{0, std::move(pinned)});
    }
    const HostBlock block = take_host_memory(wanted);
    return Memory(static_cast<char*>(block.data), FreeMemory{block.bytes, std::nullopt});
  }
  Memory memory(static_cast<char*>(std::malloc(wanted)));
  if (!memory) fail("no memory for ", bytes, " bytes");
  return memory;
}

Tensor tensor_of(Memory memory, int64_t bytes) {
  const FreeMemory release = memory.get_deleter();
  char* data = memory.release();
  if (release.pinned) return *release.pinned;  // the same storage, by which torch tracks copies to a GPU that still read it
  return tensor_over(data, bytes, [](void* owned, size_t pooled) { FreeMemory{pooled, std::nullopt}(static_cast<char*>(owned)); }, release.pooled);
}

Tensor take_memory(Memory& memory, const std::vector<int64_t>& offsets) {
  if (!memory) fail("the bytes of a request can be taken once, after they were read");
  return tensor_of(std::move(memory), offsets.back());
}

void check_range(FileRange& range, int64_t file_size) {
  // Without sums, which a hostile offset could overflow.
  if (range.begin < 0 || range.begin > file_size || range.length > file_size - range.begin) {
    fail("the file has ", file_size, " bytes, this part ends at byte ", range.begin + std::max<int64_t>(0, range.length));
  }
  const int64_t rest = file_size - range.begin;
  if (range.length < 0) range.length = range.length == -1 ? rest : std::min(rest, -1 - range.length);
}

FileRanges file_ranges(const char* root, const char* paths, const int64_t* offsets, const int32_t* numbers, const int64_t* begins,
                       const int64_t* lengths, int64_t n) {
  FileRanges ranges;
  ranges.parts.reserve(n);
  ranges.path_of.reserve(n);
  ranges.ends.reserve(n);
  int64_t last = -1;  // consecutive parts of one file share a path
  for (int64_t k = 0; k < n; ++k) {
    const int64_t file = numbers[k];
    if (file >= 0 && (ranges.ends.empty() || file != last)) {
      ranges.paths.append(root).append(paths + offsets[file], static_cast<size_t>(offsets[file + 1] - offsets[file]));
      ranges.ends.push_back(ranges.paths.size());
      last = file;
    }
    ranges.path_of.push_back(static_cast<int32_t>(ranges.ends.size()) - 1);
    if (file < 0) {
      ranges.parts.push_back({-1, 0, 0});
    } else {
      ranges.parts.push_back({file, begins ? begins[k] : 0, lengths ? lengths[k] : -1});
    }
  }
  return ranges;
}

std::vector<int64_t> order_of(const std::vector<FileRange>& parts) {
  std::vector<int64_t> order(parts.size());
  std::iota(order.begin(), order.end(), 0);
  // The index breaks ties, so the order is the same in each run.
  std::sort(order.begin(), order.end(), [&parts](int64_t a, int64_t b) {
    const FileRange &left = parts[static_cast<size_t>(a)], &right = parts[static_cast<size_t>(b)];
    return std::tie(left.file, left.begin, a) < std::tie(right.file, right.begin, b);
  });
  return order;
}

bool CloseRanges::add(int64_t begin, int64_t length, char* out) {
  thread_local char between[kMaxGap];  // receives the gaps and is never read
  if (empty()) begin_ = end_ = begin;
  if (begin < end_ || begin - end_ > kMaxGap || places_.size() >= kMaxPlaces) return false;
  if (begin > end_) places_.push_back({between, static_cast<size_t>(begin - end_)});
  places_.push_back({out, static_cast<size_t>(length)});
  end_ = begin + length;
  return true;
}

RangeRequest::RangeRequest(std::shared_ptr<OpenFiles> files, FileRanges ranges, int64_t components)
    : ReadRequest(static_cast<int64_t>(ranges.parts.size())), files_(std::move(files)), ranges_(std::move(ranges)), components_(components),
      opened_(ranges_.parts.size()) {}

OpenFilePtr RangeRequest::open(int64_t part) const {
  const std::string path = ranges_.path(part);
  return files_ ? files_->get(ranges_.parts[part].file, path) : std::make_shared<const OpenFile>(path);
}

void RangeRequest::measure(int64_t k) {
  Part& part = ranges_.parts[k];
  Part found = part;
  part.length = 0;  // stays so if the part fails
  if (part.file < 0) return;
  // measure_some() may have passed on the file of the part before: it stays open anyway.
  const bool stays_open = opened_[k] != nullptr;
  OpenFilePtr file = stays_open ? std::move(opened_[k]) : open(k);
  check_range(found, file->size());
  part = found;
  if (stays_open || OpenFile::may_stay_open()) opened_[k] = std::move(file);
}

void RangeRequest::measure_some(int64_t begin, int64_t end, Reasons& reasons) {
  for (int64_t k = begin; k < end; ++k) {
    const auto at = static_cast<size_t>(k);
    // Neighbors in a container share the open file without a look-up under the lock.
    if (files_ && k > begin && ranges_.path_of[at] == ranges_.path_of[at - 1]) opened_[at] = opened_[at - 1];
    ReadRequest::measure_some(k, k + 1, reasons);
  }
}

void RangeRequest::allocate() {
  const int64_t n = size();
  offsets_.assign(static_cast<size_t>(n) + 1, 0);
  // Parts are ordered by component: all images, then all labels.
  const int64_t samples = components_ > 0 ? n / components_ : n;
  int64_t at = 0;
  for (int64_t k = 0; k < n; ++k) {
    if (samples > 0 && k % samples == 0) at = (at + kAlignment - 1) / kAlignment * kAlignment;
    offsets_[k] = at;
    // Each length is valid for its file, but many ranges of sparse files could still overflow the sum.
    if (ranges_.parts[k].length > std::numeric_limits<int64_t>::max() / 4 - at) fail("too many bytes");
    at += ranges_.parts[k].length;
  }
  offsets_[n] = at;
  try {
    memory_ = allocate_memory(at);
    // The largest part gets the blame, because it is what the user can do something about.
  } catch (const std::exception& error) {
    const auto largest =
        std::max_element(ranges_.parts.begin(), ranges_.parts.end(), [](const Part& a, const Part& b) { return a.length < b.length; });
    for (Part& part : ranges_.parts) part.file = -1;  // nothing can be read
    fail_part(largest - ranges_.parts.begin(), error.what());
  }
  // Containers are read in the order of their bytes; single files need no order.
  if (!files_) return;
  order_ = order_of(ranges_.parts);
}

void RangeRequest::read_some(int64_t begin, int64_t end, Reasons& reasons) {
  if (order_.empty()) return ReadRequest::read_some(begin, end, reasons);
  if (!memory_) return;
  CloseRanges run;
  for (int64_t first = begin, last; first < end; first = last) {
    const auto lead = static_cast<size_t>(order_[first]);
    const Part& part = ranges_.parts[lead];
    if (part.length == 0) {  // empty or failed
      last = first + 1;
      continue;
    }
    run.clear();
    int64_t count = 0;
    for (last = first; last < end; ++last) {
      const auto k = static_cast<size_t>(order_[last]);
      const Part& next = ranges_.parts[k];
      if (next.length == 0) continue;
      if (next.file != part.file || !run.add(next.begin, next.length, memory_.get() + offsets_[k])) break;
      ++count;
    }
    // A short read is not an error here: the parts are then read individually, which finds the one to blame.
    if (count > 1 && read_run(run, lead)) {
      for (int64_t i = first; i < last; ++i) opened_[static_cast<size_t>(order_[i])].reset();
      continue;
    }
    // Alone, or after a short read.
    for (int64_t i = first; i < last; ++i) try_read(order_[i], reasons);
  }
}

// Returns false if the file cannot be opened again, or one system call did not read everything.
bool RangeRequest::read_run(const CloseRanges& run, size_t lead) const {
  if (opened_[lead]) return run.read(*opened_[lead]);
  try {
    return run.read(*open(static_cast<int64_t>(lead)));
  } catch (const std::exception&) {
    return false;
  }
}

void RangeRequest::read(int64_t k) {
  const Part& part = ranges_.parts[k];
  if (part.file < 0 || part.length == 0 || !memory_) return;
  OpenFilePtr file = std::move(opened_[k]);
  if (!file) file = open(k);
  file->read(memory_.get() + offsets_[k], part.begin, part.length);
}

namespace {

RangeRequest& ranges(void* handle) { return dynamic_cast<RangeRequest&>(**static_cast<ReadRequestPtr*>(handle)); }

// Returns the bytes of a finished request, and the lengths of its parts. The tensor owns the memory.
Tensor range_bytes(int64_t handle, const MaybeTensor& lengths) {
  const auto request = find_request<RangeRequest>("ndd::range_bytes: handle", handle);
  if (lengths) {
    int64_t* out = host_numbers<int64_t>("ndd::range_bytes", "the table of lengths", *lengths, static_cast<int64_t>(request->parts().size()));
    for (const RangeRequest::Part& part : request->parts()) *out++ = part.length;
  }
  return request->take_bytes();
}

}  // namespace
}  // namespace ndd

NDD_FUNCTION(range_bytes, "(int handle, Tensor(a!)? lengths) -> Tensor", ndd::range_bytes)

using Files = std::shared_ptr<ndd::OpenFiles>;

// Files that stay open while a reader lives.
NDD_EXPORT(keep, void*, ndd_open_files_make, ()) { return new Files(std::make_shared<ndd::OpenFiles>()); }
NDD_EXPORT(keep, void, ndd_open_files_release, (void* files)) { delete static_cast<Files*>(files); }

// Starts to read n = components * samples ranges, see file_ranges(). Without `files`, each file is opened for its part only.
NDD_EXPORT(release, void*, ndd_ranges_start,
           (void* files, const char* root, const char* paths, const int64_t* offsets, const int32_t* numbers, const int64_t* begins,
            const int64_t* lengths, int64_t n, int64_t components)) {
  ndd::FileRanges ranges = ndd::file_ranges(root, paths, offsets, numbers, begins, lengths, n);
  auto request = std::make_shared<ndd::RangeRequest>(files ? *static_cast<Files*>(files) : nullptr, std::move(ranges), components);
  ndd::start_reading(request);
  return ndd::handles<ndd::ReadRequestPtr>().make(std::move(request));
}

// Returns, after reading, the lengths and the offsets of the parts.
NDD_EXPORT(keep, void, ndd_ranges_parts, (void* handle, int64_t* lengths, int64_t* offsets)) {
  const auto& request = ndd::ranges(handle);
  for (int64_t k = 0; k < request.size(); ++k) {
    lengths[k] = request.parts()[k].length;
    offsets[k] = request.offsets()[k];
  }
}

// Waits for any request. Returns the number of failed parts, or -1 after 100 ms, so Python can handle Ctrl-C and call again.
NDD_EXPORT(release, int64_t, ndd_read_wait, (void* handle)) {
  const ndd::ReadRequestPtr request = *static_cast<ndd::ReadRequestPtr*>(handle);
  if (!ndd::wait_until_read(request, std::chrono::steady_clock::now() + std::chrono::milliseconds(100))) return -1;
  return static_cast<int64_t>(request->failures().size());
}

// Returns the reason of the k-th failure, and its part.
NDD_EXPORT(keep, const char*, ndd_read_failure, (void* handle, int64_t k, int64_t* part)) {
  auto found = (*static_cast<ndd::ReadRequestPtr*>(handle))->failures().begin();
  std::advance(found, k);
  *part = found->first;
  return found->second.c_str();
}

NDD_EXPORT(keep, void, ndd_read_release, (void* handle)) {
  if (const ndd::ReadRequestPtr request = ndd::handles<ndd::ReadRequestPtr>().take(handle)) ndd::abandon(request);
}
