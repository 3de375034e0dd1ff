// SPDX-License-Identifier: Apache-2.0
// A queue of requests and some threads. A request says which step it is in and how many parts of it are left; the thread that finishes the last
// part of a step moves the request on. Failures are collected, never thrown: a batch reports all of its bad files.
#include "readers/read_ahead.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <vector>

#include "ndd/stream/threads.h"

namespace ndd {

// Parts that fail are collected and reported under the lock, by advance().
void ReadRequest::measure_some(int64_t begin, int64_t end, Reasons& reasons) {
  for (int64_t part = begin; part < end; ++part) {
    try {
      measure(part);
    } catch (const std::exception& error) {
      reasons.emplace_back(part, error.what());
    }
  }
}

void ReadRequest::read_some(int64_t begin, int64_t end, Reasons& reasons) {
  for (int64_t part = begin; part < end; ++part) try_read(part, reasons);
}

void ReadRequest::try_read(int64_t part, Reasons& reasons) {
  if (failed_[part]) return;  // already failed when it was measured
  try {
    read(part);
  } catch (const std::exception& error) {
    reasons.emplace_back(part, error.what());
  }
}

// Threads that read; one that waits for a request reads along.
constexpr int kThreads = 2;
// Parts that a thread takes together: few enough that all threads finish at the same time, many enough to keep lock operations rare.
int64_t parts_per_step(int64_t size) { return std::max<int64_t>(1, size / 16); }

// Works on the oldest request that has parts left. `mutex_` guards the states of all requests.
class ReadAhead {
 public:
  // Never destroyed: its threads live as long as the process. The child of a fork has none of them and gets a new instance; requests of the
  // parent are read by the thread that waits for them.
  static ReadAhead& instance() {
    static ReadAhead* shared = [] {
      auto* created = new ReadAhead;
      // In place of the parent's state, whose mutex another thread may have held.
      pthread_atfork(nullptr, nullptr, [] { new (&instance()) ReadAhead; });
      return created;
    }();
    return *shared;
  }

  void start(const ReadRequestPtr& request) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      open_.push_back(request);
      while (started_ < kThreads) {
        std::optional<std::thread> thread = starter_.start([this] { work(); }, started_, kThreads);
        if (!thread) break;  // the thread that waits for the request then reads it
        thread->detach();
        ++started_;
      }
    }
    arrived_.notify_one();
  }

  bool wait(const ReadRequestPtr& request, std::chrono::steady_clock::time_point end) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (request->state_ != ReadRequest::finished) {
      if (std::chrono::steady_clock::now() >= end) return false;
      // Reads along instead of sleeping: without threads (see start()) this is how a request finishes.
      if (has_work(*request)) {
        advance(*request, lock);
      } else {
        progressed_.wait_until(lock, end);
      }
    }
    return true;
  }

  void abandon(const ReadRequestPtr& request) {
    std::lock_guard<std::mutex> lock(mutex_);
    // A thread that works for it finishes its step; the memory lives as long as that thread's pointer.
    request->abandoned_ = true;
    open_.erase(std::remove(open_.begin(), open_.end(), request), open_.end());
  }

 private:
  // While a thread allocates or completes, no other one can help. An empty request has a step without parts.
  static bool has_work(const ReadRequest& request) {
    switch (request.state_) {
      case ReadRequest::measuring:
      case ReadRequest::reading: return request.next_ < request.size_ || request.unfinished_ == 0;
      default: return false;
    }
  }

  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      // Finished requests leave here, and not where they finish, because the waiting thread may finish them, too.
      while (!open_.empty() && (open_.front()->abandoned_ || open_.front()->state_ == ReadRequest::finished)) open_.pop_front();
      const auto found =
          std::find_if(open_.begin(), open_.end(), [](const ReadRequestPtr& request) { return !request->abandoned_ && has_work(*request); });
      if (found == open_.end()) {
        arrived_.wait(lock);
        continue;
      }
      const ReadRequestPtr request = *found;
      advance(*request, lock);
    }
  }

  // Performs one step of a request that has work. The lock is held before and after, but not while parts are measured or read, nor while
  // memory is allocated. The thread that finishes the last part of a phase starts the next phase.
  void advance(ReadRequest& request, std::unique_lock<std::mutex>& lock) {
    const ReadRequest::State state = request.state_;
    const int64_t begin = request.next_, end = std::min(begin + parts_per_step(request.size_), request.size_);
    request.next_ = end;
    ReadRequest::Reasons reasons;
    lock.unlock();
    state == ReadRequest::measuring ? request.measure_some(begin, end, reasons) : request.read_some(begin, end, reasons);
    lock.lock();
    for (const auto& [part, reason] : reasons) request.fail_part(part, reason);
    request.unfinished_ -= end - begin;
    // Other threads still hold parts of this phase; the last one starts the next.
    if (request.unfinished_ > 0 || request.state_ != state) return;
    request.state_ = state == ReadRequest::measuring ? ReadRequest::allocating : ReadRequest::completing;
    lock.unlock();
    try {
      state == ReadRequest::measuring ? request.allocate() : request.complete();
    } catch (const std::exception& error) {
      request.fail_part(0, error.what());
    }
    lock.lock();
    if (state == ReadRequest::measuring && request.size_ > 0) {
      request.state_ = ReadRequest::reading;
      request.next_ = 0;
      request.unfinished_ = request.size_;
      arrived_.notify_all();  // the other threads can read along
      progressed_.notify_all();
    } else {
      request.state_ = ReadRequest::finished;
      progressed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable arrived_, progressed_;
  std::deque<ReadRequestPtr> open_;  // oldest first
  ThreadStarter starter_;
  int started_ = 0;
};

void start_reading(const ReadRequestPtr& request) { ReadAhead::instance().start(request); }
bool wait_until_read(const ReadRequestPtr& request, std::chrono::steady_clock::time_point end) { return ReadAhead::instance().wait(request, end); }
void abandon(const ReadRequestPtr& request) { ReadAhead::instance().abandon(request); }

}  // namespace ndd
