// SPDX-License-Identifier: Apache-2.0
// What the scheduler measures: the total time of each operator, and the start and end of the most recent pieces of work.
#include <algorithm>
#include <atomic>

#include "ndd/stream/scheduler.h"

namespace ndd {
namespace {

// Number of spans kept: about 10 batches of 256 images, 1 MB.
constexpr size_t kSpans = 1 << 15;

}  // namespace

thread_local int64_t work_owner = 0;

// The owner's number follows a NUL, so the key, read as a C string, is the operator's name. The map stays small: there are only as many owners
// as loaders alive at a time.
std::pair<const std::string, std::chrono::nanoseconds>* Scheduler::worked_for(std::string_view op, int64_t owner) {
  std::string of_owner;
  if (owner) {
    of_owner.append(op).append(1, '\0').append(std::to_string(owner));
    op = of_owner;
  }
  auto found = worked_.find(op);
  if (found == worked_.end()) found = worked_.emplace(op, 0).first;
  return &*found;
}

// Takes 20 ns, for chunks of 12 us and more.
void Scheduler::note(std::pair<const std::string, std::chrono::nanoseconds>& worked, Time end, std::chrono::nanoseconds took) {
  static std::atomic<int> threads{0};
  thread_local const int thread = threads++;
  worked.second += took;
  const int64_t ended = std::chrono::duration_cast<std::chrono::nanoseconds>(end.time_since_epoch()).count();
  if (spans_.empty()) spans_.resize(kSpans);
  spans_[next_span_++ % kSpans] = {worked.first.c_str(), thread, ended - took.count(), ended};
}

std::map<std::string, std::chrono::nanoseconds> Scheduler::worked() {
  const Lock lock = hold();
  return {worked_.begin(), worked_.end()};
}

std::vector<Span> Scheduler::spans() {
  Lock lock = hold();
  std::vector<Span> found;
  for (size_t k = next_span_ > kSpans ? next_span_ - kSpans : 0; k < next_span_; ++k) found.push_back(spans_[k % kSpans]);
  lock.unlock();
  // The spans of a chain are recorded together, after its last chunk, so they may be out of order.
  std::stable_sort(found.begin(), found.end(), [](const Span& a, const Span& b) { return a.end < b.end; });
  return found;
}

}  // namespace ndd
