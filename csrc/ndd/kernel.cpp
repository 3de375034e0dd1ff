// SPDX-License-Identifier: Apache-2.0
#include "ndd/kernel.h"

namespace ndd::detail {

static std::string& records() {
  static std::string text;
  return text;
}

void record_kernel(const char* op, const char* backend, const std::string& types) {
  records() += std::string(op) + ' ' + backend + ' ' + types + '\n';
}

}  // namespace ndd::detail

// One line a kernel: name, backend, types of the parameters. Read through ctypes at import.
extern "C" __attribute__((visibility("default"))) const char* ndd_kernels() { return ndd::detail::records().c_str(); }
