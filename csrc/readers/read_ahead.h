// SPDX-License-Identifier: Apache-2.0
// Reads batches ahead on separate threads, so decoding threads never wait for a disk.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ndd {

// A batch of `size` parts, read in three steps: all parts are measured, memory is allocated, all parts are read. An exception in a step is
// recorded as the reason why its part cannot be read; the other parts continue, so one pass reports every bad file.
class ReadRequest {
 public:
  explicit ReadRequest(int64_t size) : size_(size), unfinished_(size), failed_(static_cast<size_t>(size)) {}
  virtual ~ReadRequest() = default;
  ReadRequest(const ReadRequest&) = delete;
  ReadRequest& operator=(const ReadRequest&) = delete;

  int64_t size() const { return size_; }
  // After waiting: the parts that could not be read, and why.
  const std::map<int64_t, std::string>& failures() const { return failures_; }

 protected:
  using Reasons = std::vector<std::pair<int64_t, std::string>>;

  // Called on reading threads, and by the thread that waits: measure() and read() concurrently for different parts, allocate() once between them.
  virtual void measure(int64_t part) = 0;
  virtual void allocate() = 0;
  virtual void read(int64_t part) = 0;
  // Measure or read the parts [begin, end), in an order that the request may choose. To be overridden to treat neighboring parts together.
  // Failures are added to `reasons`.
  virtual void measure_some(int64_t begin, int64_t end, Reasons& reasons);
  virtual void read_some(int64_t begin, int64_t end, Reasons& reasons);
  // Calls read() for a part that has not failed.
  void try_read(int64_t part, Reasons& reasons);
  // Only to be called in allocate() and complete(), where no other thread works on the request.
  void fail_part(int64_t part, const std::string& reason) {
    failures_.emplace(part, reason);
    failed_[part] = 1;
  }
  // Called after everything was read, on the thread that read the last part.
  virtual void complete() {}

 private:
  friend class ReadAhead;
  enum State { measuring, allocating, reading, completing, finished };

  const int64_t size_;
  State state_ = measuring;
  // Of the current phase: the first part that no thread has taken, and the number of parts that are not done.
  int64_t next_ = 0, unfinished_;
  bool abandoned_ = false;
  std::map<int64_t, std::string> failures_;
  std::vector<char> failed_;  // the same by part, which threads can read without the lock
};
using ReadRequestPtr = std::shared_ptr<ReadRequest>;

// Queues a request for two threads, which take the oldest first.
void start_reading(const ReadRequestPtr& request);
// Helps with reading until the request is finished. Returns false if it is not at the time `end`.
bool wait_until_read(const ReadRequestPtr& request, std::chrono::steady_clock::time_point end);
// Drops the parts that have not begun.
void abandon(const ReadRequestPtr& request);

}  // namespace ndd
