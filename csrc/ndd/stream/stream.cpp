// SPDX-License-Identifier: Apache-2.0
// The boundary between Python and the scheduler: the call in progress on this thread, and the C functions that torch_ndd/_core/work/pending.py calls.
#include "ndd/stream/stream.h"

#include <algorithm>
#include <cmath>

#include "ndd/handles.h"
#include "ndd/python_interface.h"
#include "ndd/stream/launches.h"
#include "ndd/stream/owned.h"
#include "ndd/stream/scheduler.h"
#include "ndd/stream/shared_work.h"

namespace ndd {
namespace {

// Waking a worker and being woken costs 9 us, so smaller work whose inputs are ready runs on the calling thread.
constexpr double kInlineNanoseconds = 20'000;
// Work above this estimate is left to the workers even if the caller waits for it, so Python can check for Ctrl-C meanwhile.
constexpr double kHereNanoseconds = 50'000'000;
constexpr auto kMaxHere = std::chrono::milliseconds(100);
// The target duration of a chunk: long enough that taking one (0.3 us) is negligible, short enough to balance the load. Cropping 16 images to 224
// takes 75 us; with chunks of 6 or 25 us it takes 95.
constexpr double kChunkNanoseconds = 12'000;

// For work that a caller waits for: up to kSharedNanoseconds (estimated), threads share the samples without the scheduler, kTogetherNanoseconds worth
// at a time. Longer work stays in chunks, so between them threads can serve other callers, and callers can check for Ctrl-C.
constexpr double kSharedNanoseconds = 2'000'000, kTogetherNanoseconds = 3'000;

// In eager mode, larger work with a formula is held back in case the next call can absorb it: it is long enough for the delay not to matter.
constexpr double kHeldNanoseconds = 200'000;

// The call from Python in progress on this thread.
struct Call {
  bool active = false;
  Mode mode = Mode::eager;
  std::vector<Dependency> reads;
  OperationPtr operation;  // created by the kernel; null if the work has already finished
};
thread_local Call call;

// The pool of the context that this thread has entered; null for the default pool.
thread_local PoolPtr entered_pool;

OperationPtr failed_operation(const Failure& failure) {
  auto operation = std::make_shared<Operation>();
  operation->id = failure.origin;
  operation->state = Operation::done;
  operation->failures.emplace(0, failure);
  return operation;
}

void run_here(int64_t samples, const Work& work) {
  for (int64_t i = 0; i < samples; ++i) work(i);
}

PoolPtr current_pool() { return entered_pool ? entered_pool : scheduler().default_pool(); }

OperationPtr make_operation(std::string_view op, int64_t samples, double nanoseconds, const std::vector<Tensor>& inputs, Work&& work) {
  auto operation = std::make_shared<Operation>();
  operation->id = scheduler().next_id();
  operation->op = op;
  operation->pool = current_pool();
  operation->owner = work_owner;
  operation->work = std::move(work);
  operation->inputs = inputs;
  operation->samples = samples;
  operation->grain = std::max<int64_t>(1, std::llround(kChunkNanoseconds / std::max(nanoseconds, 1.0)));
  return operation;
}

// Creates an operation that the caller is about to wait for.
OperationPtr make_awaited(std::string_view op, int64_t samples, double nanoseconds, const std::vector<Tensor>& inputs, Work&& work) {
  const double all = nanoseconds * static_cast<double>(samples);
  const int64_t parts = std::min<int64_t>({current_pool()->limit, samples, std::llround(all / kChunkNanoseconds)});
  if (parts < 2 || all > kSharedNanoseconds) return make_operation(op, samples, nanoseconds, inputs, std::move(work));
  const int64_t together = std::max<int64_t>(1, std::llround(kTogetherNanoseconds / std::max(nanoseconds, 1.0)));
  return make_operation(op, parts, kChunkNanoseconds, inputs, SharedWork(samples, together, parts, std::move(work)));
}

}  // namespace

void launch_cpu(std::string_view op, int64_t samples, double nanoseconds, const std::vector<Tensor>& inputs, Work work) {
  launch_fused(op, samples, nanoseconds, inputs, std::move(work), {});
}

void launch_groups(std::string_view op, int64_t samples, int64_t groups, double nanoseconds, Work work) {
  for (Dependency& read : call.reads) read.sample = Dependency::all_samples;
  launch_fused(op, groups, nanoseconds, {}, std::move(work), {});
  // Readers of the result wait for samples, each of which is ready when all groups are.
  if (call.active && call.operation) launch_fused(op, samples, 0.0, {}, [](int64_t) {}, {});
}

FormulaPtr pending_formula(const void* data) {
  for (const Dependency& d : call.reads) {
    const Operation& source = *d.operation;
    const bool whole = d.sample == Dependency::same_sample || source.samples == 1;
    if (source.result != data || !whole) continue;
    if (FormulaPtr formula = scheduler().formula(source, call.reads)) return formula;
  }
  return nullptr;
}

void launch_fused(std::string_view op, int64_t samples, double nanoseconds, const std::vector<Tensor>& inputs, Work work, Fusion fusion) {
  const bool small = nanoseconds * static_cast<double>(samples) < kInlineNanoseconds;
  if (!call.active) {  // plain tensors or a compiled graph: run to completion before returning
    if (small || samples == 1) return run_here(samples, work);
    if (scheduler().run_now(current_pool(), op, samples, work)) return;
    const OperationPtr operation = make_awaited(op, samples, nanoseconds, inputs, std::move(work));
    scheduler().wait(operation);
    scheduler().free_finished();
    if (operation->failures.empty()) return;
    const Failure& failure = operation->failures.begin()->second;
    fail(static_cast<Error::Kind>(failure.kind), failure.message);
  }
  if (call.operation) call.reads.assign(1, {call.operation, Dependency::all_samples});  // a kernel with several steps: each reads the one before
  const bool ready = call.reads.empty() || scheduler().ready(call.reads);
  const bool here = small && ready && call.mode != Mode::deferred;
  const bool short_enough = nanoseconds * static_cast<double>(samples) < kHereNanoseconds;
  if (here || (ready && short_enough && call.mode == Mode::sync)) {
    try {
      call.operation = nullptr;
      if (here) return run_here(samples, work);
      if (scheduler().run_now(current_pool(), op, samples, work)) return;
    } catch (const Error& e) {
      call.operation = failed_operation({e.kind(), e.what(), scheduler().next_id()});
      return;
    } catch (const std::bad_alloc&) {
      call.operation = failed_operation({Error::Memory, "out of memory", scheduler().next_id()});
      return;
    } catch (const std::exception& e) {
      call.operation = failed_operation({Error::Runtime, e.what(), scheduler().next_id()});
      return;
    }
    // Uses the pool's threads. The caller starts on the work immediately, so Python needs no handle; if it takes long, Python waits for the rest,
    // checking for Ctrl-C.
    const OperationPtr operation = make_awaited(op, samples, nanoseconds, inputs, std::move(work));
    const bool ended = scheduler().wait(operation, std::chrono::steady_clock::now() + kMaxHere);
    if (!ended || !operation->failures.empty()) call.operation = operation;
    return;
  }
  const OperationPtr operation = make_operation(op, samples, nanoseconds, inputs, std::move(work));
  // The formula is moved from below, so this is decided first.
  const bool held = fusion.formula != nullptr && nanoseconds * static_cast<double>(samples) >= kHeldNanoseconds;
  operation->formula = std::move(fusion.formula);
  operation->result = fusion.result;
  operation->droppable = fusion.droppable;
  scheduler().connect(operation, std::move(call.reads), std::move(fusion.computed));
  call.reads.clear();
  if (held && call.mode == Mode::eager) {
    scheduler().submit_later(operation);
  } else if (call.mode != Mode::deferred) {
    scheduler().submit(operation);
  }
  call.operation = operation;
}

void queue_call(Work launch, std::vector<Tensor> tensors, const OperationPtr& previous) {
  if (!call.active) fail("a launch on a GPU can be queued only within a call");
  const OperationPtr operation = make_operation("launch", 1, kChunkNanoseconds, tensors, std::move(launch));
  for (Dependency& read : call.reads) read.sample = Dependency::all_samples;
  if (previous) call.reads.push_back({previous, Dependency::after_it});
  scheduler().connect(operation, std::exchange(call.reads, {}), {});
  // In deferred mode too: that holds back computing, not the order of a CUDA stream.
  scheduler().submit(operation);
  call.operation = operation;
}

void read_in_call(Dependency read) { call.reads.push_back(std::move(read)); }

OutsideCall::OutsideCall() : call_(new Call(std::exchange(call, {}))) {}
OutsideCall::~OutsideCall() {
  const std::unique_ptr<Call> before(static_cast<Call*>(call_));
  call = std::move(*before);
}

bool keep_error_of_call(const Error& error) {
  if (!call.active) return false;
  call.operation = failed_operation({error.kind(), error.what(), scheduler().next_id()});
  call.operation->failed_at_call = true;
  return true;
}

}  // namespace ndd

using ndd::Operation;
using ndd::OperationPtr;

NDD_EXPORT(keep, void, ndd_release, (void* handle)) {
  const OperationPtr operation = handle != nullptr ? ndd::handles<OperationPtr>().take(handle) : nullptr;
  if (ndd::unowned_call == handle) ndd::unowned_call = nullptr;
  if (operation) ndd::scheduler().release(operation);
  ndd::scheduler().free_finished();
}

// Opens a call on this thread: until ndd_end, a kernel's work is queued instead of run. `reads` is a handle from an earlier call, or null.
NDD_EXPORT(keep, void, ndd_begin, (int mode, void* reads, int64_t sample)) {
  if (ndd::unowned_call) ndd_release(ndd::unowned_call);
  if (ndd::plan_waits) ndd::forget_plan();
  ndd::call.active = true;
  ndd::call.mode = static_cast<ndd::Mode>(mode);
  ndd::call.reads.clear();
  ndd::call.operation = nullptr;
  if (reads) ndd::call.reads.push_back({*static_cast<OperationPtr*>(reads), sample});
}

NDD_EXPORT(keep, void, ndd_depend, (void* reads, int64_t sample)) { ndd::call.reads.push_back({*static_cast<OperationPtr*>(reads), sample}); }

// Replaces a kernel: work that Python threads execute and report with ndd_external_done. Not for calls without samples. Submitted in every mode,
// because those threads wait for the inputs.
NDD_EXPORT(keep, void, ndd_external, (const char* op, int64_t samples)) {
  const OperationPtr operation = ndd::make_operation(op, samples, 1e9, {}, ndd::Work());
  operation->external = true;
  ndd::scheduler().connect(operation, std::move(ndd::call.reads), {});
  ndd::call.reads.clear();
  ndd::scheduler().submit(operation);
  ndd::call.operation = operation;
}

// Samples of external work are finished, after `nanoseconds` of work. `kind` is 0 for success, 1 + the kind of the error in `message`, or -1 if an
// input has failed.
NDD_EXPORT(keep, void, ndd_external_done, (void* handle, int64_t first, int64_t count, int kind, const char* message, int64_t nanoseconds)) {
  const OperationPtr operation = *static_cast<OperationPtr*>(handle);
  const ndd::Failure failure{kind - 1, message, operation->id};
  ndd::scheduler().report(operation, first, count, kind != 0, kind > 0 ? &failure : nullptr, std::chrono::nanoseconds(nanoseconds));
  ndd::scheduler().free_finished();
}

// Closes the call. Returns null if the work has finished, otherwise a handle, whose lowest bit is set if the kernel failed at the call.
NDD_EXPORT(keep, uintptr_t, ndd_end, ()) {
  ndd::Call& call = ndd::call;
  call.active = false;
  call.reads.clear();
  ndd::scheduler().free_finished();
  if (!call.operation) return 0;
  const bool at_call = call.operation->failed_at_call;
  // Handles are aligned to 16 bytes, so the lowest bit is free for a flag.
  auto handle = reinterpret_cast<uintptr_t>(ndd::handles<OperationPtr>().make(std::move(call.operation)));
  call.operation = nullptr;
  ndd::unowned_call = reinterpret_cast<void*>(handle);
  return handle | (at_call ? 1 : 0);
}

// Waits, running chunks meanwhile. Returns 0, 1 + the kind of the error, or -1 after 100 ms: Python then checks for Ctrl-C and calls again. Called
// without the GIL.
NDD_EXPORT(release, int, ndd_wait, (void* handle)) {
  const OperationPtr operation = *static_cast<OperationPtr*>(handle);
  if (!ndd::scheduler().wait(operation, std::chrono::steady_clock::now() + std::chrono::milliseconds(100))) return -1;
  return operation->failures.empty() ? 0 : 1 + operation->failures.begin()->second.kind;
}

// Bit k: the operation computes the k-th value that the call read itself, from that value's inputs.
NDD_EXPORT(keep, uint32_t, ndd_fused, (void* handle)) { return (*static_cast<OperationPtr*>(handle))->fused_reads; }
NDD_EXPORT(keep, int, ndd_done, (void* handle)) { return ndd::scheduler().done(*static_cast<OperationPtr*>(handle)); }
NDD_EXPORT(keep, uint64_t, ndd_id, (void* handle)) { return (*static_cast<OperationPtr*>(handle))->id; }
NDD_EXPORT(keep, const char*, ndd_error, (void* handle)) { return (*static_cast<OperationPtr*>(handle))->failures.begin()->second.message.c_str(); }
NDD_EXPORT(keep, uint64_t, ndd_error_origin, (void* handle)) { return (*static_cast<OperationPtr*>(handle))->failures.begin()->second.origin; }

// A pool lives until it is released and none of its work is left.
NDD_EXPORT(keep, void*, ndd_pool_make, (int threads)) { return new ndd::PoolPtr(std::make_shared<ndd::Pool>(threads)); }
NDD_EXPORT(keep, void, ndd_pool_release, (void* pool)) { delete static_cast<ndd::PoolPtr*>(pool); }
NDD_EXPORT(keep, void, ndd_pool_enter, (void* pool)) { ndd::entered_pool = pool ? *static_cast<ndd::PoolPtr*>(pool) : nullptr; }
NDD_EXPORT(keep, void, ndd_pool_set_default, (void* pool)) { ndd::scheduler().set_default_pool(*static_cast<ndd::PoolPtr*>(pool)); }
// The largest number of chunks that ran concurrently, for tests.
NDD_EXPORT(keep, int, ndd_pool_most_running, (void* pool)) { return ndd::scheduler().max_running(**static_cast<ndd::PoolPtr*>(pool)); }
// Assigns this thread's calls to a loader (0 for none) until the next call of this function. Returns the previous owner.
NDD_EXPORT(keep, int64_t, ndd_set_owner, (int64_t owner)) { return std::exchange(ndd::work_owner, owner); }
// Total thread time per operator: lines of a name, an owner and nanoseconds. Valid until this thread calls it again.
NDD_EXPORT(keep, const char*, ndd_worked, ()) {
  thread_local std::string text;
  text.clear();
  for (const auto& [op, time] : ndd::scheduler().worked()) {
    const size_t end = op.find('\0');
    const std::string owner = end == std::string::npos ? "0" : op.substr(end + 1);
    text += op.substr(0, end) + " " + owner + " " + std::to_string(time.count()) + "\n";
  }
  return text.c_str();
}
// The most recent pieces of work: lines of a name, a thread, and begin and end in nanoseconds of the steady clock.
NDD_EXPORT(keep, const char*, ndd_spans, ()) {
  thread_local std::string text;
  text.clear();
  for (const ndd::Span& span : ndd::scheduler().spans()) {
    text += std::string(span.op) + " " + std::to_string(span.thread) + " " + std::to_string(span.begin) + " " + std::to_string(span.end) + "\n";
  }
  return text.c_str();
}
NDD_EXPORT(release, void, ndd_stop, ()) { ndd::scheduler().stop(); }
