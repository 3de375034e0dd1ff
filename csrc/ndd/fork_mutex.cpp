// SPDX-License-Identifier: Apache-2.0
// The mutexes form a list that only grows, so it can be walked during a fork without a lock of its own.
#include "ndd/fork_mutex.h"

#include <pthread.h>

#include <atomic>

namespace ndd {

struct ForkMutexes {
  static std::atomic<ForkMutex*> newest;
  static ForkMutex* held;  // the head of the list when the fork began; more may be created before it ends

  static void add(ForkMutex* mutex) {
    // A failed exchange stores the new head in next_, and the loop tries again.
    mutex->next_ = newest.load();
    while (!newest.compare_exchange_weak(mutex->next_, mutex)) {
    }
  }
  static void lock_all() {
    held = newest.load();
    for (ForkMutex* mutex = held; mutex != nullptr; mutex = mutex->next_) mutex->lock();
  }
  static void unlock_all() {
    for (ForkMutex* mutex = held; mutex != nullptr; mutex = mutex->next_) mutex->unlock();
  }
};

std::atomic<ForkMutex*> ForkMutexes::newest{nullptr};
ForkMutex* ForkMutexes::held = nullptr;

namespace {

// Registered when the library is loaded. atfork prepare handlers run in reverse order of registration, so the scheduler's handler, registered later,
// runs first and finishes its work, which may need these mutexes.
[[maybe_unused]] const int at_fork = pthread_atfork(ForkMutexes::lock_all, ForkMutexes::unlock_all, ForkMutexes::unlock_all);

}  // namespace

ForkMutex::ForkMutex() { ForkMutexes::add(this); }

}  // namespace ndd
