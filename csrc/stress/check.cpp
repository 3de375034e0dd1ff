// SPDX-License-Identifier: Apache-2.0
// Random programs of several callers on one scheduler. Whatever the order in which threads run, each requested sample must be computed once, after
// what it reads, with errors in the right places; no pool may exceed its limit; and every waiting caller must return.
#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "ndd/stream/shared_work.h"
#include "stress/stress.h"

namespace ndd::stress {
namespace {

// A pool with the number of threads that work for it at the moment, which must never exceed its limit.
struct CountedPool {
  explicit CountedPool(int threads) : pool(std::make_shared<Pool>(threads)) {}

  PoolPtr pool;
  std::atomic<int> running{0};
};

struct Value;
using ValuePtr = std::shared_ptr<Value>;

// One of the values that an operation reads, and which of its samples: a number, or one of the marks of Dependency.
struct Read {
  ValuePtr value;
  int64_t sample;
};

// An operation and its expected outcome.
struct Value {
  OperationPtr operation;
  CountedPool* pool = nullptr;
  int64_t samples = 0, grain = 1;
  std::vector<Read> reads;  // only used by its caller
  std::vector<char> throws;  // per sample
  std::vector<char> fails, inherits;  // per chunk
  std::vector<uint64_t> expected;  // per sample
  std::vector<uint64_t> computed;  // written by the work; not atomic, so ThreadSanitizer can see whether readers come after writers
  std::vector<std::atomic<int>> runs;  // per sample
  bool formula = false, released = false;
  std::atomic<bool> complete{false};  // its work may run: from connect() on others may wait for it

  int64_t chunks() const { return (samples + grain - 1) / grain; }
};

// What sample i of operation `id` must be: a hash of all that it reads. If a sample is computed too early, from other numbers or for another
// operation, the hash is another one. `numbers` picks the expected or the computed ones of the values that are read.
uint64_t value_of(uint64_t id, int64_t i, const std::vector<Read>& reads, std::vector<uint64_t> Value::* numbers) {
  uint64_t sum = mixed(id * 1000 + i);
  for (const Read& read : reads) {
    const std::vector<uint64_t>& source = (*read.value).*numbers;
    if (read.sample == Dependency::after_it) {
      for (int64_t k = 0; k < read.value->samples; ++k) {
        if (!read.value->fails[k / read.value->grain]) sum = mixed(sum + source[k]);
      }
    } else if (read.sample == Dependency::all_samples) {
      for (const uint64_t part : source) sum = mixed(sum + part);
    } else {
      sum = mixed(sum + source[read.sample == Dependency::same_sample ? i : read.sample]);
    }
  }
  return sum;
}

bool any_fails(const Value& source, int64_t first, int64_t last) {  // both samples included
  return std::any_of(source.fails.begin() + first / source.grain, source.fails.begin() + last / source.grain + 1, [](char fails) { return fails; });
}

// Whether a chunk fails because something that it reads failed: then its work must not run.
bool inherits(const Value& value, int64_t chunk) {
  return std::any_of(value.reads.begin(), value.reads.end(), [&](const Read& read) {
    const Value& source = *read.value;
    if (source.samples == 0 || read.sample == Dependency::after_it) return false;
    if (read.sample == Dependency::all_samples || value.operation->external) return any_fails(source, 0, source.samples - 1);
    if (read.sample != Dependency::same_sample) return any_fails(source, read.sample, read.sample);
    return any_fails(source, chunk * value.grain, std::min(value.samples, (chunk + 1) * value.grain) - 1);
  });
}

class Check {
 public:
  // Pools of all kinds: as large as the scheduler, without threads of their own, of one and of two, and larger than the scheduler.
  Check(int threads, uint64_t seed) : scheduler_(threads), seed_(seed) {
    for (const int limit : {threads, 0, 1, 2, 0, threads + 1}) pools_.push_back(std::make_unique<CountedPool>(limit));
    scheduler_.set_default_pool(pools_[0]->pool);
  }

  // Several callers, as Python threads would be, and two threads that serve external operations.
  void run(double length) {
    end_ = Clock::now() + seconds(length);
    const int callers = 2 + static_cast<int>(seed_ % 4);
    std::vector<std::thread> threads;
    for (int k = 0; k < callers; ++k) threads.emplace_back([this, k] { caller(k); });
    for (int k = 0; k < 2; ++k) threads.emplace_back([this] { outside(); });
    // In every other program the workers are stopped while callers still wait.
    if (seed_ % 2 != 0) {
      std::this_thread::sleep_until(end_);
      scheduler_.stop();
    }
    for (int k = 0; k < callers; ++k) threads[k].join();
    // The outside threads end when nothing can be queued any more and their queue is empty.
    no_more_ = true;
    for (size_t k = callers; k < threads.size(); ++k) threads[k].join();
    if (seed_ % 2 == 0) scheduler_.stop();
    scheduler_.free_finished();
    std::printf("seed %lu: %lu programs, %lu operations, %lu samples\n", seed_, programs_.load(), operations_.load(), samples_.load());
    std::fflush(stdout);
  }

  std::string state() { return "seed " + std::to_string(seed_) + ": " + scheduler_.state(); }

 private:
  // Runs programs one after the other. The latest values stay alive across programs and are finished at the end.
  void caller(int number) {
    Random random(seed_ * 1000 + number);
    std::deque<ValuePtr> kept;
    while (Clock::now() < end_) {
      program(random, kept);
      ++programs_;
      ++progress;
    }
    for (const ValuePtr& value : kept) finish(value);
  }

  // Creates operations that read each other, other callers' values or nothing; submits, releases, waits and interrupts at random.
  void program(Random& random, std::deque<ValuePtr>& kept) {
    std::vector<ValuePtr> values;
    // A chain of calls on batches of one size, as pipelines make it, or a mixture.
    const bool chain = random.chance(40);
    const int64_t length = random.below(chain ? 40 : 12) + 1;
    const int64_t samples = std::array<int64_t, 8>{0, 1, 1, 2, 3, 7, 16, 40}[random.below(8)], grain = random.below(3) + 1;
    CountedPool* const pool = pools_[random.below(pools_.size())].get();
    const int errors = random.chance(30) ? 3 : 0;
    for (int64_t k = 0; k < length; ++k) {
      auto value = std::make_shared<Value>();
      const bool alike = chain || random.chance(50);
      value->samples = alike ? samples : random.below(20);
      value->grain = alike ? grain : random.below(4) + 1;
      value->pool = alike || random.chance(60) ? pool : pools_[random.below(pools_.size())].get();
      for (int64_t reads = values.empty() ? 0 : chain ? 1 : random.below(4); reads > 0; --reads) {
        value->reads.push_back(read(random, *value, chain ? values.back() : values[random.below(values.size())]));
      }
      // After these come another caller's values, which this one never computes in their place.
      const size_t own = value->reads.size();
      // Also a value of another caller.
      if (random.chance(20)) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!published_.empty()) value->reads.push_back(read(random, *value, published_[random.below(published_.size())]));
      }
      make(random, value, own, errors);
      values.push_back(value);
      if (random.chance(10)) interrupted_wait(random, *values[random.below(values.size())]);
    }
    publish(random, values);
    if (random.chance(30)) run_now(random);
    if (random.chance(30)) shared(random);
    for (const ValuePtr& value : values) {
      if (!value->operation->droppable || !random.chance(70)) continue;
      value->released = true;  // as if Python had dropped it: it cannot be read from here on
      scheduler_.release(value->operation);
    }
    if (random.chance(20)) interrupted_wait(random, *values.back());
    if (random.chance(60)) finish(values[random.below(values.size())]);
    if (random.chance(10)) std::this_thread::sleep_for(std::chrono::microseconds(random.below(400)));
    kept.insert(kept.end(), values.begin(), values.end());
    // Bounded: memory must not grow with the length of the test.
    for (; kept.size() > 60; kept.pop_front()) {
      finish(kept.front());
      kept.front()->reads.clear();  // otherwise the very first operation would be kept alive
    }
    scheduler_.free_finished();
    // Statistics may be read at any time.
    if (random.chance(5)) {
      scheduler_.worked();
      scheduler_.spans();
    }
    if (random.chance(1)) scheduler_.drain();  // as a fork does
  }

  // Lets other callers read a value. What may be dropped is never published: its owner decides when it ends.
  void publish(Random& random, const std::vector<ValuePtr>& values) {
    const ValuePtr& value = values[random.below(values.size())];
    if (value->operation->droppable || random.chance(50)) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    published_.push_back(value);
    if (published_.size() > 8) published_.pop_front();
  }

  static Read read(Random& random, const Value& value, const ValuePtr& source) {
    if (source->samples == value.samples && random.chance(80)) return {source, Dependency::same_sample};
    if (source->samples > 0 && random.chance(50)) return {source, random.below(source->samples)};
    return {source, random.chance(30) ? Dependency::after_it : Dependency::all_samples};
  }

  // Creates the operation and records what is expected of it. The first `own` of the values that it reads belong to this caller.
  void make(Random& random, const ValuePtr& value, size_t own, int errors) {
    auto operation = new_operation(scheduler_, value->pool->pool, random.chance(50) ? "left" : "right", value->samples);
    value->operation = operation;
    operation->external = value->samples > 0 && random.chance(5);
    if (operation->external) value->grain = 1;
    for (Read& read : value->reads) {
      if (operation->external && read.sample == Dependency::after_it) read.sample = Dependency::all_samples;  // only launches come after others
    }
    operation->grain = value->grain;
    value->formula = !operation->external && random.chance(15);
    if (value->formula) {
      operation->formula = std::make_shared<Formula>();
      operation->result = value.get();
      operation->droppable = random.chance(50);
    }
    std::vector<Dependency> reads;
    std::vector<const void*> computed;
    for (const auto& [source, sample] : value->reads) reads.push_back({source->operation, sample});
    for (size_t k = 0; k < own && !operation->external; ++k) {
      const auto& [source, sample] = value->reads[k];
      // The operation can compute the value itself if the scheduler still has its formula.
      const bool can = sample == Dependency::same_sample && scheduler_.formula(*source->operation, reads);
      if (can && random.chance(70)) computed.push_back(source.get());
    }
    const auto computes = std::make_shared<std::vector<Read>>();
    if (!operation->external) {
      // connect() decides what is fused, so the work waits until `computes` is known.
      operation->work = [value, computes, id = operation->id, pace = random.below(4)](int64_t i) {
        while (!value->complete) std::this_thread::yield();
        compute(*value, *computes, id, i, pace);
      };
    }
    scheduler_.connect(operation, reads, computed);
    std::vector<Read> left;  // what it computes itself it does not read
    for (size_t k = 0; k < value->reads.size(); ++k) {
      const Read& read = value->reads[k];
      if ((operation->fused_reads >> k & 1) == 0) left.push_back(read);
      else left.insert(left.end(), read.value->reads.begin(), read.value->reads.end());
    }
    value->reads = *computes = std::move(left);
    for (int64_t i = 0; i < value->samples; ++i) {
      value->throws.push_back(!value->formula && random.chance(errors));
      value->expected.push_back(value_of(operation->id, i, value->reads, &Value::expected));
    }
    value->computed.assign(value->samples, 0);
    value->runs = std::vector<std::atomic<int>>(value->samples);
    for (int64_t c = 0; c < value->chunks(); ++c) {
      // A chunk fails if a sample of it throws, or if one that it reads has failed.
      const auto begin = value->throws.begin() + c * value->grain, end = value->throws.begin() + std::min(value->samples, (c + 1) * value->grain);
      value->inherits.push_back(inherits(*value, c));
      value->fails.push_back(value->inherits[c] || std::find(begin, end, 1) != end);
    }
    ++operations_;
    samples_ += value->samples;
    if (operation->external) {
      scheduler_.submit(operation);
      const std::lock_guard<std::mutex> lock(mutex_);
      outside_.push_back(value);
      return;
    }
    value->complete = true;
    // Otherwise it is queued by whoever waits for it, or for what reads it.
    if (random.chance(60)) scheduler_.submit(operation);
    else if (random.chance(50)) scheduler_.submit_later(operation);
  }

  // The work for a sample. Some take no time, some a few microseconds, and some sleep, which lets other threads overtake.
  static void compute(Value& value, const std::vector<Read>& reads, uint64_t id, int64_t i, int64_t pace) {
    ++progress;
    CountedPool& pool = *value.pool;
    if (++pool.running > std::max(1, pool.pool->limit)) give_up("more threads than the pool has");
    ++value.runs[i];
    value.computed[i] = value_of(id, i, reads, &Value::computed);
    if (pace == 1) busy(std::chrono::microseconds(mixed(id + i) % 4));
    if (pace == 2 && mixed(id + i) % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    --pool.running;
    if (value.throws[i]) throw std::runtime_error("on purpose");
  }

  // Plays the part of Python threads for external operations: waits for what they read, and reports samples.
  void outside() {
    Random random(seed_ + 77);
    for (;;) {
      ValuePtr value;
      const bool last = no_more_;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!outside_.empty()) {
          value = outside_.front();
          outside_.pop_front();
        }
      }
      if (!value) {
        if (last) return;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        continue;
      }
      bool failed = false;
      for (const Read& read : value->reads) {
        scheduler_.wait(read.value->operation);
        failed = failed || !read.value->operation->failures.empty();
      }
      for (int64_t i = 0; i < value->samples && !failed; ++i) {
        ++value->runs[i];
        value->computed[i] = value_of(value->operation->id, i, value->reads, &Value::computed);
        const Failure failure{Error::Value, "on purpose", value->operation->id};
        scheduler_.report(value->operation, i, 1, value->throws[i], value->throws[i] ? &failure : nullptr, std::chrono::nanoseconds(1));
      }
      // What failed before is passed on without a failure of its own.
      if (failed) scheduler_.report(value->operation, 0, value->samples, true, nullptr, std::chrono::nanoseconds(1));
    }
  }

  // Work that the caller does immediately if a thread of the pool is free; otherwise nothing happens.
  void run_now(Random& random) {
    CountedPool& pool = *pools_[random.below(pools_.size())];
    const int64_t samples = random.below(5), failing = random.chance(40) ? random.below(5) : samples;
    std::vector<int> runs(samples);  // used by a single thread
    bool done = false;
    std::string failed;
    try {
      done = scheduler_.run_now(pool.pool, "now", samples, Work([&](int64_t i) {
                                  if (++pool.running > std::max(1, pool.pool->limit)) give_up("run_now: more threads than the pool has");
                                  ++runs[i];
                                  --pool.running;
                                  if (i >= failing) fail(Error::Value, i);
                                }));
    } catch (const Error& error) {
      done = true;
      failed = error.what();
    }
    for (int64_t i = 0; i < samples; ++i) {
      if (runs[i] > 1 || (i <= failing && runs[i] != (done ? 1 : 0))) give_up("run_now: a wrong number of samples");
    }
    if (failed != (done && failing < samples ? std::to_string(failing) : "")) give_up("run_now: not the error of the first sample that fails");
  }

  // Work whose samples are handed out to a few parts, as for loops within a sample.
  void shared(Random& random) {
    CountedPool& pool = *pools_[random.below(pools_.size())];
    const int64_t samples = random.below(40) + 1, parts = random.below(4) + 1, failing = random.chance(40) ? random.below(samples) : samples;
    std::vector<std::atomic<int>> runs(samples);
    auto operation = new_operation(scheduler_, pool.pool, "shared", parts);
    operation->work = SharedWork(samples, random.below(3) + 1, parts, Work([&](int64_t i) {
                                   if (++pool.running > std::max(1, pool.pool->limit)) give_up("shared: more threads than the pool has");
                                   ++runs[i];
                                   --pool.running;
                                   if (i >= failing && (i - failing) % 3 == 0) fail(Error::Value, i);
                                 }));
    scheduler_.wait(operation);
    for (int64_t i = 0; i < samples; ++i) {
      if (runs[i] > 1 || (i <= failing && runs[i] != 1)) give_up("shared: a sample was computed " + std::to_string(runs[i]) + " times");
    }
    const auto& failures = operation->failures;
    const bool right = failing == samples ? failures.empty() : failures.size() == 1 && failures.begin()->second.message == std::to_string(failing);
    if (!right) give_up("shared: not the error of the first sample that fails");
  }

  // As after Ctrl-C: the caller does not come back.
  void interrupted_wait(Random& random, const Value& value) {
    scheduler_.wait(value.operation, Clock::now() + std::chrono::microseconds(random.below(300)));
  }

  // Waits for a value and compares all that is known of it: each sample once, in order, with the expected hash, and errors where they belong.
  void finish(const ValuePtr& finished) {
    Value& value = *finished;
    if (!scheduler_.wait(value.operation) || !scheduler_.done(value.operation)) give_up("a wait without a limit ended too early");
    ++progress;
    // A formula that nothing else needed may never run once its value is released.
    const bool dropped = value.released && value.operation->failures.empty() &&
                         std::all_of(value.runs.begin(), value.runs.end(), [](const std::atomic<int>& runs) { return runs == 0; });
    for (int64_t c = 0; c < value.chunks() && !dropped; ++c) {
      if (value.operation->failures.count(c) != static_cast<size_t>(value.fails[c])) give_up("an error is lost, or in the wrong place");
      bool failed = value.inherits[c];
      for (int64_t i = c * value.grain; i < std::min(value.samples, (c + 1) * value.grain); ++i) {
        if (value.runs[i] != (failed ? 0 : 1)) give_up("a sample is computed never or twice");
        if (value.runs[i] == 1 && value.computed[i] != value.expected[i]) give_up("a sample is computed before what it reads");
        // The samples behind one that throws are not computed, within a chunk.
        failed = (failed || value.throws[i]) && !value.operation->external;
      }
    }
  }

  Scheduler scheduler_;
  const uint64_t seed_;
  Clock::time_point end_;
  std::vector<std::unique_ptr<CountedPool>> pools_;
  std::mutex mutex_;
  std::deque<ValuePtr> published_, outside_;
  std::atomic<bool> no_more_{false};
  std::atomic<uint64_t> programs_{0}, operations_{0}, samples_{0};
};

// A caller that waits for one pool takes a chunk of another pool, which has no threads, and leaves when its own work is done. The caller that waits
// for the rest of the other pool must be woken.
void handed_over() {
  Scheduler scheduler(1);
  const auto make = [&](int threads, int64_t samples, bool external, Work work) {
    auto operation = new_operation(scheduler, std::make_shared<Pool>(threads), "work", samples, std::move(work));
    operation->external = external;
    return operation;
  };
  std::atomic<int> begun{0};
  const OperationPtr others = make(0, 2, false, [&](int64_t) {
    ++begun;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  const OperationPtr external = make(1, 1, true, Work());
  scheduler.submit(external);
  scheduler.submit(others);
  std::thread helper([&] { scheduler.wait(external); });
  while (begun == 0) std::this_thread::yield();
  std::thread ending([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    scheduler.report(external, 0, 1, false, nullptr, std::chrono::nanoseconds(1));
  });
  scheduler.wait(others);
  helper.join();
  ending.join();
  scheduler.stop();
  ++progress;
}

// A caller waits for an operation while a later call, which stays held, absorbs its formula. The waiting caller must then run that call as well.
void computed_meanwhile() {
  Scheduler scheduler(1);
  const PoolPtr pool = std::make_shared<Pool>(1);
  const auto make = [&](
                        const OperationPtr& reads, bool external, const std::function<void()>& meanwhile = [] {}) {
    auto operation = new_operation(scheduler, pool, "work", 1, [](int64_t) {});
    operation->external = external;
    if (reads) {
      operation->formula = std::make_shared<Formula>();
      operation->result = operation.get();
      const bool computes = scheduler.formula(*reads, {{reads, Dependency::same_sample}}) != nullptr;
      meanwhile();
      scheduler.connect(operation, {{reads, Dependency::same_sample}},
                        computes ? std::vector<const void*>{reads->result} : std::vector<const void*>{});
    }
    return operation;
  };
  const OperationPtr external = make(nullptr, true);
  scheduler.submit(external);
  const OperationPtr first = make(external, false);
  scheduler.submit(first);
  std::thread waiting([&] { scheduler.wait(first); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // until it sleeps
  const OperationPtr second = make(first, false);
  if (second->fused_reads != 1) give_up("a formula that has not begun is not taken over");
  scheduler.report(external, 0, 1, false, nullptr, std::chrono::nanoseconds(1));
  waiting.join();
  if (!scheduler.done(second)) give_up("a wait ended before the call that computes the formula");
  // The same if the operation ends before the call is connected: the call reads its inputs all the same.
  const OperationPtr third = make(second, false);
  const OperationPtr fourth = make(third, false, [&] { scheduler.wait(third); });
  if (scheduler.done(third)) give_up("the inputs of an operation may be overwritten before the call that computes its formula has read them");
  scheduler.wait(third);
  if (!scheduler.done(fourth)) give_up("a wait ended before the call that computes the formula of an operation that had ended");
  scheduler.stop();
  ++progress;
}

// A call absorbs the formula of another, on batches without samples: both must finish as soon as the waiting caller queues them.
void nothing_to_compute() {
  Scheduler scheduler(1);
  const PoolPtr pool = std::make_shared<Pool>(1);
  const auto make = [&] {
    auto operation = new_operation(scheduler, pool, "work");
    operation->formula = std::make_shared<Formula>();
    operation->result = operation.get();
    return operation;
  };
  const OperationPtr first = make(), second = make();
  scheduler.connect(second, {{first, Dependency::same_sample}}, {first->result});
  if (!scheduler.wait(first) || !scheduler.done(second)) give_up("a wait ended before the call that computes the formula");
  scheduler.stop();
  ++progress;
}

}  // namespace

void check(int threads, uint64_t seed, double length) {
  handed_over();
  computed_meanwhile();
  nothing_to_compute();
  Check check(threads, seed);
  describe = [&] { return check.state(); };
  check.run(length);
  describe = nullptr;
}

}  // namespace ndd::stress
