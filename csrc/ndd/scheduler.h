// SPDX-License-Identifier: Apache-2.0
// The threads of the CPU stream and the order in which they work.
//
// An operator call is an Operation of N samples, cut into chunks. A chunk waits only for the samples that it reads, so operators and batches
// overlap without a barrier. Chunks that can run are taken in order of the calls, first samples first. Whoever waits for a result helps.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ndd/error.h"
#include "ndd/samples.h"

namespace ndd {

struct Operation;
using OperationPtr = std::shared_ptr<Operation>;

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

struct Operation {
  enum State { held, queued, done };

  uint64_t id = 0;  // in order of the calls
  State state = held;
  std::function<void(int64_t)> work;
  std::vector<Tensor> inputs;
  int64_t samples = 0, grain = 1;  // samples in a chunk
  std::vector<Dependency> reads;
  std::vector<Dependency> readers;         // those that wait for this one; only while it is queued
  std::vector<int32_t> missing;            // per chunk: inputs that are not ready
  std::vector<char> finished;              // per chunk
  int64_t unfinished = 0;                  // chunks
  std::map<int64_t, Failure> failures;     // by chunk; the first sample of a chunk that fails ends it
  bool failed_at_call = false;

  int64_t chunks() const { return (samples + grain - 1) / grain; }
};

class Scheduler {
 public:
  enum InChild { in_child };

  explicit Scheduler(int threads) : threads_(threads) {}
  Scheduler(const Scheduler& parent, InChild);  // after a fork

  uint64_t next_id() { return ++last_id_; }
  bool ready(const std::vector<Dependency>& reads);
  void submit(const OperationPtr& operation);  // and whatever it reads
  void wait(const OperationPtr& operation);
  bool done(const OperationPtr& operation);
  void set_threads(int threads);
  int threads();
  // Ends the threads. Callers that wait then do the work themselves.
  void stop();
  // Runs everything that is queued; on return no thread works and the lock is held.
  std::unique_lock<std::mutex> drain();
  // Finished work owns tensors, and freeing a tensor may need Python's lock: callers free it, not the threads.
  void free_finished();

 private:
  using Chunk = std::pair<OperationPtr, int64_t>;
  struct Order {
    bool operator()(const Chunk& a, const Chunk& b) const {
      return a.first->id != b.first->id ? a.first->id < b.first->id : a.second < b.second;
    }
  };

  void enqueue(const OperationPtr& operation);
  void set_ready(const OperationPtr& operation, int64_t chunk);
  bool run_one(std::unique_lock<std::mutex>& lock);
  void finish(const OperationPtr& operation, int64_t chunk);
  void complete(const OperationPtr& operation);
  const Failure* inherited_failure(const Operation& operation, int64_t chunk) const;
  bool wants_worker();
  bool look_for_work(std::unique_lock<std::mutex>& lock);
  void wait_for_completion(std::unique_lock<std::mutex>& lock);
  void work();

  std::mutex mutex_;
  std::condition_variable work_arrived_, something_done_;
  std::set<Chunk, Order> ready_;
  std::vector<std::thread> workers_;
  std::vector<std::function<void(int64_t)>> finished_work_;
  std::vector<std::vector<Tensor>> finished_inputs_;
  int threads_, running_ = 0, idle_ = 0, asleep_ = 0;
  bool stopping_ = false, looking_ = false;
  std::atomic<uint64_t> last_id_{0}, completed_{0}, arrived_{0};
};

Scheduler& scheduler();

}  // namespace ndd
