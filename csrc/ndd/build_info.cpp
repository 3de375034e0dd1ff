// SPDX-License-Identifier: Apache-2.0
// How this library was built and which instructions it uses here, for torch_ndd.doctor().
#include <string>

#include "decoders/jpeg/libjpeg.h"
#include "ndd/simd.h"

#ifndef NDD_CUDA_ARCHS
#define NDD_CUDA_ARCHS ""
#endif

// One line each: name, a space, value.
extern "C" __attribute__((visibility("default"))) const char* ndd_build_info() {
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
#if defined(__x86_64__)
    static const char* const names[] = {"SSE2, the x86-64 baseline", "AVX2", "AVX-512"};
    lines += std::string("simd ") + names[static_cast<int>(ndd::cpu_isa())] + "\n";
#elif defined(__aarch64__)
    lines += "simd NEON\n";
#else
    lines += "simd none\n";
#endif
    return lines;
  }();
  return text.c_str();
}
