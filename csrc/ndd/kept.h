// SPDX-License-Identifier: Apache-2.0
// A cache of tables that are expensive to build and depend on parameters only: filters, windows, weights. Thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "ndd/fork_mutex.h"

namespace ndd {

// Holds up to `most` tables and drops all of them when one more is needed: parameters rarely vary, so anything finer is not worth its bookkeeping.
// Must live as long as the process (ForkMutex).
template <class Key, class Table>
class Kept {
 public:
  explicit Kept(size_t most) : most_(most) {}

  // Returns the table for `key`, built by make() if needed. make() runs outside the lock, so two threads may both build it; the table must not depend
  // on which one wins.
  template <class Make>
  std::shared_ptr<const Table> get(const Key& key, Make&& make) {
    if (!(key == key)) return make();  // NaN breaks the ordering of a map
    {
      const std::lock_guard<ForkMutex> lock(mutex_);
      const auto found = tables_.find(key);
      if (found != tables_.end()) return found->second;
    }
    // A caller keeps its table by the shared pointer, even if another thread clears the cache.
    std::shared_ptr<const Table> table = make();
    const std::lock_guard<ForkMutex> lock(mutex_);
    if (tables_.size() >= most_) tables_.clear();
    tables_[key] = table;
    return table;
  }

 private:
  const size_t most_;
  ForkMutex mutex_;
  std::map<Key, std::shared_ptr<const Table>> tables_;
};

}  // namespace ndd
