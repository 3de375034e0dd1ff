// SPDX-License-Identifier: Apache-2.0
// Short work that somebody waits for at once. Threads take its samples one after the other without the scheduler, whose lock costs 0.7 us for each
// chunk of 12: it sees one chunk for each thread.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <utility>

#include "ndd/stream/work.h"

namespace ndd {

class SharedWork {
 public:
  // `parts` chunks run; each takes `together` samples at a time until none is left.
  SharedWork(int64_t samples, int64_t together, int64_t parts, Work work)
      : samples_(samples), together_(together), unfinished_(parts), work_(std::move(work)) {}
  SharedWork(SharedWork&& other) noexcept  // before it is run
      : samples_(other.samples_), together_(other.together_), unfinished_(other.unfinished_.load()), work_(std::move(other.work_)) {}

  // The last chunk raises the error of the first sample that failed: all samples before it have been taken, and are done by then.
  void operator()(int64_t) {
    for (;;) {
      const int64_t begin = next_.fetch_add(together_, std::memory_order_relaxed);
      if (begin >= samples_) break;
      const int64_t end = begin + together_ < samples_ ? begin + together_ : samples_;
      int64_t i = begin;
      try {
        for (; i < end; ++i) work_(i);
      } catch (...) {
        keep(i, std::current_exception());
        break;
      }
    }
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1 && error_) std::rethrow_exception(error_);
  }

 private:
  void keep(int64_t sample, std::exception_ptr error) {
    next_.store(samples_, std::memory_order_relaxed);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_ && failed_ < sample) return;
    failed_ = sample;
    error_ = std::move(error);
  }

  const int64_t samples_, together_;
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<int64_t> unfinished_;
  std::mutex mutex_;
  int64_t failed_ = 0;
  std::exception_ptr error_;
  Work work_;
};

}  // namespace ndd
