// SPDX-License-Identifier: Apache-2.0
// Streams that are late: each is a thread, which does every piece of work a
// moment after it was handed over.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace ndd_late {

constexpr auto kDelay = std::chrono::microseconds(200); // longer than the host takes to do something wrong

// A point of a stream.
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

using Pieces = std::vector<std::function<void()>>;

class LateStream {
 public:
  explicit LateStream(int device = 0) : device(device) {
    std::thread([this] { work(); }).detach();
  }

  const int device;
  Pieces* captured = nullptr;  // what is added goes there instead, and is not done

  void add(std::function<void()> piece) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (captured != nullptr) {
      captured->push_back(std::move(piece));
      return;
    }
    pieces_.push_back(std::move(piece));
    arrived_.notify_all();
  }

  // Returns when everything so far is done.
  void finish() {
    const auto mark = std::make_shared<Mark>();
    add([mark] { mark->set(); });
    mark->wait();
  }

 private:
  [[noreturn]] void work() {
    for (;;) {
      std::function<void()> piece;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        arrived_.wait(lock, [this] { return !pieces_.empty(); });
        piece = std::move(pieces_.front());
        pieces_.pop_front();
      }
      std::this_thread::sleep_for(kDelay);
      piece();
    }
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> pieces_;
};

class LateEvent {
 public:
  explicit LateEvent(int device = 0) : device(device) {}

  const int device;
  const Pieces* capture = nullptr;  // of the last record

  // Null before the first record.
  std::shared_ptr<Mark> mark() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return last_;
  }
  void record(LateStream& stream) {
    const auto mark = std::make_shared<Mark>();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      last_ = mark;
      capture = stream.captured;
    }
    stream.add([mark] { mark->set(); });
  }
  bool reached() {
    const auto last = mark();
    return last == nullptr || last->reached();
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Mark> last_;
};

// Host memory that streams read and write when they come to it.
class PinnedRanges {
 public:
  void add(const void* memory, size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ranges_[static_cast<const char*>(memory)] = bytes;
  }
  void remove(const void* memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ranges_.erase(static_cast<const char*>(memory));
  }
  bool contain(const void* memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto* byte = static_cast<const char*>(memory);
    const auto after = ranges_.upper_bound(byte);
    return after != ranges_.begin() && byte < std::prev(after)->first + std::prev(after)->second;
  }

 private:
  std::mutex mutex_;
  std::map<const char*, size_t> ranges_;
};

}  // namespace ndd_late
