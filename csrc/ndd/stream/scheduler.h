// SPDX-License-Identifier: Apache-2.0
// The threads of the CPU stream and the order in which they work. Thread-safe; one mutex guards everything.
//
// An operator call is an Operation of N samples, cut into chunks. A chunk waits only for the samples that it reads, so operators and batches overlap
// without a barrier. Ready chunks run in call order, first samples first. A caller that waits for a result runs chunks meanwhile.
//
// A thread that has finished a chunk continues with the chunk that reads its result, if nothing else is missing for it (Links). The sample is still
// in the thread's caches, and the lock is taken once for decoding, resizing and normalizing a sample instead of three times.
//
// Fusion: a call may compute what an earlier call has not yet started; it then reads that call's inputs instead of its result. The scheduler does not
// know what is computed; to it, this is an opaque Formula. If Python drops such a result before its work has started, the work is skipped.
//
// An operation belongs to a pool, which limits how many of its chunks run concurrently; several pools share the same threads.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "ndd/error.h"
#include "ndd/stream/operation.h"
#include "ndd/stream/stream.h"
#include "ndd/stream/threads.h"

namespace ndd {

// A piece of work that a thread has finished, for profiling.
struct Span {
  const char* op;
  int thread;
  int64_t begin, end;  // nanoseconds of the steady clock
};

// The same chunk of several operations, each of which reads the one before. A thread runs them back to back and reports all of them under one lock.
struct Links {
  // 16 chunks of 12 us mean a pause of 0.2 ms between reports; a report takes 1 us.
  static constexpr int most = 16;

  std::array<OperationPtr, most> operations;
  int count = 0;
  int64_t chunk = 0;
};

// The loader (by number, 0 for none) whose calls this thread makes or whose chunk it runs.
extern thread_local int64_t work_owner;

class Scheduler {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum InChild { in_child };

  explicit Scheduler(int cores) : cores_(cores), default_pool_(std::make_shared<Pool>(cores)) {}
  Scheduler(Scheduler& parent, InChild);  // in the child of a fork

  uint64_t next_id() { return ++last_id_; }
  bool ready(const std::vector<Dependency>& reads);
  void submit(const OperationPtr& operation);  // and everything that it reads
  // Submits it after a short delay unless someone needs it earlier: the next call may absorb it.
  void submit_later(const OperationPtr& operation);
  // Samples of an external operation are finished. If `failed`, they failed with `failure`, or, if that is null, with the error of an input.
  void report(const OperationPtr& operation, int64_t first, int64_t count, bool failed, const Failure* failure, std::chrono::nanoseconds took);
  // Whether an unfinished operation depends on Python threads, or so many others that this was not found out.
  bool waits_for_python(const OperationPtr& operation);
  // The formula of an operation, for a call that reads `reads`. Null if it has none or has already started, and if the call also depends on Python
  // threads that the operation does not depend on: one of those threads may wait for the operation's result, and would then wait for the call, and so
  // for itself.
  FormulaPtr formula(const Operation& operation, const std::vector<Dependency>& reads);
  // Sets the inputs of `operation`. Where a result is in `computed`, it depends on that operation's own inputs instead.
  void connect(const OperationPtr& operation, std::vector<Dependency> reads, std::vector<const void*> computed);
  // Python has dropped its reference to the result.
  void release(const OperationPtr& operation);
  // Runs chunks until the operation has finished; false if `end` comes first.
  bool wait(const OperationPtr& operation, Time end = Time::max());
  // Runs the work on the calling thread if the pool has a single thread and is idle: waking a worker and being woken takes longer than many a batch.
  // False, without effect, if the pool has more threads or other work.
  bool run_now(const PoolPtr& pool, std::string_view op, int64_t samples, const Work& work);
  // Also requires that no absorbing call still reads its inputs: once true, the user may overwrite them.
  bool done(const OperationPtr& operation);
  PoolPtr default_pool();
  void set_default_pool(const PoolPtr& pool);
  int max_running(const Pool& pool);
  // Total thread time per operator. An owner's operators are listed under their name, a NUL and the owner's number.
  std::map<std::string, std::chrono::nanoseconds> worked();
  // The most recent pieces of work, ordered by their end.
  std::vector<Span> spans();
  // Ends the threads. From then on, waiting callers do all the work.
  void stop();
  // Runs everything that is queued. On return no thread is working and the lock is held.
  std::unique_lock<std::mutex> drain();
  // Frees what finished work owned. Freeing a tensor may need the GIL, so callers do this, never the workers.
  void free_finished();
  // Frees tensors in the same way, for other threads that have finished with them.
  void free_later(std::vector<Tensor> tensors);
  // A description of sleeping threads and pending work, for csrc/stress.
  std::string state();

 private:
  using Lock = std::unique_lock<std::mutex>;

  // Whom to wake: decided under the lock, notified after it is released (sleeping.cpp).
  struct Wakes {
    int workers = 0;
    bool waiters = false;
  };

  Lock hold();
  static void take(Lock& lock);
  Wakes whom_to_wake(int max_workers);
  int recruit(int most);
  void wake(const Wakes& wakes);
  void let_go(Lock& lock, int max_workers);
  bool look_for_work(Lock& lock);
  void wait_for_change(Lock& lock, const Pool& pool, Time end);
  void work();

  bool settled(const Operation& operation) const;
  void submit_locked(const OperationPtr& operation);
  void submit_due();
  void submit_readers_in_its_place(const Operation& operation);
  void enqueue(const OperationPtr& operation);
  void set_ready(const OperationPtr& operation, int64_t chunk);
  Pool* next_pool(const Pool* waiting) const;
  Links links_from(OperationPtr operation, int64_t chunk, uint64_t last) const;
  bool run_some(Lock& lock, const Pool* waiting, uint64_t last);
  void run_links(Lock& lock, const Links& links, Pool& pool, int max_workers);
  void finish(const OperationPtr& operation, int64_t chunk, const Operation* goes_on);
  void complete(const OperationPtr& operation);
  std::pair<const std::string, std::chrono::nanoseconds>* worked_for(std::string_view op, int64_t owner);
  void note(std::pair<const std::string, std::chrono::nanoseconds>& worked, Time end, std::chrono::nanoseconds took);
  const Failure* inherited_failure(const Operation& operation, int64_t chunk) const;
  int max_threads() const;

  std::mutex mutex_;
  std::condition_variable work_arrived_, something_changed_;
  std::vector<Pool*> active_;  // those with ready chunks
  std::vector<std::thread> workers_;
  ThreadStarter starter_;
  std::map<std::string, std::chrono::nanoseconds, std::less<>> worked_;
  std::vector<Span> spans_;  // a ring buffer
  size_t next_span_ = 0;
  std::vector<Work> finished_work_;
  std::vector<std::vector<Tensor>> finished_inputs_;
  std::vector<FormulaPtr> finished_formulas_;
  int cores_, running_ = 0;
  PoolPtr default_pool_;
  std::deque<std::pair<Time, OperationPtr>> later_;  // in order of their time
  std::set<OperationPtr> external_;  // the unfinished ones
  // Threads that sleep, have been notified, or are starting (sleeping.cpp).
  int idle_ = 0, called_ = 0, asleep_ = 0;
  bool stopping_ = false, looking_ = false, starting_ = false;
  bool fresh_ = false, room_ = false, ended_ = false;  // what has changed since the lock was taken
  std::atomic<uint64_t> last_id_{0}, arrived_{0}, changes_{0};
};

Scheduler& scheduler();

}  // namespace ndd
