// SPDX-License-Identifier: Apache-2.0
// One source for every instruction set: with_simd(f) runs f compiled for the widest one that this CPU supports. The command line asks for the
// baseline only, so the library runs on any x86-64; on other processors the baseline is all there is (on aarch64 it includes NEON).
//
// f must be a lambda marked NDD_ALWAYS_INLINE that copies captured pointers into __restrict locals: gcc does not vectorize loops through the closure.
// Functions that it calls are compiled for the wider set only if they are inlined, too.
#pragma once

#include <utility>

#define NDD_ALWAYS_INLINE __attribute__((always_inline))

namespace ndd {

enum class Isa { base, avx2, avx512 };

// avx2 (256-bit vectors) suffices for memory-bound loops; AVX-512 pays off for arithmetic on bytes.
inline Isa isa_of_this_cpu() {
#if defined(__x86_64__)
  static const Isa isa = [] {
    __builtin_cpu_init();
    // The targets below name more extensions: CPUs with these have f16c and bmi2, too.
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) return Isa::avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::avx2;
    return Isa::base;
  }();
  return isa;
#else
  return Isa::base;
#endif
}

// NDD_ONLY_ISA: compile for this instruction set only (TORCH_NDD_SIMD=native in CMakeLists.txt), which takes five sixths of the build time. native.py
// checks that the CPU supports it.
#if defined(NDD_ONLY_ISA)
constexpr Isa cpu_isa() { return Isa::NDD_ONLY_ISA; }
#else
inline Isa cpu_isa() { return isa_of_this_cpu(); }
#endif

namespace detail {

#if defined(__x86_64__)
// The attribute applies to what is inlined into the function: the closure and what it calls.
template <class F>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2"))) void run_avx512(F&& f) {
  f();
}

template <class F>
__attribute__((target("avx2,fma,f16c,bmi2"))) void run_avx2(F&& f) {
  f();
}
#endif

}  // namespace detail

template <class F>
inline void with_simd(F&& f) {
#if defined(NDD_ONLY_ISA)
  if constexpr (cpu_isa() == Isa::avx512) {
    detail::run_avx512(std::forward<F>(f));
  } else if constexpr (cpu_isa() == Isa::avx2) {
    detail::run_avx2(std::forward<F>(f));
  } else {
    f();
  }
#elif defined(__x86_64__)
  switch (cpu_isa()) {
    case Isa::avx512: return detail::run_avx512(std::forward<F>(f));
    case Isa::avx2: return detail::run_avx2(std::forward<F>(f));
    case Isa::base: return f();
  }
#else
  f();
#endif
}

}  // namespace ndd
