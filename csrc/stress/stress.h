// SPDX-License-Identifier: Apache-2.0
// A stress test of the CPU stream's scheduler, without Python and torch: `check` runs random programs, `speed` and `waking` measure. Built only on
// request: `ninja -C build/dev stress`.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "ndd/stream/scheduler.h"

namespace ndd::stress {

using Clock = std::chrono::steady_clock;

inline Clock::duration seconds(double count) { return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count)); }

// splitmix64: a well-mixed hash, and with a counter a good enough generator.
inline uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Reproducible on every platform, unlike the distributions of the standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(mixed(seed)) {}
  int64_t below(int64_t end) { return static_cast<int64_t>((state_ = mixed(state_)) % static_cast<uint64_t>(end)); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  uint64_t state_;
};

// Keeps the thread busy for the given time. Returns the time it took, not counting what other processes took of it.
inline Clock::duration busy(Clock::duration length) {
  const Clock::time_point begin = Clock::now();
  Clock::time_point now = begin;
  while (now - begin < length) now = Clock::now();
  // If another process has interrupted it, that was on average halfway through.
  return now - begin < length + std::chrono::microseconds(1) ? now - begin : length / 2;
}

// An operation that is neither connected nor submitted yet.
inline OperationPtr new_operation(Scheduler& scheduler, const PoolPtr& pool, const char* op, int64_t samples = 0, Work work = {}) {
  auto operation = std::make_shared<Operation>();
  operation->id = scheduler.next_id();
  operation->op = op;
  operation->pool = pool;
  operation->samples = samples;
  operation->work = std::move(work);
  return operation;
}

// Prints the message and the state, and aborts.
[[noreturn]] void give_up(std::string_view what);
// Describes the state for give_up.
extern std::function<std::string()> describe;
// The watchdog gives up when this has not changed for a while.
extern std::atomic<uint64_t> progress;

void check(int threads, uint64_t seed, double length);
void speed(int threads, int links, double length, const std::vector<double>& microseconds);
void waking(double length);

}  // namespace ndd::stress
