// SPDX-License-Identifier: Apache-2.0
// ndd::pooled_memory: large host buffers in 2 MB pages, kept for reuse when their tensor is freed. Writing 38 MB (64 normalized 224x224 images) takes
// 11.8 ms into fresh memory, whose pages the kernel must map and zero, and 2.7 ms into a reused buffer. glibc reuses smaller buffers too, but in 4 KB
// pages, which cost TLB misses: with 2 MB pages multi_paste of 16 VGA images takes 0.61 ms instead of 0.88, permute_batch 0.55 instead of 0.82, and
// copy 0.42 instead of 0.48.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/sysinfo.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <limits>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "ndd/error.h"
#include "ndd/fork_mutex.h"
#include "ndd/kernel.h"
#include "ndd/python_interface.h"
#include "ndd/samples.h"
#include "ndd/stream/host_memory.h"

namespace ndd {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 62;
constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

// The limit in a control group's file; "max" and missing files mean unlimited.
size_t limit_in(const std::string& path) {
  size_t value = 0;
  std::ifstream file(path);
  return file >> value ? value : kUnlimited;
}

// The memory that the process's control groups allow. Limits nest, so every ancestor counts as well. `swap` is the machine's swap space in bytes.
size_t container_memory(size_t swap) {
  size_t limit = kUnlimited;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    // A line is number:kinds:path. The first version of control groups has one for each kind of resource, the second a single one without a kind.
    const std::string kinds = line.substr(first + 1, second - first - 1);
    const bool unified = kinds.empty();
    if (!unified && ("," + kinds + ",").find(",memory,") == std::string::npos) continue;
    const std::string root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    // From the process's own group up to the root.
    for (std::string group = line.substr(second + 1);; group.resize(group.rfind('/'))) {
      if (group == "/") group.clear();
      if (unified) {
        const size_t memory = limit_in(root + group + "/memory.max");
        // Otherwise there is no limit, and the sum of both would wrap around.
        if (memory < kUnlimited - swap) limit = std::min(limit, memory + std::min(swap, limit_in(root + group + "/memory.swap.max")));
      } else {
        const size_t memory = limit_in(root + group + "/memory.limit_in_bytes");
        if (memory < kUnlimited - swap) limit = std::min({limit, memory + swap, limit_in(root + group + "/memory.memsw.limit_in_bytes")});
      }
      if (group.empty() || group.rfind('/') == std::string::npos) break;
    }
  }
  return limit;
}

size_t memory_of_this_machine() {
#if defined(__linux__)
  struct sysinfo info;
  if (sysinfo(&info) == 0) {
    const size_t memory = static_cast<size_t>(info.totalram) * info.mem_unit, swap = static_cast<size_t>(info.totalswap) * info.mem_unit;
    return std::min(memory + swap, container_memory(swap));
  }
#endif
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && page > 0 ? static_cast<size_t>(pages) * static_cast<size_t>(page) : kUnlimited;
}

std::string format_bytes(double value) {
  static constexpr const char* units[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
  int unit = 0;
  for (; value >= 1000 && unit < 6; ++unit) value /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, unit > 0 ? "%.1f %s" : "%.0f %s", value, units[unit]);
  return text;
}

std::string no_memory_text(double bytes, const char* use) {
  return "no memory for " + format_bytes(bytes) + use + "; there are " + format_bytes(static_cast<double>(max_host_memory())) + " for this process";
}

[[noreturn]] void fail_no_memory(size_t bytes) { fail(Error::Memory, no_memory_text(static_cast<double>(bytes), "")); }

using Block = HostBlock;

// A training loop holds a handful of batches; anything beyond these limits is returned to the system.
constexpr size_t kMaxIdleBlocks = 16;
constexpr size_t kMaxIdleBytes = size_t{1} << 30;
constexpr size_t kPage = size_t{2} << 20;
constexpr size_t kSmallPage = size_t{64} << 10;  // no system has larger base pages

struct Pool {
  ForkMutex mutex;
  std::vector<Block> idle;  // oldest first
};

Pool& pool() {
  static Pool* instance = new Pool;  // never destroyed: tensors may be freed during process exit
  return *instance;
}

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kKeeps = false;  // reuse would hide use-after-free from the sanitizer

void* allocate(size_t bytes) {
  void* data = std::malloc(bytes);
  if (data == nullptr) fail_no_memory(bytes);
  return data;
}

void release(const Block& block) { std::free(block.data); }
#else
constexpr bool kKeeps = true;

size_t whole_pages(size_t bytes) { return (bytes + kSmallPage - 1) / kSmallPage * kSmallPage; }

// Maps memory directly instead of calling malloc: glibc would keep released memory in its own arenas, trapped behind any small block allocated later.
// Over-allocates by one huge page and unmaps both ends, because mmap aligns to the base page only.
void* allocate(size_t bytes) {
  check_host_memory(bytes);
  const size_t mapped = whole_pages(bytes) + kPage;
  void* const all = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) fail_no_memory(bytes);
  char* const begin = static_cast<char*>(all);
  const size_t head = (kPage - reinterpret_cast<uintptr_t>(all) % kPage) % kPage, tail = kPage - head;
  if (head > 0) munmap(begin, head);
  if (tail > 0) munmap(begin + mapped - tail, tail);
#ifdef MADV_HUGEPAGE
  madvise(begin + head, whole_pages(bytes), MADV_HUGEPAGE);
#endif
  return begin + head;
}

void release(const Block& block) { munmap(block.data, whole_pages(block.bytes)); }
#endif

// Four size classes per power of two, so ragged batches, no two of which have the same size, can reuse each other's buffers: cutting windows out
// of 16 images (60 MB) takes 5 ms in a reused buffer and 100 to 150 ms in a fresh one. The rounding costs nothing: pages that are never written take
// no memory.
size_t rounded_up(size_t bytes) {
  constexpr size_t kMaxRounded = size_t{256} << 20;  // larger buffers may be most of the available memory
  if (!kKeeps || bytes > kMaxRounded) return bytes;
  size_t step = kSmallPage;
  // At least four steps, and fewer than eight, fit in the size: it grows by a quarter at most.
  while (8 * step <= bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

Block take(size_t bytes) {
  const size_t size = rounded_up(bytes);
  {
    Pool& p = pool();
    std::lock_guard<ForkMutex> lock(p.mutex);
    // The most recently returned block first: it is the most likely to be in the caches.
    for (size_t k = p.idle.size(); k-- > 0;) {
      const Block block = p.idle[k];
      // A much larger block would be wasted on this tensor, and missing for the next large one.
      if (block.bytes < bytes || block.bytes > size + size / 4) continue;
      p.idle.erase(p.idle.begin() + k);
      return block;
    }
  }
  return {allocate(size), size};
}

void give_back(const Block& block) {
  if (!kKeeps) return release(block);
  std::vector<Block> surplus;
  {
    Pool& p = pool();
    std::lock_guard<ForkMutex> lock(p.mutex);
    p.idle.push_back(block);
    size_t total = 0;
    // Of at most 17 blocks: simpler than a sum that every change would have to keep right.
    for (const Block& b : p.idle) total += b.bytes;
    while (p.idle.size() > kMaxIdleBlocks || total > kMaxIdleBytes) {
      total -= p.idle.front().bytes;
      surplus.push_back(p.idle.front());
      p.idle.erase(p.idle.begin());
    }
  }
  // munmap of many pages takes long: outside the lock.
  for (const Block& b : surplus) release(b);
}

std::atomic<uint64_t> pinned_sizes{0};

Tensor pooled(const std::vector<int64_t>& shape, DType dtype) {
  size_t bytes = static_cast<size_t>(item_bytes(dtype));
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<size_t>(extent), &bytes) || bytes > kMaxBytes) fail_no_memory(kMaxBytes);
  }
  const Block block = take(bytes);
  return tensor_over(block.data, shape, dtype, [](void* data, size_t size) { give_back({data, size}); }, block.bytes);
}

}  // namespace

size_t max_host_memory() {
  // Reads files, so only once.
  static const size_t of_the_machine = memory_of_this_machine();
  rlimit limit;  // read on every call: the process may change it
  const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return limited ? std::min(of_the_machine, static_cast<size_t>(limit.rlim_cur)) : of_the_machine;
}

void check_host_memory(size_t bytes) {
  if (bytes > max_host_memory()) fail_no_memory(bytes);
}

int size_class(size_t bytes) {
  int exponent = 0;
  while (exponent < 63 && (size_t{1} << exponent) < bytes) ++exponent;
  return exponent;
}

HostBlock take_host_memory(size_t bytes) { return take(bytes); }
void give_back_host_memory(void* data, size_t bytes) { give_back({data, bytes}); }

std::optional<Tensor> unfilled_output(const std::vector<int64_t>& shape, DType dtype) {
  int64_t bytes = item_bytes(dtype);
  for (const int64_t extent : shape) bytes *= extent;
  if (bytes < static_cast<int64_t>(kPooledHostMemory)) return unfilled_tensor(shape, dtype);
  const uint64_t wanted = uint64_t{1} << size_class(static_cast<size_t>(bytes));
  // It must be pinned, which the ordinary path does, see pinned_host_memory().
  if ((pinned_sizes.load(std::memory_order_relaxed) & wanted) != 0) return std::nullopt;
  try {
    return pooled(shape, dtype);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<Tensor> pinned_host_memory(size_t bytes) {
  const uint64_t wanted = uint64_t{1} << size_class(bytes);
  if (bytes < kPooledHostMemory || (pinned_sizes.load(std::memory_order_relaxed) & wanted) == 0) return std::nullopt;
  try {
    return pinned_tensor(static_cast<int64_t>(bytes));
  } catch (const std::exception&) {
    pinned_sizes.fetch_and(~wanted);  // torch logs every such failure to stderr, so stop trying; upload.py counts the copies from unpinned memory
    return std::nullopt;
  }
}

}  // namespace ndd

// The error message for an output whose size may not fit in 64 bits. Valid until this thread's next call.
NDD_EXPORT(keep, const char*, ndd_no_memory, (double bytes, const char* use)) {
  thread_local std::string text;
  text = ndd::no_memory_text(bytes, use);
  return text.c_str();
}

NDD_EXPORT(keep, double, ndd_most_host_memory, ()) { return static_cast<double>(ndd::max_host_memory()); }

// Bit k: buffers of more than 2^(k-1) and up to 2^k bytes are pinned.
NDD_EXPORT(keep, void, ndd_pin_sizes, (uint64_t sizes)) { ndd::pinned_sizes.store(sizes, std::memory_order_relaxed); }

NDD_FUNCTION(pooled_memory, "(int[] shape, ScalarType dtype) -> Tensor", ndd::pooled)

// Returns all idle buffers to the system. The result is their size in bytes.
NDD_EXPORT(release, uint64_t, ndd_release_idle_memory, ()) {
  std::vector<ndd::Block> idle;
  {
    ndd::Pool& p = ndd::pool();
    std::lock_guard<ndd::ForkMutex> lock(p.mutex);
    idle.swap(p.idle);
  }
  uint64_t bytes = 0;
  for (const ndd::Block& b : idle) {
    bytes += b.bytes;
    ndd::release(b);
  }
  return bytes;
}
