// SPDX-License-Identifier: Apache-2.0
// The threads of the CPU stream and the order in which they work.
//
// An operator call is an Operation of N samples, cut into chunks. A chunk waits only for the samples that it reads, so operators and batches
// overlap without a barrier. Chunks that can run are taken in order of the calls, first samples first. Whoever waits for a result helps.
//
// A thread goes on with the chunk that reads the one it has done, where nothing else is missing for it (Links): the sample is in its caches, and it
// takes the lock once for decoding, resizing and normalising a sample.
//
// A call may compute for itself what an earlier one has not begun to compute; it reads what that one reads, instead of its result. What is computed is
// the operators' business: here it is a Formula. A result of such work that Python lets go of before it is begun is not computed.
//
// An operation belongs to a pool, which limits how many of its chunks run at a time; several pools work side by side on the same threads.
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

// A piece of work that a thread has done.
struct Span {
  const char* op;
  int thread;
  int64_t begin, end;  // nanoseconds of the steady clock
};

// The same chunk of operations of which each reads the one before: a thread does them one after the other, and reports all at once.
struct Links {
  // 16 chunks of 12 us are a pause of 0.2 ms between reports; reporting takes 1 us.
  static constexpr int most = 16;

  std::array<OperationPtr, most> operations;
  int count = 0;
  int64_t chunk = 0;
};

// Whose calls this thread makes, or whose chunk it runs: the number of a loader, 0 for none.
extern thread_local int64_t work_owner;

class Scheduler {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum InChild { in_child };

  explicit Scheduler(int cores) : cores_(cores), default_pool_(std::make_shared<Pool>(cores)) {}
  Scheduler(Scheduler& parent, InChild);  // after a fork

  uint64_t next_id() { return ++last_id_; }
  bool ready(const std::vector<Dependency>& reads);
  void submit(const OperationPtr& operation);  // and whatever it reads
  // The same in a moment, unless somebody needs it before: the next call may compute it itself.
  void submit_later(const OperationPtr& operation);
  // Samples of an external operation are done; they failed with `failure`, or with what the operation reads where that is null and `failed`.
  void report(const OperationPtr& operation, int64_t first, int64_t count, bool failed, const Failure* failure, std::chrono::nanoseconds took);
  // The formula of an operation, for a call that reads `reads`; null when it has none or has begun, and where the call would wait for Python's threads
  // as well: whoever waits for the result of this operation, as one of those may do, also waits for a call that computes it.
  FormulaPtr formula(const Operation& operation, const std::vector<Dependency>& reads);
  // Has `operation` read `reads`; instead of the results in `computed` it reads what they are made of.
  void connect(const OperationPtr& operation, std::vector<Dependency> reads, std::vector<const void*> computed);
  // Python lets go of the result.
  void release(const OperationPtr& operation);
  // Helps until the operation is done, or until `end`: then false.
  bool wait(const OperationPtr& operation, Time end = Time::max());
  // Has the caller, who would wait for it at once, do work of a pool for one thread by itself, when nothing else of the pool is to be done: waking a
  // thread and back takes longer than many a batch. False, and nothing happens, where the pool has more threads or other work.
  bool run_now(const PoolPtr& pool, std::string_view op, int64_t samples, const Work& work);
  // Also nobody reads its inputs in its place any more: the user may overwrite them.
  bool done(const OperationPtr& operation);
  PoolPtr default_pool();
  void set_default_pool(const PoolPtr& pool);
  int most_running(const Pool& pool);
  // How long all threads together have worked for each operator. A name with a NUL and a number behind it is that of an owner's operators.
  std::map<std::string, std::chrono::nanoseconds> worked();
  // What threads have done last, in order of the ends.
  std::vector<Span> spans();
  // Ends the threads. Callers that wait then do the work themselves.
  void stop();
  // Runs everything that is queued; on return no thread works and the lock is held.
  std::unique_lock<std::mutex> drain();
  // Finished work owns tensors, and freeing a tensor may need the GIL: callers free it, not the threads.
  void free_finished();
  // Who sleeps and what there is to do, for csrc/stress.
  std::string state();

 private:
  using Lock = std::unique_lock<std::mutex>;

  // Whom to wake: decided under the lock, done without it (sleeping.cpp).
  struct Wakes {
    int workers = 0;
    bool waiters = false;
  };

  Lock hold();
  static void take(Lock& lock);
  Wakes whom_to_wake(int most_workers);
  int recruit(int most);
  void wake(const Wakes& wakes);
  void let_go(Lock& lock, int most_workers);
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
  void run_links(Lock& lock, const Links& links, Pool& pool, int most_workers);
  void finish(const OperationPtr& operation, int64_t chunk, const Operation* goes_on);
  void complete(const OperationPtr& operation);
  std::pair<const std::string, std::chrono::nanoseconds>* worked_for(std::string_view op, int64_t owner);
  void note(std::pair<const std::string, std::chrono::nanoseconds>& worked, Time end, std::chrono::nanoseconds took);
  const Failure* inherited_failure(const Operation& operation, int64_t chunk) const;
  int most_threads() const;

  std::mutex mutex_;
  std::condition_variable work_arrived_, something_changed_;
  std::vector<Pool*> active_;  // those with chunks that are ready
  std::vector<std::thread> workers_;
  ThreadStarter starter_;
  std::map<std::string, std::chrono::nanoseconds, std::less<>> worked_;
  std::vector<Span> spans_;  // a ring
  size_t next_span_ = 0;
  std::vector<Work> finished_work_;
  std::vector<std::vector<Tensor>> finished_inputs_;
  std::vector<FormulaPtr> finished_formulas_;
  int cores_, running_ = 0;
  PoolPtr default_pool_;
  std::deque<std::pair<Time, OperationPtr>> later_;  // in order of their time
  std::set<OperationPtr> external_;  // that have not ended
  // Who sleeps, and who is on the way (sleeping.cpp).
  int idle_ = 0, called_ = 0, asleep_ = 0;
  bool stopping_ = false, looking_ = false, starting_ = false;
  bool fresh_ = false, room_ = false, ended_ = false;  // what has changed since the lock was taken
  std::atomic<uint64_t> last_id_{0}, arrived_{0}, changes_{0};
};

Scheduler& scheduler();

}  // namespace ndd
