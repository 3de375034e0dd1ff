// SPDX-License-Identifier: Apache-2.0
// 256-byte tables held in registers (AVX-512 VBMI): two permutes look up 64 levels in each half of the table, and the highest bit of the level
// selects the half. A VGA image takes 20 us, 250 us entry by entry.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>

#include "ndd/simd.h"

#define NDD_LUT_AVX2 __attribute__((target("avx2")))
#define NDD_VBMI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))

namespace ndd {

inline bool has_vbmi() {
  static const bool has = __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  return has;
}

struct TableRegisters {
  __m512i part[4];
};

NDD_VBMI inline TableRegisters table_in_registers(const uint8_t* table) {
  TableRegisters r;
  for (int k = 0; k < 4; ++k) r.part[k] = _mm512_loadu_si512(table + 64 * k);
  return r;
}

NDD_VBMI inline __m512i look_up(const TableRegisters& table, __m512i levels) {
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(levels), _mm512_permutex2var_epi8(table.part[0], levels, table.part[1]),
                                _mm512_permutex2var_epi8(table.part[2], levels, table.part[3]));
}

// The same with AVX2, whose shuffle looks up only 16 entries and yields 0 where the highest bit of the index is set. Subtracting 16 k from a level
// makes it negative for the tables beyond the level's own. Each 16-entry table therefore stores the difference from the table before it, so all
// tables up to the level's own add up to its entry. A VGA image takes 60 us, 300 entry by entry.
struct TableOfHalves {
  __m256i part[16];
};

NDD_LUT_AVX2 inline TableOfHalves table_in_halves(const uint8_t* table) {
  TableOfHalves halves;
  for (int k = 0; k < 16; ++k) {
    const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table + 16 * k));
    const __m128i before = k % 8 == 0 ? _mm_setzero_si128() : _mm_loadu_si128(reinterpret_cast<const __m128i*>(table + 16 * (k - 1)));
    halves.part[k] = _mm256_broadcastsi128_si256(_mm_xor_si128(entries, before));
  }
  return halves;
}

// Two registers at a time, to share the loads of the table.
NDD_LUT_AVX2 inline void look_up(const TableOfHalves& table, __m256i (&levels)[2]) {
  const __m256i step = _mm256_set1_epi8(16), top = _mm256_set1_epi8(-128);
  __m256i dark[2] = {levels[0], levels[1]}, bright[2] = {_mm256_xor_si256(levels[0], top), _mm256_xor_si256(levels[1], top)};
  __m256i entries[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
#pragma GCC unroll 8
  for (int k = 0; k < 8; ++k) {
    for (int v = 0; v < 2; ++v) {
      entries[v] = _mm256_xor_si256(entries[v],
                                    _mm256_xor_si256(_mm256_shuffle_epi8(table.part[k], dark[v]), _mm256_shuffle_epi8(table.part[8 + k], bright[v])));
      dark[v] = _mm256_subs_epi8(dark[v], step);
      bright[v] = _mm256_subs_epi8(bright[v], step);
    }
  }
  levels[0] = entries[0];
  levels[1] = entries[1];
}

// A mask of the first `count` of 64 bytes.
inline uint64_t first_bytes(int64_t count) { return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1; }

}  // namespace ndd
#endif
