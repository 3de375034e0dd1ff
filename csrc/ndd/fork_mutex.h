// SPDX-License-Identifier: Apache-2.0
// Mutexes that survive fork().
#pragma once

#include <mutex>

namespace ndd {

// A mutex that is free in the child of a fork, with the data it guards in a consistent state: the forking thread holds all of them during the fork.
//
// Only for objects that live as long as the process. While holding one, never wait for another ForkMutex or for the scheduler, which finishes its
// work before these mutexes are taken for a fork.
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
