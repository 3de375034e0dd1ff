// SPDX-License-Identifier: Apache-2.0
// How threads sleep and wake each other.
//
// No wake-up is lost, because sleepers wait for the value of a counter rather than for a signal, and because the counters change together with their
// causes, under mutex_:
//  1. Available work (ready chunks, room in pools, later_, the end of an operation) changes only under the lock, and no thread releases the lock, to
//     work or to sleep, without calling whom_to_wake(), which sees the current state.
//  2. A worker sleeps only if it found nothing to do while holding the lock, after adding itself to idle_ in the same critical section. A thread that
//     leaves work behind moves it from idle_ to called_. Workers wake when called_ > 0, so if the worker had not slept yet, or another was faster,
//     the count is still there for one of them. That is omitted only if another worker is on its way (called, starting, or looking) or all are
//     working: each of these takes the lock again and looks for work before it sleeps, and calls whom_to_wake() again after taking some.
//  3. A thread waiting for an operation sleeps until changes_ differs from the value it had when the thread, holding the lock, found nothing to do.
//     The counter changes when an operation ends, and when a new chunk, or new room for one, appears that no worker will come for: the pool has no
//     threads, the threads have been stopped, or the system refuses new ones. Everything else is done by workers, by (2), and ends with the end of an
//     operation.
// The atomic counters serve threads that spin before sleeping; they decide nothing.
#include <algorithm>
#include <chrono>
#include <optional>

#include "ndd/stream/scheduler.h"

namespace ndd {
namespace {

// Tells the processor that this is a spin loop.
void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// Spins with growing pauses before blocking: the lock is held for less than a microsecond, while going to sleep for it takes several.
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

// Must be called before every release of the lock after which something may have changed. `max_workers`: see recruit().
Scheduler::Wakes Scheduler::whom_to_wake(int max_workers) {
  if (fresh_) arrived_.fetch_add(1, std::memory_order_release);
  Wakes wakes;
  const int scouts = called_ + looking_ + starting_;
  wakes.workers = recruit(max_workers);
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

// Calls sleeping workers, or starts one, for chunks they could take; returns how many to notify. A call from Python wakes one worker. A worker that
// takes a chunk and leaves others wakes two, and so do these: 192 workers are running after 8 times the latency of one wake-up. Waking both of two
// threads from Python took 40 us, waking one takes 15.
int Scheduler::recruit(int most) {
  const int scouts = called_ + looking_ + starting_;
  if (stopping_ || (most == 1 && scouts > 0)) return 0;
  int64_t chunks = 0;
  for (const Pool* pool : active_) chunks += std::clamp<int64_t>(pool->limit - pool->running, 0, pool->ready_chunks);
  // While any thread is working, it will look at deferred work after its current chunk.
  if (chunks == 0 && !later_.empty() && running_ == 0) chunks = 1;
  const int wanted = static_cast<int>(std::min<int64_t>(most, chunks - scouts));
  if (wanted <= 0) return 0;
  const int called = std::min(wanted, idle_);
  idle_ -= called;
  called_ += called;
  if (called > 0 || scouts > 0) return called;
  // Threads are started when there is work for them: importing the library starts none.
  workers_.reserve(workers_.size() + 1);
  std::optional<std::thread> started = starter_.start([this] { work(); }, static_cast<int>(workers_.size()), max_threads());
  if (!started) return 0;  // the existing threads or the waiting caller do the work
  starting_ = true;  // set under the lock, which the new thread takes first
  workers_.push_back(std::move(*started));
  return 0;
}

// The number of threads that would have work if all pools were busy.
int Scheduler::max_threads() const {
  int most = default_pool_->limit;
  for (const Pool* pool : active_) most = std::max(most, pool->limit);
  return most;
}

void Scheduler::wake(const Wakes& wakes) {
  for (int k = 0; k < wakes.workers; ++k) work_arrived_.notify_one();
  if (wakes.waiters) something_changed_.notify_all();
}

// Notifies after unlocking: a thread woken earlier would run into the lock.
void Scheduler::let_go(Lock& lock, int max_workers) {
  const Wakes wakes = whom_to_wake(max_workers);
  lock.unlock();
  wake(wakes);
}

void Scheduler::work() {
  Lock lock = hold();
  starting_ = false;
  while (!stopping_) {
    if (run_some(lock, nullptr, UINT64_MAX)) continue;
    if (!looking_ && look_for_work(lock)) continue;
    if (stopping_) break;  // may have been set while the lock was released
    ++idle_;
    wake(whom_to_wake(1));
    work_arrived_.wait(lock, [this] { return called_ > 0 || stopping_; });
    if (called_ > 0) {
      --called_;
    } else {
      --idle_;
    }
  }
  room_ = true;  // waiting callers take over what this thread would have done
  let_go(lock, 1);
}

// One thread at a time spins for 100 us before it sleeps: Python issues the next call within that time and then need not wake anyone. Cropping 16
// images repeatedly takes 75 us; when spinning for 30 us, it takes 75 or 130 at random.
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

// Returns when something has changed for waiting callers, or at `end`. Must be called in the critical section in which there was nothing to do. If a
// core is free because nothing is left to start, spins for 20 us before sleeping: waking up takes as long.
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
