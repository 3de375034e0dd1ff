// SPDX-License-Identifier: Apache-2.0
// What the threads of the CPU stream work on: operations, cut into chunks, and the pools that they belong to. Unless noted, fields are guarded by the
// scheduler's mutex.
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

// When the work of a call from Python runs.
NDD_ENUM("stream.Mode", Mode, int, deferred = 1, eager, sync);

// A depends on B: sample i of A reads sample i of B (same_sample), all of B (all_samples), or one given sample of B. Or it reads nothing, and comes
// after B even if that fails (after_it).
struct Dependency {
  NDD_PLAIN_ENUM("stream.Read", Read, int64_t, same_sample = -1, all_samples = -2, after_it = -3);
  OperationPtr operation;
  int64_t sample;
};

// Makes the call from Python that this thread has opened depend on an earlier one.
void read_in_call(Dependency read);

struct Failure {
  int kind;
  std::string message;
  uint64_t origin;  // id of the operation that failed first
};

struct Operation {
  enum State { held, queued, done };

  uint64_t id = 0;  // increases in call order
  std::string op;
  PoolPtr pool;
  State state = held;
  Work work;
  std::vector<Tensor> inputs;
  int64_t samples = 0, grain = 1;  // grain: samples per chunk
  std::vector<Dependency> reads;
  std::vector<Dependency> readers;  // operations waiting for this one; only while it is queued
  std::vector<int32_t> missing;  // per chunk: input chunks that are not finished yet
  std::vector<int64_t> ready;  // runnable chunks: a min-heap
  std::vector<char> finished;  // per chunk
  int64_t unfinished = 0;  // chunks
  std::map<int64_t, Failure> failures;  // by chunk; a failing sample ends its chunk
  bool failed_at_call = false;
  bool external = false;  // executed by Python threads, which report each sample
  int64_t owner = 0;  // the number of the loader whose work this is, or 0
  std::pair<const std::string, std::chrono::nanoseconds>* worked = nullptr;  // time that threads have spent on this operator for this owner
  // Set when someone waits for this operation's chunks, other than the readers of the same sample: threads then report each chunk as soon as it is
  // finished instead of batching reports (Links).
  std::atomic<bool> hurried{false};

  // Describes how `result` (identified by its address) is computed, so a later call can compute it itself. Null for most operations, and once
  // this one has finished.
  FormulaPtr formula;
  const void* result = nullptr;
  std::vector<std::weak_ptr<Operation>> fused, fused_into;  // operations whose formulas this one computes itself; operations that compute this one's
  uint32_t fused_reads = 0;  // bit k: input k of the call is among those
  bool begun = false, droppable = false;  // droppable: its work has no side effects
  std::atomic<bool> has_readers{false}, released{false};  // a call reads the result; Python has dropped its reference

  bool unwanted() const { return droppable && released && !has_readers; }
  int64_t chunks() const { return (samples + grain - 1) / grain; }
};

struct Pool {
  explicit Pool(int threads) : limit(threads) {}

  // A waiting caller may run chunks even in a pool without threads; otherwise they would never run.
  bool has_room(bool waits) const { return running < (waits && limit == 0 ? 1 : limit); }
  void add(const OperationPtr& operation, int64_t chunk);
  // Removes and returns the first runnable chunk of the earliest call.
  std::pair<OperationPtr, int64_t> take();

  const int limit;
  // Guarded by the scheduler's mutex.
  int running = 0, max_running = 0;
  std::deque<OperationPtr> ready;  // operations with runnable chunks, in call order
  int64_t ready_chunks = 0;
};

}  // namespace ndd
