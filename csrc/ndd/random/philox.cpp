// SPDX-License-Identifier: Apache-2.0
// Philox on the CPU: rows of words for random operators, and the few words that torch_ndd.random.RNG draws (20 times faster than in Python).
#include "ndd/random/philox.h"

#include "ndd/python_interface.h"
#include "ndd/simd.h"
#if defined(__x86_64__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // raised inside gcc 12's own AVX-512 header
#include <immintrin.h>
#endif

namespace ndd {
namespace {

#if defined(__x86_64__)
// One block per 64-bit lane: the multiplication reads the lower half, so no shuffles are needed until the end. gcc's automatic vectorization
// is four times slower. Unpacking moves even lanes before odd ones, so the counters are assigned in that order.
// Only the block number differs between lanes; key and stream are broadcast.
__attribute__((target("avx512f"))) void fill_avx512(const uint32_t* key, const uint32_t* stream, uint32_t first, int64_t blocks, uint32_t* words) {
  const __m512i order = _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0);
  const __m512i low = _mm512_set1_epi64(0xFFFFFFFF), left_factor = _mm512_set1_epi64(0xD2511F53), right_factor = _mm512_set1_epi64(0xCD9E8D57);
  for (int64_t k = 0; k < blocks; k += 8, words += 32) {
    __m512i a = _mm512_add_epi32(_mm512_set1_epi64(first + static_cast<uint32_t>(k)), order);
    __m512i b = _mm512_set1_epi64(stream[0]), c = _mm512_set1_epi64(stream[1]), d = _mm512_set1_epi64(stream[2]);
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
      const __m512i left = _mm512_mul_epu32(a, left_factor), right = _mm512_mul_epu32(c, right_factor);
      // 0x96 is the truth table of a xor b xor c.
      a = _mm512_ternarylogic_epi64(_mm512_srli_epi64(right, 32), b, _mm512_set1_epi64(k0), 0x96);
      c = _mm512_ternarylogic_epi64(_mm512_srli_epi64(left, 32), d, _mm512_set1_epi64(k1), 0x96);
      b = right;
      d = left;
    }
    // Words a and b of each block side by side, then c and d; unpacking interleaves them to whole blocks.
    const __m512i ab = _mm512_or_si512(_mm512_and_si512(a, low), _mm512_slli_epi64(b, 32));
    const __m512i cd = _mm512_or_si512(_mm512_and_si512(c, low), _mm512_slli_epi64(d, 32));
    _mm512_storeu_si512(words, _mm512_unpacklo_epi64(ab, cd));
    _mm512_storeu_si512(words + 16, _mm512_unpackhi_epi64(ab, cd));
  }
}

__attribute__((target("avx2"))) void fill_avx2(const uint32_t* key, const uint32_t* stream, uint32_t first, int64_t blocks, uint32_t* words) {
  const __m256i order = _mm256_set_epi64x(3, 1, 2, 0);
  const __m256i low = _mm256_set1_epi64x(0xFFFFFFFF), left_factor = _mm256_set1_epi64x(0xD2511F53), right_factor = _mm256_set1_epi64x(0xCD9E8D57);
  for (int64_t k = 0; k < blocks; k += 4, words += 16) {
    __m256i a = _mm256_add_epi32(_mm256_set1_epi64x(first + static_cast<uint32_t>(k)), order);
    __m256i b = _mm256_set1_epi64x(stream[0]), c = _mm256_set1_epi64x(stream[1]), d = _mm256_set1_epi64x(stream[2]);
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
      const __m256i left = _mm256_mul_epu32(a, left_factor), right = _mm256_mul_epu32(c, right_factor);
      a = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(right, 32), b), _mm256_set1_epi64x(k0));
      c = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(left, 32), d), _mm256_set1_epi64x(k1));
      b = right;
      d = left;
    }
    const __m256i ab = _mm256_or_si256(_mm256_and_si256(a, low), _mm256_slli_epi64(b, 32));
    const __m256i cd = _mm256_or_si256(_mm256_and_si256(c, low), _mm256_slli_epi64(d, 32));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), _mm256_unpacklo_epi64(ab, cd));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + 8), _mm256_unpackhi_epi64(ab, cd));
  }
}
#endif

}  // namespace

void Philox::fill(uint32_t first, int64_t blocks, uint32_t* words) const {
#if defined(__x86_64__)
  if (cpu_isa() == Isa::avx512) return fill_avx512(key_, stream_, first, blocks, words);
  if (cpu_isa() == Isa::avx2) return fill_avx2(key_, stream_, first, blocks, words);
#endif
  for (int64_t k = 0; k < blocks; ++k, words += 4) {
    uint32_t block[4];
    compute(first + static_cast<uint32_t>(k), block);
    for (int w = 0; w < 4; ++w) words[w] = block[w];
  }
}

}  // namespace ndd

// `count` words, starting `phase` words after the start of a block. The block number has 128 bits; `sequence` is the upper half.
// For random.RNG, which computes its words in Python's thread.
NDD_EXPORT(keep, void, ndd_philox, (uint64_t key, uint64_t sequence, uint64_t counter, int64_t phase, int64_t count, int64_t* out)) {
  const auto low = [](uint64_t v) { return static_cast<uint32_t>(v); };
  const auto high = [](uint64_t v) { return static_cast<uint32_t>(v >> 32); };
  for (int64_t i = 0; i < count; phase = 0) {
    uint32_t words[4];
    ndd::Philox(low(key), high(key), high(counter), low(sequence), high(sequence)).compute(low(counter), words);
    for (; phase < 4 && i < count; ++phase) out[i++] = words[phase];
    // Carries into the upper half.
    if (++counter == 0) ++sequence;
  }
}
