// SPDX-License-Identifier: Apache-2.0
// Measures the cost of the scheduler itself. Prints lines of a name and a number, for benchmarks/cores.py.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "stress/stress.h"

namespace ndd::stress {
namespace {

// Of a batch: each is one chunk.
constexpr int64_t kSamples = 256;
// The number of batches issued ahead of the one being waited for.
constexpr size_t kAhead = 16;

// CPU time of all threads except this one.
double cpu_of_others() {
  const auto read = [](clockid_t clock) {
    timespec time;
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  return read(CLOCK_PROCESS_CPUTIME_ID) - read(CLOCK_THREAD_CPUTIME_ID);
}

OperationPtr make(Scheduler& scheduler, const PoolPtr& pool, int64_t samples, OperationPtr source, Work work) {
  auto operation = new_operation(scheduler, pool, "work", samples, std::move(work));
  if (source) scheduler.connect(operation, {{std::move(source), Dependency::same_sample}}, {});
  scheduler.submit(operation);
  return operation;
}

}  // namespace

// Keeps a queue of batches, each a chain of `links` operations, and counts chunks once caches and threads are warm.
void speed(int threads, int links, double length, const std::vector<double>& microseconds) {
  Scheduler scheduler(threads);
  const auto pool = std::make_shared<Pool>(threads);
  std::atomic<int64_t> in_work{0};
  const auto batch = [&] {
    OperationPtr last;
    for (int k = 0; k < links; ++k) {
      const Clock::duration each = seconds(microseconds[std::min<size_t>(k, microseconds.size() - 1)] * 1e-6);
      last = make(scheduler, pool, kSamples, std::move(last), [&in_work, each](int64_t) {
        if (each > Clock::duration::zero()) in_work.fetch_add(busy(each).count(), std::memory_order_relaxed);
      });
    }
    return last;
  };
  std::deque<OperationPtr> ahead;
  int64_t chunks = 0, before = 0;
  Clock::time_point begin = Clock::now();
  const auto run = [&](Clock::time_point end) {
    while (Clock::now() < end) {
      while (ahead.size() <= kAhead) ahead.push_back(batch());
      // Polls, since waiting would help: exactly the given number of threads must work
      while (!scheduler.done(ahead.front())) std::this_thread::sleep_for(std::chrono::microseconds(100));
      ahead.pop_front();
      scheduler.free_finished();
      chunks += kSamples * links;
      ++progress;
    }
  };
  // Not counted: the first batches are slower.
  run(begin + seconds(length / 5));
  chunks = 0;
  before = in_work;
  const double cpu = cpu_of_others();
  begin = Clock::now();
  run(begin + seconds(length));
  const double took = std::chrono::duration<double>(Clock::now() - begin).count();
  const double worked = static_cast<double>(in_work - before) * 1e-9;
  std::printf("chunks_per_second %.0f\nbusy %.4f\nbusy_of_cpu_time %.4f\n", static_cast<double>(chunks) / took, worked / took / threads,
              worked / (cpu_of_others() - cpu));
  for (const OperationPtr& operation : ahead) scheduler.wait(operation);
  scheduler.stop();
}

// The time from a call until a sleeping thread begins with it, and the time that queueing a chain of three operations takes; medians.
void waking(double length) {
  Scheduler scheduler(1);
  const auto pool = std::make_shared<Pool>(1);
  std::vector<double> took;
  for (const Clock::time_point end = Clock::now() + seconds(length); Clock::now() < end;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // until it has stopped looking for work
    std::atomic<int64_t> begun{0};
    const Clock::time_point called = Clock::now();
    const OperationPtr operation = make(scheduler, pool, 1, nullptr, [&](int64_t) { begun = (Clock::now() - called).count(); });
    while (!scheduler.done(operation)) std::this_thread::sleep_for(std::chrono::microseconds(200));
    scheduler.free_finished();
    took.push_back(static_cast<double>(begun) * 1e-3);
    ++progress;
  }
  // The operations of a batch, each queued under its own lock; a pool without threads leaves them there.
  const auto none = std::make_shared<Pool>(0);
  std::vector<double> queueing;
  for (int k = 0; k < 200; ++k) {
    const Clock::time_point called = Clock::now();
    OperationPtr last;
    for (int link = 0; link < 3; ++link) last = make(scheduler, none, kSamples, last, [](int64_t) {});
    queueing.push_back(static_cast<double>((Clock::now() - called).count()) * 1e-3 / 3);
    scheduler.wait(last);
    scheduler.free_finished();
  }
  scheduler.stop();
  std::sort(took.begin(), took.end());
  std::sort(queueing.begin(), queueing.end());
  std::printf("wake_microseconds %.2f\nqueue_microseconds %.2f\n", took[took.size() / 2], queueing[queueing.size() / 2]);
}

}  // namespace ndd::stress
