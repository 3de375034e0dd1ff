// SPDX-License-Identifier: Apache-2.0
// A keyed 128-bit hash of bytes: the key of an encoded file in a cache, and the checksums of the files that a cache writes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ndd {

// Random numbers that are not published: without them, files with equal hashes could be constructed.
struct HashSecret {
  uint64_t words[8];
};

struct ContentHash {
  uint64_t low, high;

  bool operator==(const ContentHash& other) const { return low == other.low && high == other.high; }
  bool operator<(const ContentHash& other) const { return high != other.high ? high < other.high : low < other.low; }
};

struct HashOfContentHash {
  size_t operator()(const ContentHash& hash) const { return hash.low; }
};

// Hashes 13 to 18 GB/s if the bytes are in the CPU's cache: 4 us for a file of 50 kB, whose decoding takes 1 ms.
ContentHash content_hash(const HashSecret& secret, const void* data, size_t size);

HashSecret random_secret();

}  // namespace ndd
