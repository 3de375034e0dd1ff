// SPDX-License-Identifier: Apache-2.0
// The threads of the CPU stream and the order in which they work.
//
// An operator call is an Operation of N samples, cut into chunks. A chunk waits only for the samples that it reads, so operators and batches
// overlap without a barrier. Chunks that can run are taken in order of the calls, first samples first. Whoever waits for a result helps.
//
// A call may compute for itself what an earlier one has not begun to compute; it reads what that one reads, instead of its result. What is computed is
// the operators' business: here it is a Formula. A result of such work that Python lets go of before it is begun is not computed.
//
// An operation belongs to a pool, which limits how many of its chunks run at a time; several pools work side by side on the same threads.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ndd/error.h"
#include "ndd/samples.h"
#include "ndd/stream/stream.h"
#include "ndd/stream/threads.h"

namespace ndd {

struct Operation;
using OperationPtr = std::shared_ptr<Operation>;
struct Pool;
using PoolPtr = std::shared_ptr<Pool>;

// A reads B: sample i of A reads sample i of B (same_sample), all of B (all_samples), or one sample of B.
struct Dependency {
  static constexpr int64_t same_sample = -1, all_samples = -2;
  OperationPtr operation;
  int64_t sample;
};

struct Failure {
  int kind;
  std::string message;
  uint64_t origin;  // id of the operation that failed first
};

// A piece of work that a thread has done.
struct Span {
  const char* op;
  int thread;
  int64_t begin, end;  // nanoseconds of the steady clock
};

struct Operation {
  enum State { held, queued, done };

  uint64_t id = 0;  // in order of the calls
  std::string op;
  PoolPtr pool;
  State state = held;
  Work work;
  std::vector<Tensor> inputs;
  int64_t samples = 0, grain = 1;  // samples in a chunk
  std::vector<Dependency> reads;
  std::vector<Dependency> readers;  // those that wait for this one; only while it is queued
  std::vector<int32_t> missing;  // per chunk: inputs that are not ready
  std::vector<char> finished;  // per chunk
  int64_t unfinished = 0;  // chunks
  std::map<int64_t, Failure> failures;  // by chunk; the first sample of a chunk that fails ends it
  bool failed_at_call = false;
  bool external = false;  // done by threads of Python, which report each sample

  // What makes `result` (its first byte), for a later call to do itself; null for most operations, and when it is done.
  FormulaPtr formula;
  const void* result = nullptr;
  std::vector<std::weak_ptr<Operation>> fused, fused_into;  // whose formulas this one computes itself, and who computes this one's
  uint32_t fused_reads = 0;  // which of the inputs of the call those were
  bool begun = false, droppable = false;  // droppable: to compute it changes nothing that could be seen
  std::atomic<bool> has_readers{false}, released{false};  // a call waits for the result; Python has let go of it

  bool unwanted() const { return droppable && released && !has_readers; }
  int64_t chunks() const { return (samples + grain - 1) / grain; }
};

using Chunk = std::pair<OperationPtr, int64_t>;

struct InOrderOfCalls {
  bool operator()(const Chunk& a, const Chunk& b) const { return a.first->id != b.first->id ? a.first->id < b.first->id : a.second < b.second; }
};

struct Pool {
  explicit Pool(int threads) : limit(threads) {}

  // Whoever waits works even where there are no threads.
  bool has_room(bool waits) const { return running < (waits && limit == 0 ? 1 : limit); }

  const int limit;
  // Under the scheduler's lock.
  int running = 0, most_running = 0;
  std::set<Chunk, InOrderOfCalls> ready;
};

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
  // The formula of an operation, null when it has none or has begun.
  FormulaPtr formula(const Operation& operation);
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
  // How long all threads together have worked for each operator.
  std::map<std::string, std::chrono::nanoseconds> worked();
  // What threads have done last, in order of the ends.
  std::vector<Span> spans();
  // Ends the threads. Callers that wait then do the work themselves.
  void stop();
  // Runs everything that is queued; on return no thread works and the lock is held.
  std::unique_lock<std::mutex> drain();
  // Finished work owns tensors, and freeing a tensor may need the GIL: callers free it, not the threads.
  void free_finished();

 private:
  bool settled(const Operation& operation) const;
  void submit_locked(const OperationPtr& operation);
  void submit_due();
  void enqueue(const OperationPtr& operation);
  void set_ready(const OperationPtr& operation, int64_t chunk);
  Pool* next_pool(const Pool* waiting) const;
  bool run_one(std::unique_lock<std::mutex>& lock, const Pool* waiting);
  void finish(const OperationPtr& operation, int64_t chunk);
  void complete(const OperationPtr& operation);
  void note(const std::string& op, Time end, std::chrono::nanoseconds took);
  const Failure* inherited_failure(const Operation& operation, int64_t chunk) const;
  bool wants_worker();
  int most_threads() const;
  bool look_for_work(std::unique_lock<std::mutex>& lock);
  void wait_for_completion(std::unique_lock<std::mutex>& lock, const Pool& pool, Time end);
  void work();

  std::mutex mutex_;
  std::condition_variable work_arrived_, something_done_;
  std::vector<Pool*> active_;  // those with chunks that are ready
  std::vector<std::thread> workers_;
  ThreadStarter starter_;
  std::map<std::string, std::chrono::nanoseconds> worked_;
  std::vector<Span> spans_;  // a ring
  size_t next_span_ = 0;
  std::vector<Work> finished_work_;
  std::vector<std::vector<Tensor>> finished_inputs_;
  std::vector<FormulaPtr> finished_formulas_;
  int cores_, running_ = 0, idle_ = 0, asleep_ = 0;
  PoolPtr default_pool_;
  std::deque<std::pair<Time, OperationPtr>> later_;  // in order of their time
  std::set<OperationPtr> external_;  // that have not ended
  bool stopping_ = false, looking_ = false, starting_ = false;
  std::atomic<uint64_t> last_id_{0}, completed_{0}, arrived_{0};
};

Scheduler& scheduler();

}  // namespace ndd
