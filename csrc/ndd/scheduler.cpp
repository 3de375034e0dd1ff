// SPDX-License-Identifier: Apache-2.0
#include "ndd/scheduler.h"

#include <pthread.h>

#include <algorithm>
#include <new>
#include <stdexcept>

namespace ndd {
namespace {

// The chunks of `source` that chunk `j` of `reader` reads: first and one past the last.
std::pair<int64_t, int64_t> chunks_read(const Operation& source, const Operation& reader, int64_t sample, int64_t j) {
  if (sample == Dependency::all_samples) return {0, source.chunks()};
  if (sample != Dependency::same_sample) return {sample / source.grain, sample / source.grain + 1};
  const int64_t begin = j * reader.grain, end = std::min(reader.samples, begin + reader.grain);
  return {begin / source.grain, (end - 1) / source.grain + 1};
}

Failure failure_of(const std::exception_ptr& error, uint64_t origin) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return {e.kind(), e.what(), origin};
  } catch (const std::bad_alloc&) {
    return {Error::Memory, "out of memory", origin};
  } catch (const std::exception& e) {
    return {Error::Runtime, e.what(), origin};
  }
}

}  // namespace

// The parent's lock is held and stays so: its scheduler is left as it is.
Scheduler::Scheduler(const Scheduler& parent, InChild) : threads_(parent.threads_), last_id_(parent.last_id_.load()) {}

bool Scheduler::ready(const std::vector<Dependency>& reads) {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::all_of(reads.begin(), reads.end(), [](const Dependency& d) { return d.operation->state == Operation::done && d.operation->failures.empty(); });
}

void Scheduler::submit(const OperationPtr& operation) {
  std::lock_guard<std::mutex> lock(mutex_);
  // Everything held that it reads, directly or not, oldest first. Not recursive: a deferred program may be a long chain.
  std::vector<OperationPtr> held{operation};
  std::set<uint64_t> seen{operation->id};
  for (size_t k = 0; k < held.size(); ++k) {
    for (const Dependency& d : std::vector<Dependency>(held[k]->reads)) {
      if (d.operation->state == Operation::held && seen.insert(d.operation->id).second) held.push_back(d.operation);
    }
  }
  std::sort(held.begin(), held.end(), [](const OperationPtr& a, const OperationPtr& b) { return a->id < b->id; });
  const size_t before = ready_.size();
  for (const OperationPtr& one : held) {
    if (one->state == Operation::held) enqueue(one);
  }
  if (ready_.size() > before) wake_workers(ready_.size() - before);
}

void Scheduler::enqueue(const OperationPtr& operation) {
  Operation& op = *operation;
  op.state = Operation::queued;
  op.unfinished = op.chunks();
  op.finished.assign(op.unfinished, 0);
  op.missing.assign(op.unfinished, 0);
  if (op.unfinished == 0) return complete(operation);
  for (const Dependency& d : op.reads) {
    Operation& source = *d.operation;
    if (source.state == Operation::done) continue;
    bool waits = false;
    for (int64_t j = 0; j < op.chunks(); ++j) {
      const auto [begin, end] = chunks_read(source, op, d.sample, j);
      for (int64_t c = begin; c < end; ++c) op.missing[j] += !source.finished[c];
      waits = waits || op.missing[j] > 0;
    }
    if (waits) source.readers.push_back({operation, d.sample});
  }
  for (int64_t j = 0; j < op.chunks(); ++j) {
    if (op.missing[j] == 0) set_ready(operation, j);
  }
}

void Scheduler::set_ready(const OperationPtr& operation, int64_t chunk) { ready_.emplace(operation, chunk); }

void Scheduler::wake_workers(size_t chunks) {
  // Threads are made when there is work for them: importing the library starts none.
  while (!stopping_ && static_cast<int>(workers_.size()) < threads_ && static_cast<size_t>(idle_) < ready_.size()) {
    workers_.emplace_back([this] { work(); });
    ++idle_;
  }
  for (size_t k = 0; k < std::min<size_t>(chunks, idle_); ++k) work_arrived_.notify_one();
}

const Failure* Scheduler::inherited_failure(const Operation& operation, int64_t chunk) const {
  for (const Dependency& d : operation.reads) {
    const Operation& source = *d.operation;
    if (source.failures.empty()) continue;
    if (source.failed_at_call || source.samples == 0) return &source.failures.begin()->second;
    const auto [begin, end] = chunks_read(source, operation, d.sample, chunk);
    const auto failure = source.failures.lower_bound(begin);
    if (failure != source.failures.end() && failure->first < end) return &failure->second;
  }
  return nullptr;
}

// Runs the first chunk that is ready, unlocked meanwhile. At most `threads_` run at a time, whether workers or helping callers.
bool Scheduler::run_one(std::unique_lock<std::mutex>& lock) {
  if (ready_.empty() || running_ >= threads_) return false;
  const auto [operation, chunk] = *ready_.begin();
  ready_.erase(ready_.begin());
  if (const Failure* failure = inherited_failure(*operation, chunk)) {
    operation->failures.emplace(chunk, *failure);
    finish(operation, chunk);
    return true;
  }
  ++running_;
  lock.unlock();
  std::exception_ptr error;
  try {
    const int64_t end = std::min(operation->samples, (chunk + 1) * operation->grain);
    for (int64_t i = chunk * operation->grain; i < end; ++i) operation->work(i);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  --running_;
  if (error) operation->failures.emplace(chunk, failure_of(error, operation->id));
  finish(operation, chunk);
  return true;
}

void Scheduler::finish(const OperationPtr& operation, int64_t chunk) {
  Operation& op = *operation;
  op.finished[chunk] = 1;
  --op.unfinished;
  const size_t before = ready_.size();
  for (const Dependency& reader : op.readers) {
    Operation& target = *reader.operation;
    int64_t first = 0, last = target.chunks();
    if (reader.sample == Dependency::same_sample) {
      const int64_t begin = chunk * op.grain, end = std::min(op.samples, begin + op.grain);
      first = begin / target.grain;
      last = std::min(last, (end - 1) / target.grain + 1);
    } else if (reader.sample != Dependency::all_samples && reader.sample / op.grain != chunk) {
      continue;
    }
    for (int64_t j = first; j < last; ++j) {
      if (--target.missing[j] == 0) set_ready(reader.operation, j);
    }
  }
  if (op.unfinished == 0) complete(operation);
  // This thread takes one of them itself.
  if (ready_.size() > before + 1) wake_workers(ready_.size() - before - 1);
}

void Scheduler::complete(const OperationPtr& operation) {
  operation->state = Operation::done;
  operation->readers.clear();
  operation->reads.clear();
  finished_work_.push_back(std::move(operation->work));
  finished_inputs_.push_back(std::move(operation->inputs));
  operation->work = nullptr;
  if (waiting_ > 0) something_done_.notify_all();
}

void Scheduler::wait(const OperationPtr& operation) {
  if (done(operation)) return;
  submit(operation);
  std::unique_lock<std::mutex> lock(mutex_);
  ++waiting_;
  while (operation->state != Operation::done) {
    if (!run_one(lock)) something_done_.wait(lock);
  }
  --waiting_;
  if (!ready_.empty()) wake_workers(ready_.size());  // a worker may have left the rest to this helper
}

bool Scheduler::done(const OperationPtr& operation) {
  std::lock_guard<std::mutex> lock(mutex_);
  return operation->state == Operation::done;
}

void Scheduler::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    --idle_;
    while (!stopping_ && run_one(lock)) {
    }
    ++idle_;
    if (stopping_) return;
    work_arrived_.wait(lock);
  }
}

void Scheduler::set_threads(int threads) {
  std::lock_guard<std::mutex> lock(mutex_);
  threads_ = threads;
  if (!ready_.empty()) wake_workers(ready_.size());
}

int Scheduler::threads() {
  std::lock_guard<std::mutex> lock(mutex_);
  return threads_;
}

std::unique_lock<std::mutex> Scheduler::drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  ++waiting_;
  while (!ready_.empty() || running_ > 0) {
    if (!run_one(lock)) something_done_.wait_for(lock, std::chrono::milliseconds(1));
  }
  --waiting_;
  return lock;
}

void Scheduler::stop() {
  std::vector<std::thread> workers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    workers.swap(workers_);
  }
  work_arrived_.notify_all();
  for (std::thread& worker : workers) worker.join();
}

void Scheduler::free_finished() {
  std::vector<std::function<void(int64_t)>> work;
  std::vector<std::vector<Tensor>> inputs;
  std::lock_guard<std::mutex> lock(mutex_);
  work.swap(finished_work_);
  inputs.swap(finished_inputs_);
}

namespace {

Scheduler* process_scheduler = nullptr;
std::unique_lock<std::mutex>* held_for_fork = nullptr;

}  // namespace

Scheduler& scheduler() {
  // Never destroyed: threads may still be at work while the process exits.
  static const bool made = [] {
    process_scheduler = new Scheduler(std::max(1u, std::thread::hardware_concurrency()));
    // A child has none of the threads. The parent finishes what is queued first, so that the child finds every result complete.
    pthread_atfork([] { held_for_fork = new std::unique_lock<std::mutex>(process_scheduler->drain()); },
                   [] {
                     delete held_for_fork;
                     held_for_fork = nullptr;
                   },
                   [] { process_scheduler = new Scheduler(*process_scheduler, Scheduler::in_child); });
    return true;
  }();
  (void)made;
  return *process_scheduler;
}

}  // namespace ndd
