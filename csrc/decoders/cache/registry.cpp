// SPDX-License-Identifier: Apache-2.0
// The caches of the process, by number, and the C functions for torch_ndd/decoders/_cache.py. Kernels take the number of a cache and not a
// pointer: it may have been released when the kernel of a compiled graph runs.
#include <pthread.h>

#include <map>
#include <mutex>
#include <sstream>

#include "decoders/cache/image_cache.h"
#include "ndd/python_interface.h"
#include "ndd/stream/scheduler.h"

namespace ndd {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<int64_t, std::shared_ptr<ImageCache>> caches;
  int64_t last = 0;
};

// Never destroyed: threads may still decode while the process exits.
Registry& registry() {
  static Registry* instance = new Registry;
  return *instance;
}

template <class F>
void for_stores(F visit) {
  for (auto& [number, cache] : registry().caches) visit(cache->store());
}

// What decoders did for one owner, which a loader shows as its statistics.
struct Totals {
  int64_t images = 0, values = 0, cached = 0;
};
std::mutex totals_mutex;
std::map<int64_t, Totals> totals;  // by owner

// Registered when the library is loaded. Fork handlers of the parent run in reverse order of registration: the scheduler registers later,
// so its handler has finished the queued work, which needs the caches, when this one takes the locks.
[[maybe_unused]] const int at_fork = pthread_atfork(
    [] {
      registry().mutex.lock();
      for_stores([](ImageStore& store) { store.before_fork(); });
      totals_mutex.lock();
    },
    [] {
      totals_mutex.unlock();
      for_stores([](ImageStore& store) { store.after_fork(false); });
      registry().mutex.unlock();
    },
    [] {
      totals_mutex.unlock();
      for_stores([](ImageStore& store) { store.after_fork(true); });
      registry().mutex.unlock();
    });

thread_local std::string answer;  // the latest text returned to Python on this thread

}  // namespace

std::shared_ptr<ImageCache> image_cache(int64_t number) {
  if (number == 0) return nullptr;
  std::lock_guard<std::mutex> lock(registry().mutex);
  const auto found = registry().caches.find(number);
  return found == registry().caches.end() ? nullptr : found->second;
}

void count_images(int64_t images, int64_t values) {
  std::lock_guard<std::mutex> lock(totals_mutex);
  totals[work_owner].images += images;
  totals[work_owner].values += values;
}

void count_cached() {
  std::lock_guard<std::mutex> lock(totals_mutex);
  ++totals[work_owner].cached;
}

}  // namespace ndd

// Returns a handle, or null with the reason in `ndd_cache_text`. An empty `folder` means memory.
NDD_EXPORT(release, void*, ndd_cache_make,
           (int64_t bytes, const char* folder, int admission, int64_t threshold, int64_t shorter, const char* version)) {
  using namespace ndd;
  try {
    const auto admits = static_cast<Admission>(admission);
    auto store = *folder ? make_folder_store(folder, bytes, admits) : make_memory_store(bytes, admits);
    auto cache = std::make_shared<ImageCache>(std::move(store), threshold, shorter, version);
    std::lock_guard<std::mutex> lock(registry().mutex);
    registry().caches.emplace(++registry().last, std::move(cache));
    // The handle is memory that holds the number, because Python frees handles through a function that takes a pointer.
    return new int64_t(registry().last);
  } catch (const std::exception& error) {
    answer = error.what();
    return nullptr;
  }
}

NDD_EXPORT(keep, int64_t, ndd_cache_number, (const void* handle)) { return *static_cast<const int64_t*>(handle); }

// Releases the cache; work that is already queued keeps it alive. The destructor, which frees gigabytes, runs outside the mutex.
NDD_EXPORT(keep, void, ndd_cache_release, (void* handle)) {
  using namespace ndd;
  auto* number = static_cast<int64_t*>(handle);
  std::shared_ptr<ImageCache> cache;
  {
    std::lock_guard<std::mutex> lock(registry().mutex);
    const auto found = registry().caches.find(*number);
    if (found != registry().caches.end()) {
      cache = std::move(found->second);
      registry().caches.erase(found);
    }
  }
  delete number;
}

NDD_EXPORT(release, void, ndd_cache_counts, (int64_t number, int64_t* out)) {
  const auto cache = ndd::image_cache(number);
  const ndd::StoreCounts counts = cache ? cache->store().counts() : ndd::StoreCounts{};
  const int64_t all[] = {
      cache ? cache->hits() : 0, cache ? cache->misses() : 0, counts.images, counts.bytes, counts.stored, counts.evicted, counts.damaged};
  std::copy(std::begin(all), std::end(all), out);
}

// Returns false, with the reason in `ndd_cache_text`, if the folder cannot be cleared.
NDD_EXPORT(release, int, ndd_cache_clear, (int64_t number)) {
  try {
    if (const auto cache = ndd::image_cache(number)) cache->store().clear();
    return 1;
  } catch (const std::exception& error) {
    ndd::answer = error.what();
    return 0;
  }
}

// Returns why no more images are stored, or (ndd_cache_text) why creating the latest cache on this thread failed: text that is valid until
// the next call, or empty.
NDD_EXPORT(release, const char*, ndd_cache_trouble, (int64_t number)) {
  const auto cache = ndd::image_cache(number);
  ndd::answer = cache ? cache->store().trouble() : std::string();
  return ndd::answer.c_str();
}
NDD_EXPORT(release, const char*, ndd_cache_text, ()) { return ndd::answer.c_str(); }

// Fills `out` with the number of images that decoders processed for a loader, the number of values of these images as a whole, and the
// number of images that were copied from a cache.
NDD_EXPORT(keep, void, ndd_cache_totals, (int64_t owner, int64_t* out)) {
  std::lock_guard<std::mutex> lock(ndd::totals_mutex);
  const ndd::Totals& counts = ndd::totals[owner];
  out[0] = counts.images;
  out[1] = counts.values;
  out[2] = counts.cached;
}
