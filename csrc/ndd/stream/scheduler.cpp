// SPDX-License-Identifier: Apache-2.0
#include "ndd/stream/scheduler.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
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

// How long large element-wise work is held back, which takes as long at least. Python issues the next call of a chain 10 us after the last, but 70
// where that one has swept the caches: with 40 us x * 0.5 + 3 of 16 VGA images was seldom fused and took 5.2 ms, so 2.0.
constexpr auto kGrace = std::chrono::microseconds(200);

// Pieces of work that are remembered: about 10 batches of 256 images, 1 MB.
constexpr size_t kSpans = 1 << 15;

// Tells the core that this is a loop of waiting.
void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
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

// The parent's lock is held and stays so: its scheduler is left as it is. The threads that would have ended external work are gone.
Scheduler::Scheduler(Scheduler& parent, InChild)
    : cores_(parent.cores_), default_pool_(parent.default_pool_), external_(std::move(parent.external_)), last_id_(parent.last_id_.load()) {
  const Failure failure{Error::Runtime, "the process was forked while a Python function was running", 0};
  for (const OperationPtr& operation : std::set<OperationPtr>(external_)) {
    report(operation, 0, operation->samples, true, &failure, std::chrono::nanoseconds(0));
  }
}

bool Scheduler::ready(const std::vector<Dependency>& reads) {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::all_of(reads.begin(), reads.end(),
                     [](const Dependency& d) { return d.operation->state == Operation::done && d.operation->failures.empty(); });
}

void Scheduler::submit(const OperationPtr& operation) {
  std::unique_lock<std::mutex> lock(mutex_);
  submit_locked(operation);
  const bool wake = wants_worker();
  lock.unlock();
  if (wake) work_arrived_.notify_one();
}

void Scheduler::submit_later(const OperationPtr& operation) {
  std::unique_lock<std::mutex> lock(mutex_);
  later_.emplace_back(std::chrono::steady_clock::now() + kGrace, operation);
  arrived_.fetch_add(1, std::memory_order_release);
  const bool wake = wants_worker();
  lock.unlock();
  if (wake) work_arrived_.notify_one();
}

// Queues what was held back long enough.
void Scheduler::submit_due() {
  while (!later_.empty() && later_.front().first <= std::chrono::steady_clock::now()) {
    const OperationPtr operation = later_.front().second;
    later_.pop_front();
    if (operation->state == Operation::held) submit_locked(operation);
  }
}

void Scheduler::report(const OperationPtr& operation, int64_t first, int64_t count, bool failed, const Failure* failure,
                       std::chrono::nanoseconds took) {
  std::unique_lock<std::mutex> lock(mutex_);
  note(operation->op, std::chrono::steady_clock::now(), took);
  if (failed && failure == nullptr) {
    for (const Dependency& d : operation->reads) {
      if (!d.operation->failures.empty()) failure = &d.operation->failures.begin()->second;
    }
  }
  for (int64_t i = first; i < first + count; ++i) {
    if (operation->finished[i]) continue;
    if (failure != nullptr) operation->failures.emplace(i, *failure);
    finish(operation, i);
  }
  const bool wake = wants_worker();
  lock.unlock();
  if (wake) work_arrived_.notify_one();
}

FormulaPtr Scheduler::formula(const Operation& operation) {
  std::lock_guard<std::mutex> lock(mutex_);
  return operation.begun ? nullptr : operation.formula;
}

void Scheduler::connect(const OperationPtr& operation, std::vector<Dependency> reads, std::vector<const void*> computed) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (size_t k = 0; k < reads.size(); ++k) {
    Operation& source = *reads[k].operation;
    const auto found = std::find(computed.begin(), computed.end(), source.result);
    // One that has ended by now may have failed: reading it passes the error on.
    if (source.formula == nullptr || found == computed.end()) {
      source.has_readers = true;
      operation->reads.push_back(reads[k]);
      continue;
    }
    computed.erase(found);
    operation->fused_reads |= 1u << k;
    operation->reads.insert(operation->reads.end(), source.reads.begin(), source.reads.end());
    std::vector<std::weak_ptr<Operation>> all = source.fused;
    all.push_back(reads[k].operation);
    for (const auto& one : all) {
      operation->fused.push_back(one);
      if (const OperationPtr alive = one.lock()) alive->fused_into.push_back(operation);
    }
  }
}

void Scheduler::release(const OperationPtr& operation) {
  std::lock_guard<std::mutex> lock(mutex_);
  operation->released = true;
  if (operation->state != Operation::held || !operation->unwanted()) return;
  // Now rather than at its turn: the result's memory serves the next call.
  const auto found = std::find_if(later_.begin(), later_.end(), [&](const auto& one) { return one.second == operation; });
  if (found == later_.end()) return;
  later_.erase(found);
  complete(operation);
}

void Scheduler::submit_locked(const OperationPtr& operation) {
  // Everything held that it reads, directly or not, oldest first. Not recursive: a deferred program may be a long chain.
  std::vector<OperationPtr> held{operation};
  std::set<uint64_t> seen{operation->id};
  for (size_t k = 0; k < held.size(); ++k) {
    for (const Dependency& d : std::vector<Dependency>(held[k]->reads)) {
      if (d.operation->state == Operation::held && seen.insert(d.operation->id).second) held.push_back(d.operation);
    }
  }
  std::sort(held.begin(), held.end(), [](const OperationPtr& a, const OperationPtr& b) { return a->id < b->id; });
  for (const OperationPtr& one : held) {
    if (one->state == Operation::held) enqueue(one);
  }
}

void Scheduler::enqueue(const OperationPtr& operation) {
  Operation& op = *operation;
  op.state = Operation::queued;
  op.unfinished = op.chunks();
  op.finished.assign(op.unfinished, 0);
  op.missing.assign(op.unfinished, 0);
  if (op.unfinished == 0) return complete(operation);
  if (op.external) {
    external_.insert(operation);
    return;
  }
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

void Scheduler::set_ready(const OperationPtr& operation, int64_t chunk) {
  Pool& pool = *operation->pool;
  if (pool.ready.empty()) active_.push_back(&pool);
  pool.ready.emplace(operation, chunk);
  arrived_.fetch_add(1, std::memory_order_release);
}

// Whether a sleeping thread should be woken; the caller does it when it has let go of the lock, or the thread would run into the lock. One is
// enough: whoever takes a chunk and leaves others wakes the next. Waking both of two threads from Python took 40 us, one takes 15.
bool Scheduler::wants_worker() {
  if ((active_.empty() && later_.empty()) || stopping_) return false;
  if (looking_ || starting_) return false;  // it will see the work, and wake the next
  // Of what is held back a thread that is at work will think when it has finished its chunk.
  if (next_pool(nullptr) == nullptr && (later_.empty() || running_ > 0)) return false;
  if (idle_ > 0) return true;
  // Threads are made when there is work for them: importing the library starts none.
  workers_.reserve(workers_.size() + 1);
  std::optional<std::thread> started = starter_.start([this] { work(); }, static_cast<int>(workers_.size()), most_threads());
  if (!started) return false;  // those that there are do it, or who waits for it
  starting_ = true;  // under the lock, which the new thread waits for
  workers_.push_back(std::move(*started));
  return false;
}

// So many threads would have work if all pools had.
int Scheduler::most_threads() const {
  int most = default_pool_->limit;
  for (const Pool* pool : active_) most = std::max(most, pool->limit);
  return most;
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

// The pool whose turn it is: of those with room, the one with the earliest call. Who waits prefers the pool that it waits for, and turns to others
// only where nothing happens in that one: a chunk of theirs may take long.
Pool* Scheduler::next_pool(const Pool* waiting) const {
  Pool* first = nullptr;
  for (Pool* pool : active_) {
    if (!pool->has_room(waiting != nullptr)) continue;
    if (pool == waiting) return pool;
    if (first == nullptr || InOrderOfCalls()(*pool->ready.begin(), *first->ready.begin())) first = pool;
  }
  return waiting != nullptr && waiting->running > 0 ? nullptr : first;
}

// Runs the first chunk that is ready, unlocked meanwhile; `waiting` is the pool of the operation that a caller waits for, null for a worker.
bool Scheduler::run_one(std::unique_lock<std::mutex>& lock, const Pool* waiting) {
  submit_due();
  Pool* const pool = next_pool(waiting);
  if (pool == nullptr) return false;
  const auto [operation, chunk] = *pool->ready.begin();  // keeps the pool alive
  pool->ready.erase(pool->ready.begin());
  if (pool->ready.empty()) active_.erase(std::find(active_.begin(), active_.end(), pool));
  if (!operation->begun && operation->unwanted()) {
    finish(operation, chunk);
    return true;
  }
  operation->begun = true;
  if (const Failure* failure = inherited_failure(*operation, chunk)) {
    operation->failures.emplace(chunk, *failure);
    finish(operation, chunk);
    return true;
  }
  ++running_;
  pool->most_running = std::max(pool->most_running, ++pool->running);
  const bool wake = wants_worker();
  lock.unlock();
  if (wake) work_arrived_.notify_one();
  std::exception_ptr error;
  const Time begin = std::chrono::steady_clock::now();
  try {
    const int64_t end = std::min(operation->samples, (chunk + 1) * operation->grain);
    for (int64_t i = chunk * operation->grain; i < end; ++i) operation->work(i);
  } catch (...) {
    error = std::current_exception();
  }
  const Time ended = std::chrono::steady_clock::now();
  lock.lock();
  --running_;
  --pool->running;
  note(operation->op, ended, ended - begin);
  if (error) operation->failures.emplace(chunk, failure_of(error, operation->id));
  finish(operation, chunk);
  return true;
}

bool Scheduler::run_now(const PoolPtr& pool, std::string_view op, int64_t samples, const Work& work) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (pool->limit > 1 || pool->running > 0 || !pool->ready.empty()) return false;
    ++running_;
    pool->most_running = std::max(pool->most_running, ++pool->running);
  }
  std::exception_ptr error;
  const Time begin = std::chrono::steady_clock::now();
  try {
    for (int64_t i = 0; i < samples; ++i) work(i);
  } catch (...) {
    error = std::current_exception();
  }
  const Time ended = std::chrono::steady_clock::now();
  bool wake = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    --running_;
    --pool->running;
    note(std::string(op), ended, ended - begin);
    completed_.fetch_add(1, std::memory_order_release);  // who waits for other work of the pool may do it now
    if (asleep_ > 0) something_done_.notify_all();
    wake = wants_worker();
  }
  if (wake) work_arrived_.notify_one();
  if (error) std::rethrow_exception(error);
  return true;
}

// 30 ns, of chunks that take 12 us and more.
void Scheduler::note(const std::string& op, Time end, std::chrono::nanoseconds took) {
  static std::atomic<int> threads{0};
  thread_local const int thread = threads++;
  const auto worked = worked_.try_emplace(op).first;
  worked->second += took;
  const int64_t ended = std::chrono::duration_cast<std::chrono::nanoseconds>(end.time_since_epoch()).count();
  if (spans_.empty()) spans_.resize(kSpans);
  spans_[next_span_++ % kSpans] = {worked->first.c_str(), thread, ended - took.count(), ended};
}

void Scheduler::finish(const OperationPtr& operation, int64_t chunk) {
  Operation& op = *operation;
  op.finished[chunk] = 1;
  --op.unfinished;
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
}

void Scheduler::complete(const OperationPtr& operation) {
  operation->state = Operation::done;
  if (operation->external) external_.erase(operation);
  operation->readers.clear();
  operation->reads.clear();
  finished_work_.push_back(std::move(operation->work));
  finished_inputs_.push_back(std::move(operation->inputs));
  if (operation->formula) finished_formulas_.push_back(std::move(operation->formula));
  operation->work = Work();
  completed_.fetch_add(1, std::memory_order_release);
  if (asleep_ > 0) something_done_.notify_all();
}

bool Scheduler::wait(const OperationPtr& operation, Time end) {
  if (done(operation)) return true;
  submit(operation);
  std::unique_lock<std::mutex> lock(mutex_);
  for (const auto& one : std::vector<std::weak_ptr<Operation>>(operation->fused_into)) {
    if (const OperationPtr alive = one.lock(); alive && alive->state == Operation::held) submit_locked(alive);
  }
  while (!settled(*operation) && std::chrono::steady_clock::now() < end) {
    if (!run_one(lock, operation->pool.get())) wait_for_completion(lock, *operation->pool, end);
  }
  const bool done = settled(*operation);
  const bool wake = wants_worker();  // a worker may have left the rest to this helper
  lock.unlock();
  if (wake) work_arrived_.notify_one();
  return done;
}

// Returns when some operation has ended, at `end`, or for no reason. Where a core is free because nothing is left to start, it looks for 20 us before
// it sleeps: being woken takes as long.
void Scheduler::wait_for_completion(std::unique_lock<std::mutex>& lock, const Pool& pool, Time end) {
  if (pool.running < pool.limit) {
    const uint64_t completed = completed_.load(std::memory_order_relaxed);
    lock.unlock();
    const Time stop = std::chrono::steady_clock::now() + std::chrono::microseconds(20);
    while (completed_.load(std::memory_order_acquire) == completed && std::chrono::steady_clock::now() < stop) pause();
    lock.lock();
    if (completed_.load(std::memory_order_relaxed) != completed) return;
  }
  ++asleep_;
  if (end == Time::max()) {
    something_done_.wait(lock);
  } else {
    something_done_.wait_until(lock, end);
  }
  --asleep_;
}

bool Scheduler::settled(const Operation& operation) const {
  return operation.state == Operation::done && std::all_of(operation.fused_into.begin(), operation.fused_into.end(), [](const auto& one) {
           const OperationPtr alive = one.lock();
           return alive == nullptr || alive->state == Operation::done;
         });
}

bool Scheduler::done(const OperationPtr& operation) {
  std::lock_guard<std::mutex> lock(mutex_);
  return settled(*operation);
}

void Scheduler::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  starting_ = false;
  for (;;) {
    while (!stopping_ && run_one(lock, nullptr)) {
    }
    if (stopping_) return;
    if (!looking_ && look_for_work(lock)) continue;
    if (stopping_) return;  // set while the lock was free
    ++idle_;
    work_arrived_.wait(lock);
    --idle_;
  }
}

// One thread at a time looks for 100 us before it sleeps: Python issues the next call within that time, and then need not wake anybody. Cropping 16
// images again and again takes 75 us; 75 or 130, at random, when it looks for 30 us.
bool Scheduler::look_for_work(std::unique_lock<std::mutex>& lock) {
  if (running_ >= cores_) return false;
  looking_ = true;
  const uint64_t arrived = arrived_.load(std::memory_order_relaxed);
  Time end = std::chrono::steady_clock::now() + std::chrono::microseconds(100);
  if (!later_.empty()) end = std::min(end, later_.front().first);
  lock.unlock();
  while (arrived_.load(std::memory_order_acquire) == arrived && std::chrono::steady_clock::now() < end) pause();
  lock.lock();
  looking_ = false;
  return next_pool(nullptr) != nullptr || !later_.empty();
}

PoolPtr Scheduler::default_pool() {
  std::lock_guard<std::mutex> lock(mutex_);
  return default_pool_;
}

void Scheduler::set_default_pool(const PoolPtr& pool) {
  std::lock_guard<std::mutex> lock(mutex_);
  default_pool_ = pool;
}

int Scheduler::most_running(const Pool& pool) {
  std::lock_guard<std::mutex> lock(mutex_);
  return pool.most_running;
}

std::map<std::string, std::chrono::nanoseconds> Scheduler::worked() {
  std::lock_guard<std::mutex> lock(mutex_);
  return worked_;
}

std::vector<Span> Scheduler::spans() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Span> found;
  for (size_t k = next_span_ > kSpans ? next_span_ - kSpans : 0; k < next_span_; ++k) found.push_back(spans_[k % kSpans]);
  return found;
}

std::unique_lock<std::mutex> Scheduler::drain() {
  const Pool none(0);
  std::unique_lock<std::mutex> lock(mutex_);
  for (; !later_.empty(); later_.pop_front()) {
    if (later_.front().second->state == Operation::held) submit_locked(later_.front().second);
  }
  while (!active_.empty() || running_ > 0) {
    if (!run_one(lock, &none)) something_done_.wait_for(lock, std::chrono::milliseconds(1));
  }
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
  std::vector<Work> work;
  std::vector<std::vector<Tensor>> inputs;
  std::vector<FormulaPtr> formulas;
  std::lock_guard<std::mutex> lock(mutex_);
  work.swap(finished_work_);
  inputs.swap(finished_inputs_);
  formulas.swap(finished_formulas_);
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
