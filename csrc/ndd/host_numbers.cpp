// SPDX-License-Identifier: Apache-2.0
#include "ndd/host_numbers.h"

#include "ndd/error.h"

namespace ndd {

void check_table(std::string_view op, const char* name, const Tensor& table, DType dtype, int64_t count) {
  if (table.dtype() != dtype) fail(Error::Type, op, ": ", name, " must have numbers of another type");
  if (table.is_cuda() || !table.is_contiguous() || table.numel() < count)
    fail(Error::Value, op, ": ", name, " must have ", count, " numbers, contiguous and on the CPU, got ", table.numel());
}

}  // namespace ndd
