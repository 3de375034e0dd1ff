// SPDX-License-Identifier: Apache-2.0
// Keyed, because the hash decides which pixels a file gets: without the secret of the cache, no file can be constructed to have the hash of another.
#include "decoders/cache/content_hash.h"

#include <cstring>
#include <random>

namespace ndd {
namespace {

constexpr size_t kStripe = 64;  // bytes per round: a cache line

// The multiply-and-fold step of wyhash: a 128-bit product whose halves are combined.
uint64_t fold(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Four independent chains, whose multiplications the CPU overlaps.
void absorb(const HashSecret& secret, const uint8_t* stripe, uint64_t (&lanes)[4]) {
  uint64_t words[8];
  std::memcpy(words, stripe, kStripe);
  for (int i = 0; i < 4; ++i) lanes[i] = fold(words[2 * i] ^ secret.words[i], words[2 * i + 1] ^ lanes[i]);
}

}  // namespace

ContentHash content_hash(const HashSecret& secret, const void* data, size_t size) {
  // Of the eight secret words, 0 to 3 are mixed into the stripes and 4 to 7 start the chains. All of them finish the hash.
  const uint64_t* key = secret.words;
  uint64_t lanes[4] = {key[4], key[5], key[6], key[7]};
  const auto* bytes = static_cast<const uint8_t*>(data);
  size_t at = 0;
  for (; at + kStripe <= size; at += kStripe) absorb(secret, bytes + at, lanes);
  // The last stripe is padded with zeros; the length, mixed in below, distinguishes files that differ by trailing zeros.
  if (at < size) {
    uint8_t last[kStripe] = {};
    std::memcpy(last, bytes + at, size - at);
    absorb(secret, last, lanes);
  }
  const uint64_t length = fold(static_cast<uint64_t>(size) ^ key[3], key[0] | 1);
  const uint64_t low = fold(lanes[0] ^ key[0], lanes[1] ^ key[1]) ^ fold(lanes[2] ^ key[2], lanes[3] ^ key[3]) ^ length;
  const uint64_t high = fold(lanes[0] ^ key[4], lanes[2] ^ key[5]) + fold(lanes[1] ^ key[6], lanes[3] ^ key[7]) + length;
  // The second factors are odd: a zero would erase the first ones.
  return {fold(low ^ key[6], key[1] | 1), fold(high ^ key[7], key[2] | 1)};
}

HashSecret random_secret() {
  std::random_device source;
  HashSecret secret;
  for (uint64_t& word : secret.words) word = static_cast<uint64_t>(source()) << 32 | source();
  return secret;
}

}  // namespace ndd
