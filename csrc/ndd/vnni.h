// SPDX-License-Identifier: Apache-2.0
// Multiply-adds into 32-bit sums by one instruction (VNNI), which CPUs since Ice Lake and Zen 4 have beside AVX-512.
#pragma once
#include "ndd/simd.h"

#if defined(__x86_64__)

#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // raised inside gcc 12's own AVX-512 header
#pragma GCC diagnostic ignored "-Wuninitialized"
#define NDD_VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))) inline

namespace ndd {

inline bool has_vnni() {
  static const bool has = isa_of_this_cpu() == Isa::avx512 && __builtin_cpu_supports("avx512vnni");
  return has && cpu_isa() == Isa::avx512;
}

}  // namespace ndd

#endif
