// SPDX-License-Identifier: Apache-2.0
// Finds samples by keys: a hash of 64 bits for each key, and a search in the sorted hashes of all samples. Native because a batch of 64 keys takes
// 6 us here and 110 us in NumPy.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ndd/python_interface.h"

namespace ndd {
namespace {

// Odd constants with well-mixed bits: multiplication by them loses no information modulo 2^64.
constexpr uint64_t kOdd = 0x9E3779B97F4A7C15, kMix = 0xD6E8FEB86659FD93;

uint64_t scramble(uint64_t state) {
  state = (state ^ (state >> 32)) * kMix;
  return state ^ (state >> 32);
}

// The salt makes hashes unpredictable for whoever writes the keys.
uint64_t hash_key(const uint8_t* key, int64_t length, uint64_t salt) {
  uint64_t state = static_cast<uint64_t>(length) * kOdd + salt;
  for (int64_t done = 0; done < length; done += 8) {
    uint64_t word = 0;  // the last one may have fewer than eight bytes
    std::memcpy(&word, key + done, static_cast<size_t>(std::min<int64_t>(8, length - done)));
    state = scramble((state ^ word) * kOdd);
  }
  return scramble(state);
}

}  // namespace
}  // namespace ndd

// Hashes `n` keys, one after the other in `keys`; key k has lengths[k] bytes.
NDD_EXPORT(release, void, ndd_hash_keys, (const uint8_t* keys, const int64_t* lengths, int64_t n, uint64_t salt, uint64_t* hashes)) {
  for (int64_t k = 0; k < n; keys += lengths[k++]) hashes[k] = ndd::hash_key(keys, lengths[k], salt);
}

// Finds the sample that may have each of `n` keys, or -1: samples[i] has the hash sorted[i], and there are `size` of them.
NDD_EXPORT(keep, void, ndd_find_keys,
           (const uint8_t* keys, const int64_t* lengths, int64_t n, uint64_t salt, const uint64_t* sorted, const int64_t* samples, int64_t size,
            int64_t* found)) {
  for (int64_t k = 0; k < n; keys += lengths[k++]) {
    const uint64_t hash = ndd::hash_key(keys, lengths[k], salt);
    const uint64_t* place = std::lower_bound(sorted, sorted + size, hash);
    found[k] = place != sorted + size && *place == hash ? samples[place - sorted] : -1;
  }
}
