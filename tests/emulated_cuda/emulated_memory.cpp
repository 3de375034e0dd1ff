// SPDX-License-Identifier: Apache-2.0
// Checks of every access to memory by device code, as compute-sanitizer makes them on a GPU: of memory of the host or beyond the end (memcheck), of
// memory that nothing was written to (initcheck), by two threads without a barrier between (racecheck). -fsanitize=thread has the compiler call
// __tsan_read4() and so on at each access; these are ours, not ThreadSanitizer's. Code of the launchers is compiled the same way, which finds accesses
// to device memory by the host.
#include "ndd/emulated_memory.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "cuda_runtime.h"

// Of this library: where its constants are, which device code may read.
extern "C" {
extern char __ehdr_start __attribute__((visibility("hidden")));
extern char _end __attribute__((visibility("hidden")));
}

namespace ndd_emulator {
namespace {

constexpr int32_t kMany = -2, kNone = -1, kWarps = -3;  // kWarps - w: several threads of warp w

// What happened to a byte last. Intervals, between barriers of the block, and epochs, between those of a warp, are numbered through the whole process,
// so that nothing need be cleared.
struct Byte {
  uint32_t write_interval = 0, read_interval = 0, write_epoch = 0, read_epoch = 0;
  int32_t writer = kNone, reader = kNone;
  bool atomic = false, written = false, read_by_blocks = false;
};

struct Memory {
  size_t bytes = 0;
  bool written = false;     // before any launch
  std::vector<Byte> seen;   // made at the first access
};

std::mutex memories_lock;  // tensors may be freed by any thread of the host
std::map<uintptr_t, Memory> memories;
uint32_t interval = 1, first_of_launch = 1, first_of_block = 1;
int running = -1;
uint32_t last_epoch = 0, epochs[32] = {};  // of the warps of the block
std::unordered_set<uint64_t> fences;  // the intervals and threads of the launch in which a __threadfence() was
uintptr_t stack_begin = 0, stack_end = 0;
thread_local bool in_call = false;
std::string host_error;

std::vector<Byte>& seen_of(Memory& memory) {
  if (memory.seen.empty()) {
    memory.seen.resize(memory.bytes);
    for (Byte& byte : memory.seen) byte.written = memory.written;
  }
  return memory.seen;
}

// The last allocation that begins at or before `at`.
std::map<uintptr_t, Memory>::iterator before(uintptr_t at) {
  auto found = memories.upper_bound(at);
  return found == memories.begin() ? memories.end() : --found;
}

enum class Access { read, write, atomic };

int warp_of(int32_t thread) { return thread >= 0 ? thread / 32 : kWarps - thread; }
uint32_t epoch() { return epochs[running / 32]; }

// Whether what `thread` did is behind a barrier of the running warp.
bool ordered_in_warp(int32_t thread, uint32_t then) { return (thread >= 0 || thread <= kWarps) && warp_of(thread) == running / 32 && then < epoch(); }

bool unordered(uint32_t then, int32_t thread, uint32_t epoch_then) {
  if (then < first_of_launch) return false;
  return then < first_of_block || (then == interval && thread != running && !ordered_in_warp(thread, epoch_then));
}

uint64_t moment(uint32_t then, int32_t thread) { return uint64_t{then} << 32 | static_cast<uint32_t>(thread); }

// Whether blocks hand a value over: the writer's fence is behind the write, and the reader's before the read. That an atomic access orders the two
// fences, as a count of the blocks that have finished does, is not checked.
bool handed_over(const Byte& byte) {
  return byte.write_interval < first_of_block && fences.count(moment(byte.write_interval, byte.writer)) != 0 &&
         fences.count(moment(interval, running)) != 0;
}

// The name of a race, or null.
const char* note(Byte& byte, Access access) {
  const bool writes = access != Access::read;
  const bool ordered = (access == Access::atomic && byte.atomic) || (access == Access::read && handed_over(byte));
  if (unordered(byte.write_interval, byte.writer, byte.write_epoch) && !ordered) return writes ? "a race of two writes" : "a race of a write and this read";
  if (access == Access::write || (access == Access::atomic && !byte.atomic)) {
    const bool others = byte.read_interval >= first_of_launch &&
                        (byte.read_by_blocks || byte.read_interval < first_of_block ||
                         (byte.read_interval == interval && byte.reader != running && !ordered_in_warp(byte.reader, byte.read_epoch)));
    if (others) return "a race of a read and this write";
  }
  if (!writes) {
    if (!byte.written) return "nothing was written to";
    if (byte.read_interval < first_of_launch) byte.read_by_blocks = false;
    else if (byte.read_interval < first_of_block) byte.read_by_blocks = true;
    const bool others = byte.read_interval == interval && byte.reader != running && !ordered_in_warp(byte.reader, byte.read_epoch);
    byte.reader = !others ? running : byte.reader != kMany && warp_of(byte.reader) == running / 32 ? kWarps - running / 32 : kMany;
    byte.read_interval = interval;
    byte.read_epoch = epoch();
  } else {
    if (access == Access::atomic && !byte.written) return "nothing was written to";
    byte.write_interval = interval;
    byte.write_epoch = epoch();
    byte.writer = running;
    byte.atomic = access == Access::atomic;
    byte.written = true;
  }
  return nullptr;
}

const char* name_of(Access access) { return access == Access::read ? "reads " : access == Access::write ? "writes " : "atomically changes "; }

std::string check_device(uintptr_t at, size_t bytes, Access access) {
  if (at >= stack_begin && at < stack_end) return {};
  if (at >= reinterpret_cast<uintptr_t>(&__ehdr_start) && at < reinterpret_cast<uintptr_t>(&_end)) return {};
  const auto what = [&] { return std::string("device code ") + name_of(access) + std::to_string(bytes) + " bytes "; };
  const std::lock_guard<std::mutex> lock(memories_lock);
  const auto found = before(at);
  if (found == memories.end() || at >= found->first + found->second.bytes + (1 << 20)) {
    return what() + "of the host's memory, or far from any of the device's";
  }
  const size_t first = at - found->first, size = found->second.bytes;
  if (first + bytes > size) return what() + "at byte " + std::to_string(first) + " of an allocation of " + std::to_string(size);
  if (at % bytes != 0) return what() + "at an address that is not a multiple of that";
  std::vector<Byte>& seen = seen_of(found->second);
  for (size_t k = 0; k < bytes; ++k)
    if (const char* race = note(seen[first + k], access)) return what() + "at byte " + std::to_string(first) + " of " + std::to_string(size) + ": " + race;
  return {};
}

void check_host(uintptr_t at, size_t bytes, Access access) {
  const std::lock_guard<std::mutex> lock(memories_lock);
  const auto found = before(at);
  if (found == memories.end() || at >= found->first + found->second.bytes || !host_error.empty()) return;
  host_error = std::string("code of the host ") + name_of(access) + std::to_string(bytes) + " bytes of the device's memory";
}

// Of 16 bytes or fewer, powers of two.
void check(const void* data, size_t bytes, Access access) {
  // Functions of the standard library that we call may be those that the linker has taken from code with checks.
  static thread_local bool checking = false;
  if (checking) return;
  checking = true;
  const auto at = reinterpret_cast<uintptr_t>(data);
  std::string text;
  if (running >= 0) text = check_device(at, bytes, access);
  else if (in_call) check_host(at, bytes, access);
  checking = false;
  if (!text.empty()) fault(text + ",");
}

}  // namespace

void add_memory(const void* begin, size_t bytes, bool written) {
  const std::lock_guard<std::mutex> lock(memories_lock);
  Memory& memory = memories[reinterpret_cast<uintptr_t>(begin)];
  memory = Memory();
  memory.bytes = bytes;
  memory.written = written;
}

void remove_memory(const void* begin) {
  const std::lock_guard<std::mutex> lock(memories_lock);
  memories.erase(reinterpret_cast<uintptr_t>(begin));
}

void host_wrote(const void* begin, size_t bytes) {
  const std::lock_guard<std::mutex> lock(memories_lock);
  const auto at = reinterpret_cast<uintptr_t>(begin);
  const auto found = before(at);
  if (found == memories.end()) return;
  if (bytes == found->second.bytes && found->second.seen.empty()) {
    found->second.written = true;
    return;
  }
  std::vector<Byte>& seen = seen_of(found->second);
  for (size_t k = 0; k < bytes; ++k) seen[at - found->first + k] = Byte{0, 0, 0, 0, kNone, kNone, false, true, false};
}

bool is_device_memory(const void* begin, size_t bytes) {
  const std::lock_guard<std::mutex> lock(memories_lock);
  const auto at = reinterpret_cast<uintptr_t>(begin);
  const auto found = before(at);
  return bytes == 0 || (found != memories.end() && at + bytes <= found->first + found->second.bytes);
}

void begin_launch() {
  first_of_launch = ++interval;
  fences.clear();
}
void begin_block() { first_of_block = ++interval; }
void begin_interval() { ++interval; }
void begin_epoch(int warp) { epochs[warp] = ++last_epoch; }

void set_thread(int thread, const void* stack, size_t stack_bytes) {
  running = thread;
  stack_begin = reinterpret_cast<uintptr_t>(stack);
  stack_end = stack_begin + stack_bytes;
}

void begin_call() {
  in_call = true;
  host_error.clear();
}

const char* end_call() {
  in_call = false;
  return host_error.empty() ? nullptr : host_error.c_str();
}

void fence() { fences.insert(moment(interval, running)); }
void atomic_access(const void* at, size_t bytes) { check(at, bytes, Access::atomic); }

}  // namespace ndd_emulator

using ndd_emulator::Access;
using ndd_emulator::check;

// The names that -fsanitize=thread calls.
#define NDD_ACCESSES(size)                                                                                   \
  extern "C" void __tsan_read##size(void* at) { check(at, size, Access::read); }                             \
  extern "C" void __tsan_write##size(void* at) { check(at, size, Access::write); }                           \
  extern "C" void __tsan_unaligned_read##size(void* at) { check(at, size, Access::read); }                   \
  extern "C" void __tsan_unaligned_write##size(void* at) { check(at, size, Access::write); }                 \
  extern "C" void __tsan_volatile_read##size(void* at) { check(at, size, Access::read); }                    \
  extern "C" void __tsan_volatile_write##size(void* at) { check(at, size, Access::write); }
NDD_ACCESSES(1)
NDD_ACCESSES(2)
NDD_ACCESSES(4)
NDD_ACCESSES(8)
NDD_ACCESSES(16)

namespace {
void check_range(char* at, long bytes, Access access) {
  for (long k = 0; k < bytes;) {  // in the largest aligned steps: an argument of a kernel has up to 32 KB
    long step = 16;
    while (step > bytes - k || reinterpret_cast<uintptr_t>(at + k) % step != 0) step /= 2;
    check(at + k, step, access);
    k += step;
  }
}
}  // namespace

extern "C" void __tsan_read_range(void* at, long bytes) { check_range(static_cast<char*>(at), bytes, Access::read); }
extern "C" void __tsan_write_range(void* at, long bytes) { check_range(static_cast<char*>(at), bytes, Access::write); }
extern "C" void __tsan_vptr_update(void**, void*) {}
extern "C" void __tsan_vptr_read(void**) {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_init() {}

// Atomics of the host, such as counts of references.
#define NDD_ATOMICS(bits, T)                                                                                                                       \
  extern "C" T __tsan_atomic##bits##_load(const volatile T* at, int) { return __atomic_load_n(at, __ATOMIC_SEQ_CST); }                             \
  extern "C" void __tsan_atomic##bits##_store(volatile T* at, T value, int) { __atomic_store_n(at, value, __ATOMIC_SEQ_CST); }                     \
  extern "C" T __tsan_atomic##bits##_exchange(volatile T* at, T value, int) { return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST); }           \
  extern "C" T __tsan_atomic##bits##_fetch_add(volatile T* at, T value, int) { return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST); }           \
  extern "C" T __tsan_atomic##bits##_fetch_sub(volatile T* at, T value, int) { return __atomic_fetch_sub(at, value, __ATOMIC_SEQ_CST); }           \
  extern "C" int __tsan_atomic##bits##_compare_exchange_strong(volatile T* at, T* expected, T value, int, int) {                                   \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                                            \
  }                                                                                                                                                \
  extern "C" int __tsan_atomic##bits##_compare_exchange_weak(volatile T* at, T* expected, T value, int, int) {                                     \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                                            \
  }
NDD_ATOMICS(8, uint8_t)
NDD_ATOMICS(32, uint32_t)
NDD_ATOMICS(64, uint64_t)
