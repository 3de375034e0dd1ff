// SPDX-License-Identifier: Apache-2.0
// Runs the blocks of a launch. A thread of a block is run until it waits or ends; where it waits, its fiber is kept and another takes the next thread,
// so that a kernel without barriers is one loop on one fiber. The order of blocks and of threads is set from outside: results must not depend on it.
#include <sys/mman.h>

#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cuda_runtime.h"
#include "ndd/emulated_memory.h"

#if !defined(__x86_64__)
#error "the emulator of CUDA switches between fibers of x86-64 only"
#endif

dim3 threadIdx, blockIdx, blockDim, gridDim;

// Saves the registers that a function must keep on the stack, and goes on with another stack.
extern "C" void ndd_emulator_switch(void** from, void* to);
__asm__(
    ".text\n"
    ".globl ndd_emulator_switch\n"
    ".hidden ndd_emulator_switch\n"
    ".type ndd_emulator_switch, @function\n"
    "ndd_emulator_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size ndd_emulator_switch, .-ndd_emulator_switch\n");

namespace ndd_emulator {
namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kSharedBytes = 227 << 10, kSharedBytesUnasked = 48 << 10;  // of a block, on a GPU of compute capability 9.0
constexpr unsigned char kGarbage = 0xCD;

enum Order { kForward = 0, kReverse = 1, kRandom = 2 };
int wanted_order = kForward;
thread_local bool emulated = false;  // the launcher runs on this thread
cudaError_t last_error = cudaSuccess;
std::string last_fault, reported;
size_t most_shared_bytes = kSharedBytesUnasked;
std::map<std::string, int64_t> launches;  // by site
std::mutex one_launch;

struct DeviceToHost {
  void* to;
  const void* from;
  size_t bytes;
};
std::vector<DeviceToHost> unfinished_copies;

void run_threads();

struct Fiber {
  char* stack = static_cast<char*>(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  void* at = nullptr;

  // The next switch to it begins run_threads().
  void begin() {
    void** top = reinterpret_cast<void**>(stack + kStackBytes);
    top[-1] = nullptr;
    top[-2] = reinterpret_cast<void*>(&run_threads);
    for (int k = 3; k <= 8; ++k) top[-k] = nullptr;
    at = top - 8;
  }
};

enum class State { waiting_to_start, running, at_barrier, in_warp, released, ended };

struct Thread {
  State state = State::waiting_to_start;
  Fiber* fiber = nullptr;
  int line = 0;          // of the barrier that it waits at
  unsigned int mask = 0;
  uint64_t bits = 0;     // what it gave
};

struct SharedVariable {
  std::unique_ptr<char[]> memory;
  char* begin;
};

struct Block {
  std::vector<Thread> threads;
  std::vector<int> order;   // of threads
  size_t started = 0;       // so many of `order`
  int ended = 0, running = 0;
  int waiting = 0, holds = 0, counted = 0;  // at the barrier; the result of the last one
  std::map<int, SharedVariable> shared;
  size_t static_bytes = 0, dynamic_bytes = 0;
  const std::function<void()>* body = nullptr;
};

Block* block = nullptr;
void* scheduler = nullptr;  // its stack while a fiber runs
Fiber* current = nullptr;
std::vector<std::unique_ptr<Fiber>> fibers;
std::vector<Fiber*> idle;
std::mt19937 shuffler(1);

void set_indices(int thread) {
  const unsigned int t = static_cast<unsigned int>(thread);
  threadIdx = dim3(t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y));
  block->running = thread;
}

void to_scheduler() {
  set_thread(-1, nullptr, 0);
  ndd_emulator_switch(&current->at, scheduler);
}

void to_fiber(Fiber* fiber) {
  current = fiber;
  ndd_emulator_switch(&scheduler, fiber->at);
}

// Every fiber: runs threads until all have begun, again and again.
void run_threads() {
  for (;;) {
    while (block->started < block->order.size() && last_fault.empty()) {
      const int t = block->order[block->started++];
      Thread& thread = block->threads[t];
      thread.state = State::running;
      thread.fiber = current;
      set_indices(t);
      (*block->body)();
      thread.state = State::ended;
      ++block->ended;
    }
    idle.push_back(current);
    to_scheduler();
  }
}

std::string where() {
  const auto text = [](const dim3& d) { return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")"; };
  return " in thread " + text(threadIdx) + " of " + text(blockDim) + ", block " + text(blockIdx) + " of " + text(gridDim);
}

void wait(State state, int line) {
  const int t = block->running;
  Thread& thread = block->threads[t];
  thread.state = state;
  thread.line = line;
  to_scheduler();
  set_indices(t);
  set_thread(t, current->stack, kStackBytes);
}

// Of threads that wait though no other can run: an error of the kernel.
void stuck() {
  std::map<int, int> at;
  bool in_warp = false;
  for (const Thread& thread : block->threads)
    if (thread.state == State::at_barrier || thread.state == State::in_warp) {
      ++at[thread.line];
      in_warp = in_warp || thread.state == State::in_warp;
    }
  std::string text = in_warp ? "lanes wait for others of their warp:" : "threads wait at a barrier that others do not reach:";
  for (const auto& [line, count] : at) text += " " + std::to_string(count) + " in line " + std::to_string(line) + ",";
  last_fault = text + " " + std::to_string(block->ended) + " have returned";
}

void arrange(std::vector<int>& order) {
  if (wanted_order == kReverse) std::reverse(order.begin(), order.end());
  if (wanted_order == kRandom) std::shuffle(order.begin(), order.end(), shuffler);
}

// The barrier opens when all threads of the block are there, at the same place.
bool open_barrier() {
  if (block->waiting != static_cast<int>(block->threads.size())) return false;
  for (const Thread& thread : block->threads)
    if (thread.line != block->threads[0].line) return false;
  for (Thread& thread : block->threads) thread.state = State::released;
  block->counted = block->holds;
  block->waiting = block->holds = 0;
  begin_interval();
  arrange(block->order);
  return true;
}

void run_block() {
  const size_t count = block->order.size();
  begin_block();
  while (block->ended < static_cast<int>(count) && last_fault.empty()) {
    if (block->started < count) {
      if (idle.empty()) {
        fibers.push_back(std::make_unique<Fiber>());
        fibers.back()->begin();
        idle.push_back(fibers.back().get());
      }
      Fiber* const fiber = idle.back();
      idle.pop_back();
      to_fiber(fiber);
      continue;
    }
    bool ran = false;
    const std::vector<int> order = block->order;
    for (const int t : order) {
      Thread& thread = block->threads[t];
      if (thread.state != State::released || !last_fault.empty()) continue;
      thread.state = State::running;
      ran = true;
      to_fiber(thread.fiber);
    }
    if (!ran && last_fault.empty() && !open_barrier()) stuck();
  }
  if (!last_fault.empty()) {  // fibers in the middle of a kernel are given up
    idle.clear();
    for (const auto& fiber : fibers) {
      fiber->begin();
      idle.push_back(fiber.get());
    }
  }
  for (const auto& [key, variable] : block->shared) remove_memory(variable.begin);
}

void* new_shared(int key, size_t bytes, size_t alignment) {
  const auto found = block->shared.find(key);
  if (found != block->shared.end()) return found->second.begin;
  SharedVariable variable{std::make_unique<char[]>(bytes + alignment), nullptr};
  const auto at = reinterpret_cast<uintptr_t>(variable.memory.get());
  variable.begin = reinterpret_cast<char*>((at + alignment - 1) / alignment * alignment);
  std::memset(variable.begin, kGarbage, bytes);
  add_memory(variable.begin, bytes, false);
  return (block->shared[key] = std::move(variable)).begin;
}

std::string invalid(const dim3& grid, const dim3& threads, size_t shared_bytes) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads.x == 0 || threads.y == 0 || threads.z == 0) return "a grid or block of nothing";
  if (grid.x > 0x7FFFFFFFu || grid.y > 65535 || grid.z > 65535) return "a grid with too many blocks";
  if (threads.x > 1024 || threads.y > 1024 || threads.z > 64 || uint64_t{threads.x} * threads.y * threads.z > 1024) return "a block with too many threads";
  if (shared_bytes > most_shared_bytes) return "more shared memory than cudaFuncSetAttribute asked for";
  return "";
}

}  // namespace

bool emulates() { return emulated; }

Kernel::Kernel(unsigned int most_threads, unsigned int) {
  if (uint64_t{blockDim.x} * blockDim.y * blockDim.z > most_threads) fault("more threads than __launch_bounds__ allows");
  set_thread(block->running, current->stack, kStackBytes);
}

Kernel::~Kernel() { set_thread(-1, nullptr, 0); }

void fault(const std::string& what) {
  set_thread(-1, nullptr, 0);
  if (current == nullptr || block == nullptr) {
    std::fprintf(stderr, "ndd_emulator: %s outside of a kernel\n", what.c_str());
    std::abort();
  }
  if (last_fault.empty()) last_fault = what + where();
  to_scheduler();  // which never comes back here
  std::abort();
}

int barrier(int line, bool predicate) {
  ++block->waiting;
  block->holds += predicate;
  wait(State::at_barrier, line);
  return block->counted;
}

int lane() { return block->running % 32; }

// All lanes meet twice: when each has given its bits, and, because one may run ahead to the next exchange, when each has taken them.
static std::vector<uint64_t> exchange(int line, unsigned int mask, uint64_t bits, bool orders = false) {
  const int count = static_cast<int>(block->threads.size()), first = block->running / 32 * 32, lanes = std::min(32, count - first);
  if (mask != 0xFFFFFFFFu) fault("an exchange between some lanes of a warp only, which the emulator does not know");
  if (lanes != 32) fault("an exchange between all lanes of a warp that has fewer threads");
  Thread* const warp = block->threads.data() + first;
  std::vector<uint64_t> given(32);
  const auto meet = [&](int place) {
    bool all = true;
    const int own = block->running - first;
    for (int k = 0; k < 32; ++k) all = all && (k == own || (warp[k].state == State::in_warp && warp[k].line == place));
    if (all) {
      if (orders) begin_epoch(first / 32);
      for (int k = 0; k < 32; ++k)
        if (k != own) warp[k].state = State::released;
    } else {
      wait(State::in_warp, place);
    }
  };
  warp[block->running - first].bits = bits;
  meet(line);
  for (int k = 0; k < 32; ++k) given[k] = warp[k].bits;
  meet(-line);
  return given;
}

uint64_t shuffle(int line, unsigned int mask, uint64_t bits, int from) {
  const std::vector<uint64_t> given = exchange(line, mask, bits);
  return from >= 0 && from < 32 ? given[from] : bits;
}

void sync_warp(int line) { exchange(line, 0xFFFFFFFFu, 0, true); }

unsigned int ballot(int line, unsigned int mask, bool predicate) {
  const std::vector<uint64_t> given = exchange(line, mask, predicate);
  unsigned int bits = 0;
  for (int k = 0; k < 32; ++k) bits |= static_cast<unsigned int>(given[k]) << k;
  return bits;
}

void* shared_bytes(int key, size_t bytes, size_t alignment) {
  if (block->shared.find(key) == block->shared.end()) block->static_bytes += bytes;
  if (block->static_bytes > kSharedBytesUnasked || block->static_bytes + block->dynamic_bytes > kSharedBytes) fault("too much shared memory");
  return new_shared(key, bytes, alignment);
}

void* dynamic_shared_bytes() { return block->dynamic_bytes == 0 ? nullptr : new_shared(-1, block->dynamic_bytes, 16); }

void Launch::run(const std::function<void()>& thread) const {
  const std::lock_guard<std::mutex> lock(one_launch);
  ++launches[site_];
  if (last_error != cudaSuccess) return;  // as on a GPU, nothing runs after a fault until somebody has asked for it
  const std::string error = invalid(grid_, block_, shared_bytes_);
  if (!error.empty()) {
    last_error = cudaErrorInvalidConfiguration;
    reported = std::string("invalid configuration: ") + error + " at " + site_;
    return;
  }
  begin_launch();
  gridDim = grid_;
  blockDim = block_;
  const uint64_t blocks = uint64_t{grid_.x} * grid_.y * grid_.z;
  std::vector<uint64_t> mixed(wanted_order == kRandom ? blocks : 0);
  std::iota(mixed.begin(), mixed.end(), uint64_t{0});
  std::shuffle(mixed.begin(), mixed.end(), shuffler);
  for (uint64_t k = 0; k < blocks && last_fault.empty(); ++k) {
    const uint64_t b = wanted_order == kReverse ? blocks - 1 - k : wanted_order == kRandom ? mixed[k] : k;
    blockIdx = dim3(static_cast<unsigned int>(b % grid_.x), static_cast<unsigned int>(b / grid_.x % grid_.y), static_cast<unsigned int>(b / grid_.x / grid_.y));
    Block made;
    made.threads.resize(size_t{block_.x} * block_.y * block_.z);
    made.order.resize(made.threads.size());
    std::iota(made.order.begin(), made.order.end(), 0);
    arrange(made.order);
    made.dynamic_bytes = shared_bytes_;
    made.body = &thread;
    block = &made;
    run_block();
    block = nullptr;
    current = nullptr;
  }
  if (!last_fault.empty()) {
    last_error = cudaErrorLaunchFailure;
    reported = last_fault + ", launched at " + site_;
    last_fault.clear();
  }
}

ndd::Tensor device_memory(int64_t bytes, int) {
  if (bytes < 0) throw std::bad_alloc();
  if (bytes == 0) return ndd::tensor_over(nullptr, 0, [](void*, size_t) {}, 0);
  void* data = nullptr;
  if (posix_memalign(&data, 512, static_cast<size_t>(bytes)) != 0) throw std::bad_alloc();
  std::memset(data, kGarbage, static_cast<size_t>(bytes));
  add_memory(data, static_cast<size_t>(bytes), false);
  const auto release = [](void* owned, size_t) {
    remove_memory(owned);
    std::free(owned);
  };
  return ndd::tensor_over(data, bytes, release, 0);
}

}  // namespace ndd_emulator

using namespace ndd_emulator;

float ndd_emulator::rounded_sum(float a, float b) { return a + b; }
float ndd_emulator::rounded_product(float a, float b) { return a * b; }
double ndd_emulator::rounded_sum(double a, double b) { return a + b; }
double ndd_emulator::rounded_product(double a, double b) { return a * b; }

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

const char* cudaGetErrorString(cudaError_t status) { return status == cudaSuccess ? "no error" : reported.c_str(); }

// Copies to the host are made as late as can be: what reads them before the stream is synchronized finds garbage.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  if (kind == cudaMemcpyDeviceToDevice && is_device_memory(from, bytes) && is_device_memory(to, bytes)) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    host_wrote(to, bytes);
    return cudaSuccess;
  }
  const void* const on_device = kind == cudaMemcpyHostToDevice ? to : from;
  if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToHost) return reported = "a kind of copy that the emulator does not know", cudaErrorInvalidValue;
  if (!is_device_memory(on_device, bytes)) return reported = "a copy from or to memory that is not on the device", cudaErrorInvalidValue;
  if (kind == cudaMemcpyDeviceToHost) {
    if (bytes > 0) std::memset(to, kGarbage, bytes);
    unfinished_copies.push_back({to, from, bytes});
    return cudaSuccess;
  }
  if (bytes > 0) std::memcpy(to, from, bytes);
  host_wrote(to, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  if (!is_device_memory(to, bytes)) return reported = "a memset of memory that is not on the device", cudaErrorInvalidValue;
  if (bytes > 0) std::memset(to, value, bytes);
  host_wrote(to, bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) {
  for (const DeviceToHost& copy : unfinished_copies)
    if (copy.bytes > 0) std::memcpy(copy.to, copy.from, copy.bytes);
  unfinished_copies.clear();
  return cudaSuccess;
}

cudaError_t ndd_set_most_shared_bytes(cudaFuncAttribute, int bytes) {
  if (bytes < 0 || static_cast<size_t>(bytes) > kSharedBytes) return reported = "more shared memory than a block can have", cudaErrorInvalidValue;
  most_shared_bytes = std::max(kSharedBytesUnasked, static_cast<size_t>(bytes));
  return cudaSuccess;
}

#define NDD_EXPORT extern "C" __attribute__((visibility("default")))

// For Python (plugin.py). `order`: 0 forward, 1 reverse, 2 random.
NDD_EXPORT void ndd_emulator_begin(int order) {
  emulated = true;
  wanted_order = order;
  unfinished_copies.clear();
  begin_call();
}

// Returns what the launcher did wrong, or null.
NDD_EXPORT const char* ndd_emulator_end() {
  emulated = false;
  return end_call();
}

NDD_EXPORT void ndd_emulator_add_memory(const void* begin, int64_t bytes, int written) { add_memory(begin, static_cast<size_t>(bytes), written != 0); }
NDD_EXPORT void ndd_emulator_remove_memory(const void* begin) { remove_memory(begin); }

// "file:line kernel count" of every launch so far, a line each.
NDD_EXPORT const char* ndd_emulator_launches() {
  static std::string text;
  text.clear();
  for (const auto& [site, count] : launches) text += site + " " + std::to_string(count) + "\n";
  return text.c_str();
}
