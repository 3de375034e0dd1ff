// SPDX-License-Identifier: Apache-2.0
// Operations, their chunks and their dependencies: what becomes ready when, and which thread runs it. sleeping.cpp holds the rest of the Scheduler,
// the waking of threads.
#include "ndd/stream/scheduler.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <set>
#include <stdexcept>

#include "ndd/stream/shared_work.h"

namespace ndd {
namespace {

// The chunks of `source` that chunk `j` of `reader` reads, as a half-open range.
// A dependency is on the sample of the same number, on one given sample, or on all; after_it also waits for all, but passes on no failure.
std::pair<int64_t, int64_t> chunks_read(const Operation& source, const Operation& reader, int64_t sample, int64_t j) {
  if (sample == Dependency::all_samples || sample == Dependency::after_it) return {0, source.chunks()};
  if (sample != Dependency::same_sample) return {sample / source.grain, sample / source.grain + 1};
  const int64_t begin = j * reader.grain, end = std::min(reader.samples, begin + reader.grain);
  return {begin / source.grain, (end - 1) / source.grain + 1};
}

// How long large element-wise work is held back so that the next call can absorb it; the work itself takes at least as long. Python issues the next
// call of a chain 10 us after the last, but 70 us if the last call has swept the caches: with a delay of 40 us, x * 0.5 + 3 on 16 VGA images was
// rarely fused and took 5.2 ms instead of 2.0.
constexpr auto kGrace = std::chrono::microseconds(200);

// How long a thread follows a chain of chunks before it looks for work again: a chunk of an earlier call may have become ready in the meantime.
constexpr auto kLinksTime = std::chrono::milliseconds(10);

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

// Collects the unfinished external operations that this one waits for. Gives up (false) after 256 unfinished operations, to bound the time spent
// under the lock.
bool add_unended_external(const Operation& operation, std::set<const Operation*>& found) {
  std::vector<const Operation*> path{&operation};
  std::set<const Operation*> seen;
  while (!path.empty()) {
    const Operation& current = *path.back();
    path.pop_back();
    if (current.state == Operation::done || !seen.insert(&current).second) continue;
    if (seen.size() > 256) return false;
    if (current.external) found.insert(&current);
    for (const Dependency& d : current.reads) path.push_back(d.operation.get());
  }
  return true;
}

}  // namespace

void Pool::add(const OperationPtr& operation, int64_t chunk) {
  if (operation->ready.empty()) {
    const auto earlier = [](const OperationPtr& a, const OperationPtr& b) { return a->id < b->id; };
    // Almost always at the end. A call is out of order if an earlier one was held back or waited for its inputs.
    ready.insert(std::upper_bound(ready.begin(), ready.end(), operation, earlier), operation);
  }
  operation->ready.push_back(chunk);
  std::push_heap(operation->ready.begin(), operation->ready.end(), std::greater<>());
  ++ready_chunks;
}

std::pair<OperationPtr, int64_t> Pool::take() {
  OperationPtr first = ready.front();
  std::pop_heap(first->ready.begin(), first->ready.end(), std::greater<>());
  const int64_t chunk = first->ready.back();
  first->ready.pop_back();
  if (first->ready.empty()) ready.pop_front();
  --ready_chunks;
  return {std::move(first), chunk};
}

// The parent's mutex is held and stays held, so its scheduler is abandoned as it is. External work can never finish in the child: its threads do not
// exist there.
Scheduler::Scheduler(Scheduler& parent, InChild)
    : cores_(parent.cores_), default_pool_(parent.default_pool_), external_(std::move(parent.external_)), last_id_(parent.last_id_.load()) {
  const Failure failure{Error::Runtime, "the process was forked while a Python function was running", 0};
  // Iterates over a copy: report() removes the operation from external_.
  for (const OperationPtr& operation : std::set<OperationPtr>(external_)) {
    report(operation, 0, operation->samples, true, &failure, std::chrono::nanoseconds(0));
  }
}

// Public functions take the lock by hold(). Those that make something ready return it by let_go(), which also decides whom to wake. All others are
// called under it.
bool Scheduler::ready(const std::vector<Dependency>& reads) {
  const Lock lock = hold();
  return std::all_of(reads.begin(), reads.end(),
                     [](const Dependency& d) { return d.operation->state == Operation::done && d.operation->failures.empty(); });
}

void Scheduler::submit(const OperationPtr& operation) {
  Lock lock = hold();
  submit_locked(operation);
  let_go(lock, 1);
}

void Scheduler::submit_later(const OperationPtr& operation) {
  Lock lock = hold();
  // In the order of their calls, which is that of their times, too.
  later_.emplace_back(std::chrono::steady_clock::now() + kGrace, operation);
  fresh_ = true;
  let_go(lock, 1);
}

// Queues deferred operations whose time has come.
void Scheduler::submit_due() {
  while (!later_.empty() && later_.front().first <= std::chrono::steady_clock::now()) {
    const OperationPtr operation = later_.front().second;
    later_.pop_front();
    if (operation->state == Operation::held) submit_locked(operation);
  }
}

void Scheduler::report(const OperationPtr& operation, int64_t first, int64_t count, bool failed, const Failure* failure,
                       std::chrono::nanoseconds took) {
  Lock lock = hold();
  note(*worked_for(operation->op, operation->owner), std::chrono::steady_clock::now(), took);
  if (failed && failure == nullptr) {
    for (const Dependency& d : operation->reads) {
      if (!d.operation->failures.empty()) failure = &d.operation->failures.begin()->second;
    }
  }
  // External chunks are single samples (their cost is given as 1 s), so chunk and sample numbers are the same here.
  for (int64_t i = first; i < first + count; ++i) {
    if (operation->finished[i]) continue;
    if (failure != nullptr) operation->failures.emplace(i, *failure);
    finish(operation, i, nullptr);
  }
  let_go(lock, 1);
}

bool Scheduler::waits_for_python(const OperationPtr& operation) {
  const Lock lock = hold();
  std::set<const Operation*> external;
  return !add_unended_external(*operation, external) || !external.empty();
}

FormulaPtr Scheduler::formula(const Operation& operation, const std::vector<Dependency>& reads) {
  const Lock lock = hold();
  if (operation.begun || operation.formula == nullptr) return nullptr;
  std::set<const Operation*> own, others;
  // The call's other inputs may depend on Python threads only if this operation depends on the same ones.
  bool known = add_unended_external(operation, own);
  for (const Dependency& d : reads) known = known && (d.operation.get() == &operation || add_unended_external(*d.operation, others));
  return known && std::includes(own.begin(), own.end(), others.begin(), others.end()) ? operation.formula : nullptr;
}

void Scheduler::connect(const OperationPtr& operation, std::vector<Dependency> reads, std::vector<const void*> computed) {
  const Lock lock = hold();
  for (size_t k = 0; k < reads.size(); ++k) {
    Operation& source = *reads[k].operation;
    // `computed` are the results whose formulas the new call has taken over: it reads the inputs of those calls in place of the results.
    const auto found = std::find(computed.begin(), computed.end(), source.result);
    const bool computes = found != computed.end();
    if (computes) {  // even if it has finished: its inputs are read again
      computed.erase(found);
      // What the source has absorbed itself is computed here as well. Its waiters must find this call, too.
      std::vector<std::weak_ptr<Operation>> all = source.fused;
      all.push_back(reads[k].operation);
      for (const auto& absorbed : all) {
        operation->fused.push_back(absorbed);
        if (const OperationPtr alive = absorbed.lock()) alive->fused_into.push_back(operation);
      }
    }
    // A source that has already finished may have failed; depending on it propagates the error.
    if (!computes || source.formula == nullptr) {
      source.has_readers = true;
      operation->reads.push_back(reads[k]);
      continue;
    }
    // A bit for each input that the call computes itself; the work looks it up.
    operation->fused_reads |= 1u << k;
    operation->reads.insert(operation->reads.end(), source.reads.begin(), source.reads.end());
  }
  // This must happen under the same lock: from here on, a caller that waits for an operation absorbed by this one causes this one to run.
  for (Dependency& d : operation->reads) {
    const int64_t samples = d.operation->samples;
    if (d.sample >= samples || (d.sample == Dependency::same_sample && samples != operation->samples)) d.sample = Dependency::all_samples;
  }
}

void Scheduler::release(const OperationPtr& operation) {
  Lock lock = hold();
  operation->released = true;
  if (operation->state != Operation::held || !operation->unwanted()) return;
  // Complete it now instead of at its turn, so the next call can reuse the result's memory.
  const auto found = std::find_if(later_.begin(), later_.end(), [&](const auto& entry) { return entry.second == operation; });
  if (found == later_.end()) return;
  later_.erase(found);
  complete(operation);
  let_go(lock, 1);
}

void Scheduler::submit_locked(const OperationPtr& operation) {
  // Collects every held operation that this one reads, directly or indirectly, and queues them oldest first. Iterative because a deferred program may
  // be a very long chain.
  std::vector<OperationPtr> held{operation};
  std::set<uint64_t> seen{operation->id};
  for (size_t k = 0; k < held.size(); ++k) {
    for (const Dependency& d : std::vector<Dependency>(held[k]->reads)) {
      if (d.operation->state == Operation::held && seen.insert(d.operation->id).second) held.push_back(d.operation);
    }
  }
  // In call order, so inputs are queued, and can be counted as missing, before their readers.
  std::sort(held.begin(), held.end(), [](const OperationPtr& a, const OperationPtr& b) { return a->id < b->id; });
  for (const OperationPtr& next : held) {
    if (next->state == Operation::held) enqueue(next);
  }
}

void Scheduler::enqueue(const OperationPtr& operation) {
  Operation& op = *operation;
  op.state = Operation::queued;
  op.unfinished = op.chunks();
  op.finished.assign(op.unfinished, 0);
  // Of each chunk, how many chunks of its inputs are unfinished; at 0 it is ready.
  op.missing.assign(op.unfinished, 0);
  // No samples, no chunks: nothing would ever finish it.
  if (op.unfinished == 0) return complete(operation);
  op.worked = worked_for(op.op, op.owner);
  if (op.external) {
    external_.insert(operation);
    return;
  }
  for (const Dependency& d : op.reads) {
    Operation& source = *d.operation;
    if (source.state == Operation::done) continue;
    bool waits = false;
    for (int64_t j = 0; j < op.chunks(); ++j) {
      // Counted in chunks of the source: it may have another chunk size than its reader.
      const auto [begin, end] = chunks_read(source, op, d.sample, j);
      for (int64_t c = begin; c < end; ++c) op.missing[j] += !source.finished[c];
      waits = waits || op.missing[j] > 0;
    }
    if (!waits) continue;
    // A second reader: its chunks can start while a thread follows the chain of the first one, if they are reported one by one.
    if (!source.readers.empty()) source.hurried = true;
    source.readers.push_back({operation, d.sample});
  }
  for (int64_t j = 0; j < op.chunks(); ++j) {
    // Only now that all inputs are counted: a chunk must not become ready between two of them.
    if (op.missing[j] == 0) set_ready(operation, j);
  }
}

void Scheduler::set_ready(const OperationPtr& operation, int64_t chunk) {
  Pool& pool = *operation->pool;
  if (pool.ready_chunks == 0) active_.push_back(&pool);
  pool.add(operation, chunk);
  fresh_ = true;
}

const Failure* Scheduler::inherited_failure(const Operation& operation, int64_t chunk) const {
  for (const Dependency& d : operation.reads) {
    const Operation& source = *d.operation;
    if (source.failures.empty() || d.sample == Dependency::after_it) continue;
    // Nothing was computed, so the failure applies to every chunk that reads it, even without a common sample.
    if (source.failed_at_call || source.samples == 0) return &source.failures.begin()->second;
    const auto [begin, end] = chunks_read(source, operation, d.sample, chunk);
    const auto failure = source.failures.lower_bound(begin);
    if (failure != source.failures.end() && failure->first < end) return &failure->second;
  }
  return nullptr;
}

// The next pool to serve: among those with room, the one with the earliest call. A waiting caller prefers the pool that it waits for, and helps
// others only if nothing is running in its own: a foreign chunk may take long and delay the caller's return.
Pool* Scheduler::next_pool(const Pool* waiting) const {
  Pool* first = nullptr;
  for (Pool* pool : active_) {
    if (!pool->has_room(waiting != nullptr)) continue;
    if (pool == waiting) return pool;
    if (first == nullptr || pool->ready.front()->id < first->ready.front()->id) first = pool;
  }
  return waiting != nullptr && waiting->running > 0 ? nullptr : first;
}

// A chunk followed by the same chunk of each later operation that needs nothing else: in calls up to id `last`, of the same pool and chunk size. The
// chain ends before an operation with several readers, since all but one would wait for the whole chain, and before work that a later call may still
// absorb or that may turn out to be unneeded.
Links Scheduler::links_from(OperationPtr operation, int64_t chunk, uint64_t last) const {
  Links links;
  links.chunk = chunk;
  for (;;) {
    const Operation& op = *operation;
    links.operations[links.count++] = std::move(operation);
    if (links.count == Links::most || op.hurried || op.readers.size() != 1) return links;
    const Dependency& reader = op.readers.front();
    const Operation& next = *reader.operation;
    const bool alike = reader.sample == Dependency::same_sample && next.samples == op.samples && next.grain == op.grain && next.pool == op.pool;
    if (!alike || next.external || next.id > last || next.missing[chunk] != 1) return links;
    if ((!next.begun && (next.formula || next.droppable)) || inherited_failure(next, chunk) != nullptr) return links;
    operation = reader.operation;
  }
}

// Runs the first ready chunk and the chain that follows from it, releasing the lock meanwhile. `waiting` is the pool that a waiting caller is
// interested in, or null for a worker. False if there was nothing to run.
bool Scheduler::run_some(Lock& lock, const Pool* waiting, uint64_t last) {
  submit_due();
  Pool* const pool = next_pool(waiting);
  if (pool == nullptr) return false;
  const auto [operation, chunk] = pool->take();  // the shared_ptr keeps the pool alive
  if (pool->ready_chunks == 0) active_.erase(std::find(active_.begin(), active_.end(), pool));
  // Three ways to finish a chunk: its result is not wanted, an input has failed, or it runs with the chain after it.
  if (!operation->begun && operation->unwanted()) {
    finish(operation, chunk, nullptr);
  } else if (const Failure* failure = inherited_failure(*operation, chunk)) {
    // The work must not run: its inputs were never written.
    operation->begun = true;
    operation->failures.emplace(chunk, *failure);
    finish(operation, chunk, nullptr);
  } else {
    run_links(lock, links_from(operation, chunk, last), *pool, waiting == nullptr ? 2 : 1);
  }
  return true;
}

void Scheduler::run_links(Lock& lock, const Links& links, Pool& pool, int max_workers) {
  // From here on no later call may absorb them.
  for (int k = 0; k < links.count; ++k) links.operations[k]->begun = true;
  ++running_;
  pool.max_running = std::max(pool.max_running, ++pool.running);
  let_go(lock, max_workers);
  std::exception_ptr error;
  // The end of a link is the beginning of the next one: one look at the clock each.
  std::array<Time, Links::most + 1> times;
  int done = 0;
  // Restored below: a waiting caller may run chunks of other owners.
  const int64_t own = work_owner;
  times[0] = std::chrono::steady_clock::now();
  for (bool go_on = true; go_on;) {
    const Operation& op = *links.operations[done];
    work_owner = op.owner;
    try {
      const int64_t end = std::min(op.samples, (links.chunk + 1) * op.grain);
      for (int64_t i = links.chunk * op.grain; i < end; ++i) op.work(i);
    } catch (...) {
      error = std::current_exception();
    }
    times[++done] = std::chrono::steady_clock::now();
    go_on = !error && done < links.count && !op.hurried.load(std::memory_order_relaxed) && times[done] - times[0] < kLinksTime;
  }
  work_owner = own;
  take(lock);
  --running_;
  --pool.running;
  room_ = true;
  for (int k = 0; k < done; ++k) {
    const OperationPtr& operation = links.operations[k];
    note(*operation->worked, times[k + 1], times[k + 1] - times[k]);
    if (error && k + 1 == done) operation->failures.emplace(links.chunk, failure_of(error, operation->id));
    finish(operation, links.chunk, k + 1 < done ? links.operations[k + 1].get() : nullptr);
  }
}

bool Scheduler::run_now(const PoolPtr& pool, std::string_view op, int64_t samples, const Work& work) {
  {
    const Lock lock = hold();
    // Earlier calls with ready chunks come first, and with more threads it is faster to share the work.
    if (pool->limit > 1 || pool->running > 0 || pool->ready_chunks > 0) return false;
    ++running_;
    pool->max_running = std::max(pool->max_running, ++pool->running);
  }
  std::exception_ptr error;
  const Time begin = std::chrono::steady_clock::now();
  try {
    run_alone(samples, work);
  } catch (...) {
    error = std::current_exception();
  }
  const Time ended = std::chrono::steady_clock::now();
  Lock lock = hold();
  --running_;
  --pool->running;
  note(*worked_for(op, work_owner), ended, ended - begin);
  room_ = true;
  let_go(lock, 1);
  if (error) std::rethrow_exception(error);
  return true;
}

// Marks a chunk as finished and readies the chunks that waited for it, except the same chunk of `goes_on`: the calling thread runs that one itself,
// or already has.
void Scheduler::finish(const OperationPtr& operation, int64_t chunk, const Operation* goes_on) {
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
    } else if (reader.sample >= 0 && reader.sample / op.grain != chunk) {
      continue;
    }
    for (int64_t j = first; j < last; ++j) {
      if (--target.missing[j] == 0 && &target != goes_on) set_ready(reader.operation, j);
    }
  }
  if (op.unfinished == 0) complete(operation);
}

void Scheduler::complete(const OperationPtr& operation) {
  operation->state = Operation::done;
  if (operation->external) external_.erase(operation);
  operation->readers.clear();
  operation->reads.clear();
  // Kept until a caller frees them: destroying a tensor may need the GIL, which a worker must not wait for while it holds the lock.
  finished_work_.push_back(std::move(operation->work));
  finished_inputs_.push_back(std::move(operation->inputs));
  if (operation->formula) finished_formulas_.push_back(std::move(operation->formula));
  operation->work = Work();
  ended_ = true;
}

bool Scheduler::wait(const OperationPtr& operation, Time end) {
  Lock lock = hold();
  if (settled(*operation)) return true;
  operation->hurried = true;
  if (operation->state == Operation::held) submit_locked(operation);
  while (!settled(*operation) && std::chrono::steady_clock::now() < end) {
    submit_readers_in_its_place(*operation);
    if (run_some(lock, operation->pool.get(), operation->id)) continue;
    // Checked again: operations without samples finish as soon as they are queued, here or in run_some().
    if (!settled(*operation)) wait_for_change(lock, *operation->pool, end);
  }
  const bool done = settled(*operation);
  let_go(lock, 1);  // a worker may have counted on this caller to run the remaining chunks
  return done;
}

// Queues the held calls that have absorbed the operation's formula. A call can absorb it while someone already waits for the operation, and the
// call's own result may never be requested.
void Scheduler::submit_readers_in_its_place(const Operation& operation) {
  for (size_t k = 0; k < operation.fused_into.size(); ++k) {
    if (const OperationPtr alive = operation.fused_into[k].lock(); alive && alive->state == Operation::held) submit_locked(alive);
  }
}

bool Scheduler::settled(const Operation& operation) const {
  return operation.state == Operation::done && std::all_of(operation.fused_into.begin(), operation.fused_into.end(), [](const auto& reader) {
           const OperationPtr alive = reader.lock();
           return alive == nullptr || alive->state == Operation::done;
         });
}

bool Scheduler::done(const OperationPtr& operation) {
  const Lock lock = hold();
  return settled(*operation);
}

PoolPtr Scheduler::default_pool() {
  const Lock lock = hold();
  return default_pool_;
}

void Scheduler::set_default_pool(const PoolPtr& pool) {
  const Lock lock = hold();
  default_pool_ = pool;
}

int Scheduler::max_running(const Pool& pool) {
  const Lock lock = hold();
  return pool.max_running;
}

Scheduler::Lock Scheduler::drain() {
  // No operation belongs to this pool, so next_pool() prefers none, but grants room in pools without threads, as to any waiting caller.
  const Pool none(0);
  Lock lock = hold();
  for (; !later_.empty(); later_.pop_front()) {
    if (later_.front().second->state == Operation::held) submit_locked(later_.front().second);
  }
  while (!active_.empty() || running_ > 0) {
    if (run_some(lock, &none, UINT64_MAX)) continue;
    wake(whom_to_wake(1));
    something_changed_.wait_for(lock, std::chrono::milliseconds(1));
  }
  wake(whom_to_wake(1));
  return lock;
}

void Scheduler::free_later(std::vector<Tensor> tensors) {
  const Lock lock = hold();
  finished_inputs_.push_back(std::move(tensors));
}

void Scheduler::free_finished() {
  std::vector<Work> work;
  std::vector<std::vector<Tensor>> inputs;
  std::vector<FormulaPtr> formulas;
  const Lock lock = hold();
  work.swap(finished_work_);
  inputs.swap(finished_inputs_);
  formulas.swap(finished_formulas_);
}

namespace {

Scheduler* process_scheduler = nullptr;
std::unique_lock<std::mutex>* held_for_fork = nullptr;

}  // namespace

Scheduler& scheduler() {
  // Never destroyed: threads may still be running during process exit.
  static const bool initialized = [] {
    process_scheduler = new Scheduler(std::max(1u, std::thread::hardware_concurrency()));
    // A forked child has no worker threads. The parent therefore finishes everything queued before the fork, so the child finds every result
    // complete.
    // Before the fork, in the parent afterward, in the child afterward.
    pthread_atfork([] { held_for_fork = new std::unique_lock<std::mutex>(process_scheduler->drain()); },
                   [] {
                     delete held_for_fork;
                     held_for_fork = nullptr;
                   },
                   [] { process_scheduler = new Scheduler(*process_scheduler, Scheduler::in_child); });
    return true;
  }();
  (void)initialized;
  return *process_scheduler;
}

}  // namespace ndd
