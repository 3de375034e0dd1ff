// SPDX-License-Identifier: Apache-2.0
// Random orders: the Fisher-Yates shuffle.
#pragma once

#include <cstdint>
#include <utility>

#include "ndd/random/philox.h"

namespace ndd {

// A random number in [0, n): 64 random bits, scaled by the high half of a 128-bit product.
inline int64_t draw_below(Philox& random, int64_t n) {
  // Two statements, because the order of evaluation of operands is not defined.
  const uint64_t high = random.next(), low = random.next();
  return static_cast<int64_t>((static_cast<unsigned __int128>(high << 32 | low) * static_cast<uint64_t>(n)) >> 64);
}

// Shuffles fewer than 2^32 values.
template <class T>
void shuffle_short(T* values, int64_t n, Philox& random) {
  for (int64_t k = n - 1; k > 0; --k) std::swap(values[k], values[draw_below(random, k + 1)]);
}

}  // namespace ndd
