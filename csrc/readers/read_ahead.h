// SPDX-License-Identifier: Apache-2.0
// Batches that threads of their own read ahead: decoding never waits for a disk, and a disk never holds up a decoding thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ndd {

// A batch of `size` parts in three steps: all parts are measured, memory is allocated, all parts are read. A std::exception that a step throws is
// the reason why that part cannot be read; the others are still tried, so that one look tells all that is wrong.
class ReadRequest {
 public:
  explicit ReadRequest(int64_t size) : size_(size), unfinished_(size), failed_(static_cast<size_t>(size)) {}
  virtual ~ReadRequest() = default;
  ReadRequest(const ReadRequest&) = delete;
  ReadRequest& operator=(const ReadRequest&) = delete;

  int64_t size() const { return size_; }
  // After wait(): by part, why it could not be read.
  const std::map<int64_t, std::string>& failures() const { return failures_; }

 protected:
  using Reasons = std::vector<std::pair<int64_t, std::string>>;

  virtual void measure(int64_t part) = 0;
  virtual void allocate() = 0;
  virtual void read(int64_t part) = 0;
  // [begin, end) of the parts, or of whatever order a request reads them in: for those that do neighbors together. Adds what failed to `reasons`.
  virtual void measure_some(int64_t begin, int64_t end, Reasons& reasons);
  virtual void read_some(int64_t begin, int64_t end, Reasons& reasons);
  // read() of a part that has not failed.
  void try_read(int64_t part, Reasons& reasons);
  // Only in allocate() and complete().
  void fail_part(int64_t part, const std::string& reason) {
    failures_.emplace(part, reason);
    failed_[part] = 1;
  }
  // When all was read, by the thread that read the last part.
  virtual void complete() {}

 private:
  friend class ReadAhead;
  enum State { measuring, allocating, reading, completing, finished };

  const int64_t size_;
  State state_ = measuring;
  int64_t next_ = 0, unfinished_;
  bool abandoned_ = false;
  std::map<int64_t, std::string> failures_;
  std::vector<char> failed_;  // the same, for threads that read other parts
};
using ReadRequestPtr = std::shared_ptr<ReadRequest>;

// Two threads take up what was started, oldest first.
void start_reading(const ReadRequestPtr& request);
// Helps until all is read, or until `end`: then false.
bool wait_until_read(const ReadRequestPtr& request, std::chrono::steady_clock::time_point end);
// Nobody will wait for it.
void abandon(const ReadRequestPtr& request);

}  // namespace ndd
