// SPDX-License-Identifier: Apache-2.0
// Tables that are built once for their parameters: filters, windows, weights.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "ndd/fork_mutex.h"

namespace ndd {

// Up to so many tables of a kind; all are forgotten when there are more. For any number of threads. It lasts as long as the process.
template <class Key, class Table>
class Kept {
 public:
  explicit Kept(size_t most) : most_(most) {}

  // The table for `key`, made by make() outside of the lock: two threads may both make it.
  template <class Make>
  std::shared_ptr<const Table> get(const Key& key, Make&& make) {
    if (!(key == key)) return make();  // a NaN has no place in an order
    {
      const std::lock_guard<ForkMutex> lock(mutex_);
      const auto found = tables_.find(key);
      if (found != tables_.end()) return found->second;
    }
    std::shared_ptr<const Table> made = make();
    const std::lock_guard<ForkMutex> lock(mutex_);
    if (tables_.size() >= most_) tables_.clear();
    tables_[key] = made;
    return made;
  }

 private:
  const size_t most_;
  ForkMutex mutex_;
  std::map<Key, std::shared_ptr<const Table>> tables_;
};

}  // namespace ndd
