// SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace ndd_lazy {
namespace {

constexpr auto kDelay = std::chrono::microseconds(200);  // longer than the host takes to do something wrong

class Mark {
 public:
  void set() {
    const std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }
  bool reached() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return done_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
};

}  // namespace

struct Stream {
  Stream() { std::thread([this] { work(); }).detach(); }

  void add(std::function<void()> piece) {
    const std::lock_guard<std::mutex> lock(mutex);
    pieces.push_back(std::move(piece));
    arrived.notify_all();
  }

  [[noreturn]] void work() {
    for (;;) {
      std::function<void()> piece;
      {
        std::unique_lock<std::mutex> lock(mutex);
        arrived.wait(lock, [this] { return !pieces.empty(); });
        piece = std::move(pieces.front());
        pieces.pop_front();
      }
      std::this_thread::sleep_for(kDelay);
      piece();
    }
  }

  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<std::function<void()>> pieces;
};

struct Event {
  std::shared_ptr<Mark> mark() {
    const std::lock_guard<std::mutex> lock(mutex);
    return last;
  }

  std::mutex mutex;
  std::shared_ptr<Mark> last;
};

namespace {

std::mutex pinned_mutex;
std::map<const char*, size_t> pinned;  // never freed

bool is_pinned(const void* memory) {
  const std::lock_guard<std::mutex> lock(pinned_mutex);
  const auto* byte = static_cast<const char*>(memory);
  const auto after = pinned.upper_bound(byte);
  return after != pinned.begin() && byte < std::prev(after)->first + std::prev(after)->second;
}

Stream& of(cudaStream_t stream) {
  static auto* first = new Stream;  // that of all calls
  return stream ? *reinterpret_cast<Stream*>(stream) : *first;
}

}  // namespace

// The library takes this number for "no GPU".
cudaError_t cudaGetDevice(int* device) { return *device = NVIMGCODEC_DEVICE_CPU_ONLY, cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return ""; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new Stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const auto mark = std::make_shared<Mark>();
  of(stream).add([mark] { mark->set(); });
  mark->wait();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const auto mark = event->mark()) of(stream).add([mark] { mark->wait(); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return *event = new Event, cudaSuccess; }

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto mark = std::make_shared<Mark>();
  {
    const std::lock_guard<std::mutex> lock(event->mutex);
    event->last = mark;
  }
  of(stream).add([mark] { mark->set(); });
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const auto mark = event->mark()) mark->wait();
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

// Unpinned memory has been read when this returns.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (is_pinned(from)) {
    of(stream).add([=] { std::memcpy(to, from, bytes); });
  } else {
    const auto* begin = static_cast<const char*>(from);
    of(stream).add([to, values = std::vector<char>(begin, begin + bytes)] { std::memcpy(to, values.data(), values.size()); });
  }
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  of(stream).add([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  *data = std::malloc(bytes);
  const std::lock_guard<std::mutex> lock(pinned_mutex);
  pinned[static_cast<const char*>(*data)] = bytes;
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto mark = event->mark();
  return mark == nullptr || mark->reached() ? cudaSuccess : cudaErrorNotReady;
}

void Launch::run(std::function<void()> kernel) const {
  of(stream_).add([kernel = std::move(kernel), grid = grid_, block = block_] {
    gridDim.x = grid;
    blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) {
      for (threadIdx.x = 0; threadIdx.x < block; ++threadIdx.x) kernel();
    }
  });
}

ndd::Tensor device_memory(int64_t bytes, int) {
  const auto size = static_cast<size_t>(bytes);
  return ndd::tensor_over(std::memset(std::malloc(size), 0xcd, size), bytes, [](void*, size_t) {}, 0);
}

void lazy_finish() { cudaStreamSynchronize(nullptr); }

}  // namespace ndd_lazy

// For tests: the stream of all calls copies memory, that much later. It stands for a kernel that still reads or writes what a batch has given back.
extern "C" __attribute__((visibility("default"))) void ndd_lazy_copy_later(void* to, const void* from, size_t bytes, int milliseconds) {
  ndd_lazy::of(nullptr).add([=] {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    std::memcpy(to, from, bytes);
  });
}

// For tests: copies a table as launchers do, on the stream of all calls, and waits until that stream has done everything.
namespace ndd {
void upload(void* to, const void* from, size_t bytes, const char* what);
}
extern "C" __attribute__((visibility("default"))) void ndd_lazy_upload(void* to, const void* from, size_t bytes) { ndd::upload(to, from, bytes, "test"); }
extern "C" __attribute__((visibility("default"))) void ndd_lazy_finish() { ndd_lazy::lazy_finish(); }
