// SPDX-License-Identifier: Apache-2.0
// What the threads of the CPU stream work on: operations, cut into chunks, and the pools that they belong to.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ndd/python_interface.h"
#include "ndd/samples.h"
#include "ndd/stream/stream.h"

namespace ndd {

struct Operation;
using OperationPtr = std::shared_ptr<Operation>;
struct Pool;
using PoolPtr = std::shared_ptr<Pool>;

// A reads B: sample i of A reads sample i of B (same_sample), all of B (all_samples), or one sample of B.
struct Dependency {
  NDD_PLAIN_ENUM("stream.Read", Read, int64_t, same_sample = -1, all_samples = -2);
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
  std::string op;
  PoolPtr pool;
  State state = held;
  Work work;
  std::vector<Tensor> inputs;
  int64_t samples = 0, grain = 1;  // samples in a chunk
  std::vector<Dependency> reads;
  std::vector<Dependency> readers;  // those that wait for this one; only while it is queued
  std::vector<int32_t> missing;  // per chunk: inputs that are not ready
  std::vector<int64_t> ready;  // chunks that can run: a heap with the first of them in front
  std::vector<char> finished;  // per chunk
  int64_t unfinished = 0;  // chunks
  std::map<int64_t, Failure> failures;  // by chunk; the first sample of a chunk that fails ends it
  bool failed_at_call = false;
  bool external = false;  // done by threads of Python, which report each sample
  int64_t owner = 0;  // whose work it is: the number of a loader, 0 for none
  std::pair<const std::string, std::chrono::nanoseconds>* worked = nullptr;  // how long threads have worked for the owner's operators of this name
  // Somebody waits for chunks of it besides those that read the same sample: a thread reports each as soon as it is done.
  std::atomic<bool> hurried{false};

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

struct Pool {
  explicit Pool(int threads) : limit(threads) {}

  // Whoever waits works even where there are no threads.
  bool has_room(bool waits) const { return running < (waits && limit == 0 ? 1 : limit); }
  void add(const OperationPtr& operation, int64_t chunk);
  // The first chunk that can run, of the earliest call.
  std::pair<OperationPtr, int64_t> take();

  const int limit;
  // Under the scheduler's lock.
  int running = 0, most_running = 0;
  std::deque<OperationPtr> ready;  // those with chunks that can run, in order of the calls
  int64_t ready_chunks = 0;
};

}  // namespace ndd
