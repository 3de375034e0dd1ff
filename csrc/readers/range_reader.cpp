// SPDX-License-Identifier: Apache-2.0
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
#include "ndd/kernel.h"
#include "ndd/python_interface.h"
#include "ndd/stream/host_memory.h"
#include "readers/record_request.h"

namespace ndd {
namespace {

// Files that stay open between their measuring and their reading; the others are opened twice.
constexpr int64_t kKeptOpen = 64;
constexpr int64_t kAlignment = 64;
// Parts of a file that are so near to each other are read by one call, with what lies between them: an image and its label in a tar archive. 64 pairs
// of 52 kB and 1 byte then take 0.29 ms of a thread in place of 0.34.
constexpr int64_t kGap = 2048;
constexpr size_t kPlaces = 64;

}  // namespace

void FreeMemory::operator()(char* data) const {
  if (pinned) return;
  pooled > 0 ? give_back_host_memory(data, pooled) : std::free(data);
}

Memory allocate_memory(int64_t bytes) {
  const auto wanted = static_cast<size_t>(std::max<int64_t>(1, bytes));
  // Large buffers come from the pool: ndd/stream/host_memory.cpp has the measurements.
  if (wanted >= kPooledHostMemory) {
    if (std::optional<Tensor> pinned = pinned_host_memory(wanted)) {
      auto* const data = static_cast<char*>(pinned->data_ptr());
      return Memory(data, FreeMemory{0, std::move(pinned)});
    }
    const HostBlock block = take_host_memory(wanted);
    return Memory(static_cast<char*>(block.data), FreeMemory{block.bytes, std::nullopt});
  }
  Memory made(static_cast<char*>(std::malloc(wanted)));
  if (!made) fail("no memory for ", bytes, " bytes");
  return made;
}

Tensor tensor_of(Memory memory, int64_t bytes) {
  const FreeMemory release = memory.get_deleter();
  char* data = memory.release();
  if (release.pinned) return *release.pinned;  // no other tensor over it: by its storage torch knows that copies to a GPU still read it
  return tensor_over(data, bytes, [](void* owned, size_t pooled) { FreeMemory{pooled, std::nullopt}(static_cast<char*>(owned)); }, release.pooled);
}

void check_range(FileRange& range, int64_t file_size) {
  if (range.begin < 0 || range.begin > file_size || range.length > file_size - range.begin) {
    fail("the file has ", file_size, " bytes, this part ends at byte ", range.begin + std::max<int64_t>(0, range.length));
  }
  if (range.length < 0) range.length = file_size - range.begin;
}

GivenRanges given_ranges(const char* root, const char* paths, const int64_t* offsets, const int32_t* numbers, const int64_t* begins,
                         const int64_t* lengths, int64_t n) {
  GivenRanges given;
  given.parts.reserve(n);
  given.path_of.reserve(n);
  given.ends.reserve(n);
  int64_t last = -1;
  for (int64_t k = 0; k < n; ++k) {
    const int64_t file = numbers[k];
    if (file >= 0 && (given.ends.empty() || file != last)) {
      given.paths.append(root).append(paths + offsets[file], static_cast<size_t>(offsets[file + 1] - offsets[file]));
      given.ends.push_back(given.paths.size());
      last = file;
    }
    given.path_of.push_back(static_cast<int32_t>(given.ends.size()) - 1);
    if (file < 0) {
      given.parts.push_back({-1, 0, 0});
    } else {
      given.parts.push_back({file, begins ? begins[k] : 0, lengths ? lengths[k] : -1});
    }
  }
  return given;
}

RangeRequest::RangeRequest(std::shared_ptr<OpenFiles> files, GivenRanges given, int64_t components)
    : ReadRequest(static_cast<int64_t>(given.parts.size())), files_(std::move(files)), given_(std::move(given)), components_(components),
      opened_(given_.parts.size()) {}

OpenFilePtr RangeRequest::open(int64_t part) const {
  const std::string path = given_.path(part);
  return files_ ? files_->get(given_.parts[part].file, path) : std::make_shared<const OpenFile>(path);
}

void RangeRequest::measure(int64_t k) {
  Part& part = given_.parts[k];
  Part found = part;
  part.length = 0;  // of a part that fails
  if (part.file < 0) return;
  OpenFilePtr file = opened_[k] ? std::move(opened_[k]) : open(k);
  check_range(found, file->size());
  part = found;
  if (files_ || k < kKeptOpen) opened_[k] = std::move(file);
}

void RangeRequest::measure_some(int64_t begin, int64_t end, Reasons& reasons) {
  for (int64_t k = begin; k < end; ++k) {
    const auto at = static_cast<size_t>(k);
    if (files_ && k > begin && given_.path_of[at] == given_.path_of[at - 1]) opened_[at] = opened_[at - 1];
    ReadRequest::measure_some(k, k + 1, reasons);
  }
}

void RangeRequest::allocate() {
  const int64_t n = size();
  offsets_.assign(static_cast<size_t>(n) + 1, 0);
  const int64_t samples = components_ > 0 ? n / components_ : n;
  int64_t at = 0;
  for (int64_t k = 0; k < n; ++k) {
    if (samples > 0 && k % samples == 0) at = (at + kAlignment - 1) / kAlignment * kAlignment;
    offsets_[k] = at;
    if (given_.parts[k].length > std::numeric_limits<int64_t>::max() / 4 - at) fail("more bytes than there can be");
    at += given_.parts[k].length;
  }
  offsets_[n] = at;
  try {
    memory_ = allocate_memory(at);
  } catch (const std::exception& error) {
    const auto largest = std::max_element(given_.parts.begin(), given_.parts.end(), [](const Part& a, const Part& b) { return a.length < b.length; });
    for (Part& part : given_.parts) part.file = -1;
    fail_part(largest - given_.parts.begin(), error.what());
  }
  if (!files_) return;
  order_.resize(n);
  std::iota(order_.begin(), order_.end(), 0);
  std::sort(order_.begin(), order_.end(), [this](int64_t a, int64_t b) {
    const Part &one = given_.parts[a], &other = given_.parts[b];
    return std::tie(one.file, one.begin, a) < std::tie(other.file, other.begin, b);
  });
}

void RangeRequest::read_some(int64_t begin, int64_t end, Reasons& reasons) {
  if (order_.empty()) return ReadRequest::read_some(begin, end, reasons);
  if (!memory_) return;
  thread_local char between[kGap];  // nobody looks at it
  std::vector<iovec> places;
  for (int64_t first = begin, last; first < end; first = last) {
    const auto lead = static_cast<size_t>(order_[first]);
    const Part& part = given_.parts[lead];
    if (part.length == 0) {  // nothing, or a part that failed
      last = first + 1;
      continue;
    }
    int64_t at = part.begin;
    places.clear();
    for (last = first; last < end && places.size() < kPlaces; ++last) {
      const auto k = static_cast<size_t>(order_[last]);
      const Part& next = given_.parts[k];
      if (next.length == 0) continue;
      if (next.file != part.file || next.begin < at || next.begin - at > kGap) break;
      if (next.begin > at) places.push_back({between, static_cast<size_t>(next.begin - at)});
      places.push_back({memory_.get() + offsets_[k], static_cast<size_t>(next.length)});
      at = next.begin + next.length;
    }
    if (places.size() > 1 && opened_[lead] && opened_[lead]->read_scattered(places, part.begin)) continue;
    for (int64_t i = first; i < last; ++i) try_read(order_[i], reasons);
  }
}

void RangeRequest::read(int64_t k) {
  const Part& part = given_.parts[k];
  if (part.file < 0 || part.length == 0 || !memory_) return;
  OpenFilePtr file = std::move(opened_[k]);
  if (!file) file = open(k);
  file->read(memory_.get() + offsets_[k], part.begin, part.length);
}

namespace {

using Request = std::shared_ptr<ReadRequest>;

RangeRequest& ranges(int64_t handle) { return dynamic_cast<RangeRequest&>(**reinterpret_cast<Request*>(handle)); }

// The bytes of a finished request, and the lengths of its parts. The tensor owns the memory.
Tensor range_bytes(int64_t handle, const MaybeTensor& lengths) {
  RangeRequest& request = ranges(handle);
  if (lengths) {
    auto* out = static_cast<int64_t*>(lengths->data_ptr());
    for (const RangeRequest::Part& part : request.parts()) *out++ = part.length;
  }
  return request.take_bytes();
}

}  // namespace
}  // namespace ndd

NDD_FUNCTION(range_bytes, "(int handle, Tensor(a!)? lengths) -> Tensor", ndd::range_bytes)

using Files = std::shared_ptr<ndd::OpenFiles>;

// Files that stay open while a reader lives.
NDD_EXPORT(keep, void*, ndd_open_files_make, ()) { return new Files(std::make_shared<ndd::OpenFiles>()); }
NDD_EXPORT(keep, void, ndd_open_files_release, (void* files)) { delete static_cast<Files*>(files); }

// Starts to read n = components * samples ranges, as given_ranges takes them; without `files`, each file is opened for itself.
NDD_EXPORT(release, void*, ndd_ranges_start,
           (void* files, const char* root, const char* paths, const int64_t* offsets, const int32_t* numbers, const int64_t* begins,
            const int64_t* lengths, int64_t n, int64_t components)) {
  ndd::GivenRanges given = ndd::given_ranges(root, paths, offsets, numbers, begins, lengths, n);
  auto request = std::make_shared<ndd::RangeRequest>(files ? *static_cast<Files*>(files) : nullptr, std::move(given), components);
  ndd::start_reading(request);
  return new ndd::ReadRequestPtr(std::move(request));
}

// The lengths of the parts and where they begin, when all is read.
NDD_EXPORT(keep, void, ndd_ranges_parts, (void* handle, int64_t* lengths, int64_t* offsets)) {
  const auto& request = ndd::ranges(reinterpret_cast<int64_t>(handle));
  for (int64_t k = 0; k < request.size(); ++k) {
    lengths[k] = request.parts()[k].length;
    offsets[k] = request.offsets()[k];
  }
}

// Of any request: waits until it is read; the number of parts that failed, or -1 where it takes longer: Python then looks for Ctrl-C and calls again.
NDD_EXPORT(release, int64_t, ndd_read_wait, (void* handle)) {
  const ndd::ReadRequestPtr request = *static_cast<ndd::ReadRequestPtr*>(handle);
  if (!ndd::wait_until_read(request, std::chrono::steady_clock::now() + std::chrono::milliseconds(100))) return -1;
  return static_cast<int64_t>(request->failures().size());
}

// The k-th of the parts that failed, and why.
NDD_EXPORT(keep, const char*, ndd_read_failure, (void* handle, int64_t k, int64_t* part)) {
  auto found = (*static_cast<ndd::ReadRequestPtr*>(handle))->failures().begin();
  std::advance(found, k);
  *part = found->first;
  return found->second.c_str();
}

NDD_EXPORT(keep, void, ndd_read_release, (void* handle)) {
  auto* request = static_cast<ndd::ReadRequestPtr*>(handle);
  ndd::abandon(*request);
  delete request;
}
