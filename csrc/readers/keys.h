// SPDX-License-Identifier: Apache-2.0
// Hashes of keys, and the search for them in the sorted hashes of all samples.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace ndd {

// Odd constants with well-mixed bits: multiplication by them loses no information modulo 2^64.
constexpr uint64_t kOdd = 0x9E3779B97F4A7C15, kMix = 0xD6E8FEB86659FD93;

inline uint64_t scramble(uint64_t state) {
  state = (state ^ (state >> 32)) * kMix;
  return state ^ (state >> 32);
}

// The salt makes hashes unpredictable for whoever writes the keys.
inline uint64_t hash_key(const uint8_t* key, int64_t length, uint64_t salt) {
  uint64_t state = static_cast<uint64_t>(length) * kOdd + salt;
  for (int64_t done = 0; done < length; done += 8) {
    uint64_t word = 0;  // the last one may have fewer than eight bytes
    std::memcpy(&word, key + done, static_cast<size_t>(std::min<int64_t>(8, length - done)));
    state = scramble((state ^ word) * kOdd);
  }
  return scramble(state);
}

// Where samples of keys are: samples[i] has the hash sorted[i], and there are `size` of them.
struct KeyTable {
  uint64_t salt;
  const uint64_t* sorted;
  const int64_t* samples;
  int64_t size;

  // The sample that may have a key, or -1.
  int64_t find(const uint8_t* key, int64_t length) const {
    const uint64_t hash = hash_key(key, length, salt);
    const uint64_t* place = std::lower_bound(sorted, sorted + size, hash);
    return place != sorted + size && *place == hash ? samples[place - sorted] : -1;
  }
};

}  // namespace ndd
