// SPDX-License-Identifier: Apache-2.0
// The caches of the process, by number, and the C functions of torch_ndd/decoders/_cache.py.
#include <pthread.h>

#include <map>
#include <mutex>
#include <sstream>

#include "decoders/cache/image_cache.h"
#include "ndd/python_interface.h"

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

// When the library is loaded, so that this is done after the scheduler, whose handler is younger, has finished all that is queued: that needs the caches.
[[maybe_unused]] const int at_fork = pthread_atfork(
    [] {
      registry().mutex.lock();
      for_stores([](ImageStore& store) { store.before_fork(); });
    },
    [] {
      for_stores([](ImageStore& store) { store.after_fork(false); });
      registry().mutex.unlock();
    },
    [] {
      for_stores([](ImageStore& store) { store.after_fork(true); });
      registry().mutex.unlock();
    });

std::atomic<int64_t> images_asked{0}, values_asked{0}, images_cached{0};

thread_local std::string answer;

}  // namespace

std::shared_ptr<ImageCache> image_cache(int64_t number) {
  if (number == 0) return nullptr;
  std::lock_guard<std::mutex> lock(registry().mutex);
  const auto found = registry().caches.find(number);
  return found == registry().caches.end() ? nullptr : found->second;
}

void count_images(int64_t images, int64_t values) {
  images_asked.fetch_add(images, std::memory_order_relaxed);
  values_asked.fetch_add(values, std::memory_order_relaxed);
}

void count_cached() { images_cached.fetch_add(1, std::memory_order_relaxed); }

}  // namespace ndd

// Returns a handle, or null and the reason in `ndd_cache_text`. An empty folder means memory.
NDD_EXPORT(release, void*, ndd_cache_make,
           (int64_t bytes, const char* folder, int admission, int64_t threshold, int64_t shorter, const char* version)) {
  using namespace ndd;
  try {
    const auto admits = static_cast<Admission>(admission);
    auto store = *folder ? make_folder_store(folder, bytes, admits) : make_memory_store(bytes, admits);
    auto cache = std::make_shared<ImageCache>(std::move(store), threshold, shorter, version);
    std::lock_guard<std::mutex> lock(registry().mutex);
    registry().caches.emplace(++registry().last, std::move(cache));
    return new int64_t(registry().last);
  } catch (const std::exception& error) {
    answer = error.what();
    return nullptr;
  }
}

NDD_EXPORT(keep, int64_t, ndd_cache_number, (const void* handle)) { return *static_cast<const int64_t*>(handle); }

// Work that was queued before still uses the cache.
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

NDD_EXPORT(release, void, ndd_cache_clear, (int64_t number)) {
  if (const auto cache = ndd::image_cache(number)) cache->store().clear();
}

// Why nothing more is stored, or the reason why the last cache was not made on this thread: empty, or text that lasts until the next call.
NDD_EXPORT(release, const char*, ndd_cache_trouble, (int64_t number)) {
  const auto cache = ndd::image_cache(number);
  ndd::answer = cache ? cache->store().trouble() : std::string();
  return ndd::answer.c_str();
}
NDD_EXPORT(release, const char*, ndd_cache_text, ()) { return ndd::answer.c_str(); }

// Images that the decoders of the process were asked for, the values of these images, whole, and the images that came from a cache.
NDD_EXPORT(keep, void, ndd_cache_totals, (int64_t* out)) {
  out[0] = ndd::images_asked;
  out[1] = ndd::values_asked;
  out[2] = ndd::images_cached;
}
