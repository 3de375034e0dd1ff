// SPDX-License-Identifier: Apache-2.0
// Who sleeps, and who wakes whom.
//
// No wake-up is lost, because a sleeper waits for a number and not for a signal, and because the numbers change where the reasons do: under mutex_.
//  1. What there is to do (ready chunks, room in pools, later_, the end of an operation) changes under the lock only, and nobody lets go of it, be it to
//     work or to sleep, without whom_to_wake(), which sees all of that as it is.
//  2. A worker sleeps only if it found nothing to do in the same hold of the lock, having added itself to idle_. Whoever then leaves work takes it out of
//     idle_ and into called_, and it wakes when called_ > 0: if it has not yet slept, or if another sleeper is quicker, the number is still there for one
//     of them. That is left undone only where another worker is on its way (called, starting, or looking), or all are at work: each of these takes the lock
//     again and looks for work before it sleeps, and whom_to_wake() once more when it has taken some.
//  3. Somebody who waits for an operation sleeps until changes_ is no longer what it was in the hold of the lock in which there was nothing to do for him.
//     It changes when an operation ends, and when there is a new chunk, or new room for one, that no worker comes for: the pool has no threads, the
//     threads have been stopped, or the system refuses them. Everything else the workers do, by 2, and then the operation ends.
// Atomic numbers are for those who look for a while before they sleep; they decide nothing.
#include <algorithm>
#include <chrono>
#include <optional>

#include "ndd/stream/scheduler.h"

namespace ndd {
namespace {

// Tells the core that this is a loop of waiting.
void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// The lock is held for less than a microsecond, and going to sleep for it takes several: first tries for about as long, less and less often.
void Scheduler::take(Lock& lock) {
  for (int pauses = 1; pauses <= 64; pauses *= 2) {
    if (lock.try_lock()) return;
    for (int k = 0; k < pauses; ++k) pause();
  }
  lock.lock();
}

Scheduler::Lock Scheduler::hold() {
  Lock lock(mutex_, std::defer_lock);
  take(lock);
  return lock;
}

// Called before each end of a hold of the lock in which something may have changed. `most_workers`: see recruit().
Scheduler::Wakes Scheduler::whom_to_wake(int most_workers) {
  if (fresh_) arrived_.fetch_add(1, std::memory_order_release);
  Wakes wakes;
  const int scouts = called_ + looking_ + starting_;
  wakes.workers = recruit(most_workers);
  if (fresh_ || room_ || ended_) {
    const bool nobody_comes = stopping_ || (scouts == 0 && wakes.workers == 0 && !starting_);
    const bool left_over =
        std::any_of(active_.begin(), active_.end(), [&](const Pool* pool) { return pool->has_room(true) && (pool->limit == 0 || nobody_comes); });
    if (ended_ || left_over) {
      changes_.fetch_add(1, std::memory_order_release);
      wakes.waiters = asleep_ > 0;
    }
  }
  fresh_ = room_ = ended_ = false;
  return wakes;
}

// Calls workers that sleep, or starts one, for chunks that they may take; returns how many are to be woken. Calls from Python wake one, which wakes two
// when it has taken a chunk and leaves others, as these do: 192 work after 8 times the time of waking one. Waking both of two threads from Python took
// 40 us, one takes 15.
int Scheduler::recruit(int most) {
  const int scouts = called_ + looking_ + starting_;
  if (stopping_ || (most == 1 && scouts > 0)) return 0;
  int64_t chunks = 0;
  for (const Pool* pool : active_) chunks += std::clamp<int64_t>(pool->limit - pool->running, 0, pool->ready_chunks);
  // Of what is held back a thread that is at work will think when it has finished its chunk.
  if (chunks == 0 && !later_.empty() && running_ == 0) chunks = 1;
  const int wanted = static_cast<int>(std::min<int64_t>(most, chunks - scouts));
  if (wanted <= 0) return 0;
  const int called = std::min(wanted, idle_);
  idle_ -= called;
  called_ += called;
  if (called > 0 || scouts > 0) return called;
  // Threads are made when there is work for them: importing the library starts none.
  workers_.reserve(workers_.size() + 1);
  std::optional<std::thread> started = starter_.start([this] { work(); }, static_cast<int>(workers_.size()), most_threads());
  if (!started) return 0;  // those that there are do it, or who waits for it
  starting_ = true;  // under the lock, which the new thread waits for
  workers_.push_back(std::move(*started));
  return 0;
}

// So many threads would have work if all pools had.
int Scheduler::most_threads() const {
  int most = default_pool_->limit;
  for (const Pool* pool : active_) most = std::max(most, pool->limit);
  return most;
}

void Scheduler::wake(const Wakes& wakes) {
  for (int k = 0; k < wakes.workers; ++k) work_arrived_.notify_one();
  if (wakes.waiters) something_changed_.notify_all();
}

// Wakes without the lock: who wakes would run into it.
void Scheduler::let_go(Lock& lock, int most_workers) {
  const Wakes wakes = whom_to_wake(most_workers);
  lock.unlock();
  wake(wakes);
}

void Scheduler::work() {
  Lock lock = hold();
  starting_ = false;
  while (!stopping_) {
    if (run_some(lock, nullptr, UINT64_MAX)) continue;
    if (!looking_ && look_for_work(lock)) continue;
    if (stopping_) break;  // set while the lock was free
    ++idle_;
    wake(whom_to_wake(1));
    work_arrived_.wait(lock, [this] { return called_ > 0 || stopping_; });
    if (called_ > 0) {
      --called_;
    } else {
      --idle_;
    }
  }
  room_ = true;  // what this thread was to do, who waits for it does
  let_go(lock, 1);
}

// One thread at a time looks for 100 us before it sleeps: Python issues the next call within that time, and then need not wake anybody. Cropping 16
// images again and again takes 75 us; 75 or 130, at random, when it looks for 30 us.
bool Scheduler::look_for_work(Lock& lock) {
  if (running_ >= cores_) return false;
  looking_ = true;
  const Wakes wakes = whom_to_wake(1);
  const uint64_t arrived = arrived_.load(std::memory_order_relaxed);
  Time end = std::chrono::steady_clock::now() + std::chrono::microseconds(100);
  if (!later_.empty()) end = std::min(end, later_.front().first);
  lock.unlock();
  wake(wakes);
  while (arrived_.load(std::memory_order_acquire) == arrived && std::chrono::steady_clock::now() < end) pause();
  take(lock);
  looking_ = false;
  return next_pool(nullptr) != nullptr || !later_.empty();
}

// Returns when something has changed for those who wait, or at `end`. Called in the hold of the lock in which there was nothing to do. Where a core is
// free because nothing is left to start, it looks for 20 us before it sleeps: being woken takes as long.
void Scheduler::wait_for_change(Lock& lock, const Pool& pool, Time end) {
  const Wakes wakes = whom_to_wake(1);
  const uint64_t changes = changes_.load(std::memory_order_relaxed);
  ++asleep_;
  if (pool.running < pool.limit) {
    lock.unlock();
    wake(wakes);
    const Time stop = std::min(end, std::chrono::steady_clock::now() + std::chrono::microseconds(20));
    while (changes_.load(std::memory_order_acquire) == changes && std::chrono::steady_clock::now() < stop) pause();
    take(lock);
  } else {
    wake(wakes);
  }
  const auto changed = [&] { return changes_.load(std::memory_order_relaxed) != changes; };
  if (end == Time::max()) {
    something_changed_.wait(lock, changed);
  } else {
    something_changed_.wait_until(lock, end, changed);
  }
  --asleep_;
}

void Scheduler::stop() {
  std::vector<std::thread> workers;
  {
    const Lock lock = hold();
    stopping_ = true;
    workers.swap(workers_);
  }
  work_arrived_.notify_all();
  for (std::thread& worker : workers) worker.join();
}

std::string Scheduler::state() {
  const Lock lock = hold();
  std::string text = "workers " + std::to_string(workers_.size()) + ", idle " + std::to_string(idle_) + ", called " + std::to_string(called_) +
                     ", looking " + std::to_string(looking_) + ", starting " + std::to_string(starting_) + ", asleep " + std::to_string(asleep_) +
                     ", at work " + std::to_string(running_) + ", held back " + std::to_string(later_.size());
  for (const Pool* pool : active_) {
    text +=
        "; pool of " + std::to_string(pool->limit) + ": ready " + std::to_string(pool->ready_chunks) + ", at work " + std::to_string(pool->running);
  }
  return text;
}

}  // namespace ndd
