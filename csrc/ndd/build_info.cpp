// SPDX-License-Identifier: Apache-2.0
// How this library was built and which instruction set it uses on this machine, for torch_ndd.doctor().
#include <string>

#include "decoders/jpeg/libjpeg.h"
#include "ndd/python_interface.h"
#include "ndd/simd.h"

#ifndef NDD_CUDA_ARCHS
#define NDD_CUDA_ARCHS ""
#endif

namespace {

const char* name_of([[maybe_unused]] ndd::Isa isa) {
#if defined(__x86_64__)
  static const char* const names[] = {"SSE2, the x86-64 baseline", "AVX2", "AVX-512"};
  return names[static_cast<int>(isa)];
#elif defined(__aarch64__)
  return "NEON";
#else
  return "none";
#endif
}

}  // namespace

// The instruction set that the vector loops require and this CPU lacks, or null.
NDD_EXPORT(keep, const char*, ndd_missing_instructions, ()) { return ndd::cpu_isa() > ndd::isa_of_this_cpu() ? name_of(ndd::cpu_isa()) : nullptr; }

// One line per property: name, space, value.
NDD_EXPORT(keep, const char*, ndd_build_info, ()) {
  static const std::string text = [] {
    std::string lines = "compiler " __VERSION__ "\n";
    lines += "cuda_architectures " NDD_CUDA_ARCHS "\n";
    lines += std::string("jpeg ") + ndd::libjpeg_version() + "\n";
#if defined(__SANITIZE_ADDRESS__)
    lines += "sanitizer address\n";
#elif defined(__SANITIZE_THREAD__)
    lines += "sanitizer thread\n";
#else
    lines += "sanitizer none\n";
#endif
    lines += std::string("simd ") + name_of(ndd::cpu_isa()) + "\n";
    return lines;
  }();
  return text.c_str();
}
