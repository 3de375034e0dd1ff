// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

namespace ndd {

// A mutex that the child of a fork finds free, and what it guards whole: the thread that forks holds it meanwhile.
//
// For objects that last as long as the process. While it is held, nothing waits for another ForkMutex or for the scheduler, which finishes its work
// before the mutexes are taken.
class ForkMutex {
 public:
  ForkMutex();
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  friend struct ForkMutexes;

  std::mutex mutex_;
  ForkMutex* next_ = nullptr;
};

}  // namespace ndd
