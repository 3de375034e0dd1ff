// SPDX-License-Identifier: Apache-2.0
// Orders of samples. Native because a reservoir is a loop: 10 million samples take 0.1 s here and 10 s in Python.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ndd/philox.h"

namespace ndd {
namespace {

// A reservoir of `fill` samples: each step delivers one of them at random, and the next of the input takes its place. A reservoir that holds
// everything gives every order with equal probability.
void shuffle(int64_t* order, int64_t n, int64_t fill, uint64_t seed, uint64_t epoch) {
  std::vector<int64_t> reservoir(order, order + (fill < n ? fill : n));
  Philox random(uint32_t(seed), uint32_t(seed >> 32), uint32_t(epoch), uint32_t(epoch >> 32));
  int64_t next = int64_t(reservoir.size());
  for (int64_t k = 0; k < n; ++k) {
    if (k % (int64_t{1} << 32) == 0) {  // a stream has 2^34 words
      random = Philox(uint32_t(seed), uint32_t(seed >> 32), uint32_t(epoch), uint32_t(epoch >> 32), uint32_t(k >> 32));
      random.seek(0);
    }
    const uint64_t high = random.next(), low = random.next();
    const auto at = std::size_t((static_cast<unsigned __int128>(high << 32 | low) * reservoir.size()) >> 64);
    // Writing stays behind reading: a sample is taken out of the input before its place is needed.
    const int64_t chosen = reservoir[at];
    if (next < n) {
      reservoir[at] = order[next++];
    } else {
      reservoir[at] = reservoir.back();
      reservoir.pop_back();
    }
    order[k] = chosen;
  }
}

}  // namespace
}  // namespace ndd

extern "C" __attribute__((visibility("default"))) void ndd_shuffle(int64_t* order, int64_t n, int64_t fill, uint64_t seed, uint64_t epoch) {
  ndd::shuffle(order, n, fill, seed, epoch);
}
