// SPDX-License-Identifier: Apache-2.0
// Finds samples by cumulative weights, for readers.Weighted. Native because with 10^8 weights nearly every access misses all caches: here each draw waits
// for one or two of them, while NumPy read a block of weights for each.
#include <algorithm>
#include <cstdint>

#include "ndd/python_interface.h"

namespace ndd {
namespace {

constexpr int64_t kGroup = 32;  // places whose weights are fetched at the same time

}  // namespace
}  // namespace ndd

// Sets samples[k] to the first sample whose cumulative weight is larger than places[k], for `n` places in ascending order. `totals` has `size`
// cumulative weights; `blocks` has every `block`-th of them, from number block - 1 on, and is searched first because it fits into a cache.
NDD_EXPORT(release, void, ndd_find_weights,
           (const double* totals, int64_t size, const double* blocks, int64_t block, const double* places, int64_t n, int64_t* samples)) {
  const double* found = blocks;
  for (int64_t begin = 0; begin < n; begin += ndd::kGroup) {
    const int64_t end = std::min(n, begin + ndd::kGroup);
    for (int64_t k = begin; k < end; ++k) {
      found = std::upper_bound(found, blocks + size / block, places[k]);
      samples[k] = (found - blocks) * block;
      for (int64_t line = 0; line < block && samples[k] + line < size; line += 8) __builtin_prefetch(totals + samples[k] + line);
    }
    for (int64_t k = begin; k < end; ++k) {
      const double* first = totals + samples[k];
      samples[k] = std::upper_bound(first, std::min(first + block, totals + size), places[k]) - totals;
    }
  }
}
