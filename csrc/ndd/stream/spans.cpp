// SPDX-License-Identifier: Apache-2.0
// What the scheduler measures: the time that each operator has taken in all, and when the latest pieces of work began and ended.
#include <algorithm>
#include <atomic>

#include "ndd/stream/scheduler.h"

namespace ndd {
namespace {

// Pieces of work that are remembered: about 10 batches of 256 images, 1 MB.
constexpr size_t kSpans = 1 << 15;

}  // namespace

thread_local int64_t work_owner = 0;

// The owner stands behind a NUL, so that spans have the operator's name. There are as many owners as loaders that live at a time.
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

// 20 ns, of chunks that take 12 us and more.
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
  // Those of links are noted when the last one has ended.
  std::stable_sort(found.begin(), found.end(), [](const Span& a, const Span& b) { return a.end < b.end; });
  return found;
}

}  // namespace ndd
