// SPDX-License-Identifier: Apache-2.0
// Division of 31-bit numbers by a divisor known on the host, as a multiplication and a shift: 4 instructions instead of 20.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ndd/hd.h"

namespace ndd {

struct Divisor {
  static constexpr int64_t kLimit = int64_t{1} << 31;  // dividends and divisors must be below this

  uint32_t value = 1, magic = 0, shift = 0;

  Divisor() = default;
  // 0, the extent of a sample without elements, which nothing is divided by, is taken as 1.
  // 2^(32 + shift) / value, rounded up, less 2^32, which quotient() makes up for by adding n. Exact for all dividends below kLimit.
  explicit Divisor(int64_t divisor) : value(static_cast<uint32_t>(std::max<int64_t>(divisor, 1))) {
    while ((uint64_t{1} << shift) < value) ++shift;
    magic = static_cast<uint32_t>(((((uint64_t{1} << shift) - value) << 32) / value) + 1);
  }

  NDD_HD uint32_t quotient(uint32_t n) const { return (static_cast<uint32_t>((uint64_t{n} * magic) >> 32) + n) >> shift; }
};

}  // namespace ndd
