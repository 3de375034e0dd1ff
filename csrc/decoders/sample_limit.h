// SPDX-License-Identifier: Apache-2.0
// The limit on the memory that a file may request, with the messages of torch_ndd/_core/process/limits.py.
#pragma once

#include <cstdint>
#include <string>

#include "ndd/error.h"
#include "ndd/stream/host_memory.h"

namespace ndd {

inline void check_sample(const std::string& what, double bytes, int64_t max) {
  if (bytes > static_cast<double>(max)) {
    fail(what, " ", static_cast<uint64_t>(bytes), " bytes, more than max_sample_bytes=", max,
         ", the guard against small files that promise a lot of data; pass a larger max_sample_bytes, or set TORCH_NDD_MAX_SAMPLE_BYTES");
  }
  check_host_memory(static_cast<size_t>(bytes));
}

}  // namespace ndd
