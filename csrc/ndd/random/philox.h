// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a counter-based generator, in which any position of any
// stream costs the same. This is what makes random operators independent of threads, batch size and device.
#pragma once

#include <cstdint>

#include "ndd/hd.h"

namespace ndd {

// A stream of random words. The 64-bit key and the upper three words of the counter select it; the lowest word counts blocks of four.
class Philox {
 public:
  NDD_HD Philox(uint32_t key0, uint32_t key1, uint32_t stream1 = 0, uint32_t stream2 = 0, uint32_t stream3 = 0)
      : key_{key0, key1}, stream_{stream1, stream2, stream3} {}

  // The stream of a sample in one call of an operator. `words` are those drawn for the call.
  NDD_HD Philox(const int64_t* words, int64_t sample)
      : Philox(static_cast<uint32_t>(words[0]), static_cast<uint32_t>(words[1]), static_cast<uint32_t>(words[2]), static_cast<uint32_t>(words[3]),
               static_cast<uint32_t>(sample)) {}

  // The k-th of 2^32 parallel streams, of which this one is the first; for elements that need a variable number of words, such as rejection sampling.
  NDD_HD Philox beside(uint32_t k) const { return Philox(key_[0], key_[1], stream_[0], stream_[1] + k, stream_[2]); }

  // Positions the stream at word 4 * block.
  NDD_HD void seek(uint32_t block) {
    block_ = block;
    // No words are left of the current block: next() computes the new one.
    used_ = 4;
  }

  NDD_HD uint32_t next() {
    if (used_ == 4) {
      compute(block_++, words_);
      used_ = 0;
    }
    return words_[used_++];
  }

  // Uniform in [0, 1), with 24 or 53 bits.
  NDD_HD float uniform() { return static_cast<float>(next() >> 8) * 0x1p-24f; }
  NDD_HD double uniform_double() {
    const uint64_t high = next(), low = next();
    return static_cast<double>((high << 32 | low) >> 11) * 0x1p-53;
  }

  // Computes the four words of a block.
  NDD_HD void compute(uint32_t block, uint32_t (&out)[4]) const {
    uint32_t a = block, b = stream_[0], c = stream_[1], d = stream_[2], k0 = key_[0], k1 = key_[1];
    // Two multiplications, whose upper halves are mixed with the other words and the key; the key grows by Weyl constants.
    for (int round = 0; round < 10; ++round) {
      const uint64_t left = uint64_t{0xD2511F53} * a, right = uint64_t{0xCD9E8D57} * c;
      a = static_cast<uint32_t>(right >> 32) ^ b ^ k0;
      b = static_cast<uint32_t>(right);
      c = static_cast<uint32_t>(left >> 32) ^ d ^ k1;
      d = static_cast<uint32_t>(left);
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
  }

  // Computes the words of `blocks` blocks, a multiple of eight, on the CPU (philox.cpp).
  void fill(uint32_t first, int64_t blocks, uint32_t* words) const;

 private:
  uint32_t key_[2], stream_[3];
  uint32_t words_[4] = {};
  uint32_t block_ = 0, used_ = 4;
};

}  // namespace ndd
