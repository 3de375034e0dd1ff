// SPDX-License-Identifier: Apache-2.0
// Batches of whole files, read ahead by threads of their own: decoding never waits for a disk, and a disk never holds up a decoding thread.
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "ndd/error.h"
#include "ndd/samples.h"

namespace ndd {
namespace {

constexpr int kThreads = 2;
// Files that a thread takes at once: reading a small file from memory takes 10 us, taking one 0.2 us.
constexpr int64_t kFilesAtOnce = 4;

struct Request {
  enum State { fresh, measuring, reading, finished };

  std::vector<std::string> paths;
  State state = fresh;
  std::vector<int64_t> lengths, offsets;
  char* data = nullptr;
  int64_t next = 0, unfinished = 0;
  bool abandoned = false;
  int64_t failed = -1;  // the first file that could not be read
  std::string reason;

  ~Request() { std::free(data); }
  int64_t size() const { return int64_t(paths.size()); }
};
using RequestPtr = std::shared_ptr<Request>;

struct Reader {
  std::mutex mutex;
  std::condition_variable arrived, progressed;
  std::deque<RequestPtr> open;  // oldest first
  bool started = false;
};

// Never destroyed: its threads live as long as the process. The child of a fork has none of them and starts anew.
Reader& reader() {
  static Reader* instance = [] {
    auto* created = new Reader;
    pthread_atfork(nullptr, nullptr, [] { new (&reader()) Reader; });
    return created;
  }();
  return *instance;
}

std::string system_error(int code) { return std::generic_category().message(code); }

void fail(Request& request, int64_t i, const std::string& reason) {  // under the lock
  if (request.failed >= 0 && request.failed < i) return;
  request.failed = i;
  request.reason = reason;
}

// The size of a file, or -1 and why there is none.
int64_t measure(const std::string& path, std::string& reason) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) {
    reason = system_error(errno);
  } else if (S_ISDIR(status.st_mode)) {
    reason = system_error(EISDIR);
  } else if (!S_ISREG(status.st_mode)) {
    reason = "this is no regular file";
  } else {
    return status.st_size;
  }
  return -1;
}

bool read_file(const std::string& path, char* out, int64_t length, std::string& reason) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    reason = system_error(errno);
    return false;
  }
  int64_t done = 0;
  while (done < length) {
    const ssize_t got = read(file, out + done, size_t(length - done));
    if (got > 0) {
      done += got;
    } else if (got == 0 || errno != EINTR) {
      reason = got == 0 ? "the file became shorter while it was read" : system_error(errno);
      break;
    }
  }
  close(file);
  return done == length;
}

void measure_all(const RequestPtr& request, std::unique_lock<std::mutex>& lock) {
  request->state = Request::measuring;
  lock.unlock();
  const int64_t n = request->size();
  std::vector<int64_t> lengths(n), offsets(n + 1);
  int64_t failed = -1;
  std::string reason;
  for (int64_t i = 0; i < n && failed < 0; ++i) {
    lengths[i] = measure(request->paths[i], reason);
    if (lengths[i] < 0) failed = i;
    offsets[i + 1] = offsets[i] + lengths[i];
  }
  char* data = nullptr;
  if (failed < 0) {
    data = static_cast<char*>(std::malloc(size_t(std::max<int64_t>(1, offsets[n]))));
    if (!data) {
      failed = 0;
      reason = "no memory for " + std::to_string(offsets[n]) + " bytes";
    }
  }
  lock.lock();
  request->lengths = std::move(lengths);
  request->offsets = std::move(offsets);
  request->data = data;
  request->unfinished = n;
  request->state = failed < 0 && n > 0 ? Request::reading : Request::finished;
  if (failed >= 0) fail(*request, failed, reason);
}

void read_some(const RequestPtr& request, std::unique_lock<std::mutex>& lock) {
  const int64_t begin = request->next, end = std::min(begin + kFilesAtOnce, request->size());
  request->next = end;
  lock.unlock();
  int64_t failed = -1;
  std::string reason;
  for (int64_t i = begin; i < end && failed < 0; ++i) {
    if (!read_file(request->paths[i], request->data + request->offsets[i], request->lengths[i], reason)) failed = i;
  }
  lock.lock();
  if (failed >= 0) fail(*request, failed, reason);
  request->unfinished -= end - begin;
  if (request->unfinished == 0) request->state = Request::finished;
}

bool has_work(const Request& request) {
  return request.state == Request::fresh || (request.state == Request::reading && request.next < request.size());
}

// Does one piece of a request that has work. On return the lock is held again.
void advance(const RequestPtr& request, std::unique_lock<std::mutex>& lock) {
  if (request->state == Request::fresh) {
    measure_all(request, lock);
    reader().arrived.notify_all();  // the other threads can read along
  } else {
    read_some(request, lock);
  }
  if (request->state == Request::finished) reader().progressed.notify_all();
}

void work() {
  Reader& r = reader();
  std::unique_lock<std::mutex> lock(r.mutex);
  for (;;) {
    while (!r.open.empty() && (r.open.front()->abandoned || r.open.front()->state == Request::finished)) r.open.pop_front();
    const auto found = std::find_if(r.open.begin(), r.open.end(), [](const RequestPtr& one) { return !one->abandoned && has_work(*one); });
    if (found == r.open.end()) {
      r.arrived.wait(lock);
      continue;
    }
    const RequestPtr request = *found;
    advance(request, lock);
  }
}

void start(const RequestPtr& request) {
  Reader& r = reader();
  std::lock_guard<std::mutex> lock(r.mutex);
  if (!r.started) {
    r.started = true;
    for (int k = 0; k < kThreads; ++k) std::thread(work).detach();
  }
  r.open.push_back(request);
  r.arrived.notify_one();
}

// Helps until all is read.
void wait(const RequestPtr& request) {
  Reader& r = reader();
  std::unique_lock<std::mutex> lock(r.mutex);
  while (request->state != Request::finished) {
    if (has_work(*request)) {
      advance(request, lock);
    } else {
      r.progressed.wait(lock);
    }
  }
}

void abandon(const RequestPtr& request) {
  std::lock_guard<std::mutex> lock(reader().mutex);
  request->abandoned = true;
  auto& open = reader().open;
  open.erase(std::remove(open.begin(), open.end(), request), open.end());
}

// The files of a finished request, uint8, one after the other. The tensor owns the memory.
Tensor file_contents(int64_t handle) {
  Request& request = **reinterpret_cast<RequestPtr*>(handle);
  char* data = request.data;
  request.data = nullptr;
  return torch::stable::from_blob(data, {request.offsets.back()}, {1}, torch::stable::Device(torch::headeronly::DeviceType::CPU),
                                  torch::headeronly::ScalarType::Byte, [](void* memory) { std::free(memory); });
}

}  // namespace
}  // namespace ndd

STABLE_TORCH_LIBRARY_FRAGMENT(ndd, library) { library.def("file_contents(int handle) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(ndd, CompositeExplicitAutograd, library) { library.impl("file_contents", TORCH_BOX(&ndd::file_contents)); }

using ndd::RequestPtr;

#define NDD_EXPORT extern "C" __attribute__((visibility("default")))

// Starts to read `n` files: path `indices[k]` of those that lie in `paths`, one after the other with the given offsets, behind `root`.
NDD_EXPORT void* ndd_files_start(const char* root, const char* paths, const int64_t* offsets, const int64_t* indices, int64_t n) {
  auto request = std::make_shared<ndd::Request>();
  request->paths.reserve(size_t(n));
  for (int64_t k = 0; k < n; ++k) {
    const int64_t begin = offsets[indices[k]], end = offsets[indices[k] + 1];
    request->paths.emplace_back(root).append(paths + begin, size_t(end - begin));
  }
  ndd::start(request);
  return new RequestPtr(std::move(request));
}

// Waits for all files and writes their lengths. Returns -1, or the number of the first file that could not be read.
NDD_EXPORT int64_t ndd_files_wait(void* handle, int64_t* lengths) {
  const RequestPtr request = *static_cast<RequestPtr*>(handle);
  ndd::wait(request);
  if (request->failed < 0) std::copy(request->lengths.begin(), request->lengths.end(), lengths);
  return request->failed;
}

NDD_EXPORT const char* ndd_files_error(void* handle) { return (*static_cast<RequestPtr*>(handle))->reason.c_str(); }

NDD_EXPORT void ndd_files_release(void* handle) {
  auto* request = static_cast<RequestPtr*>(handle);
  ndd::abandon(*request);
  delete request;
}
