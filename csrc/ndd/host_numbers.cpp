// SPDX-License-Identifier: Apache-2.0
#include "ndd/host_numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ndd/error.h"
#include "ndd/python_interface.h"

namespace ndd {
namespace {

// Halves are rounded away from zero and the result is limited to 32 bits, as `cast` does. NaN becomes the smallest number, which no argument takes.
template <class T>
void round_numbers(const T* from, int64_t count, int64_t* to) {
  for (int64_t k = 0; k < count; ++k) {
    const auto x = static_cast<double>(from[k]);
    if (std::isnan(x)) {
      to[k] = std::numeric_limits<int64_t>::min();
      continue;
    }
    const double limited = std::clamp(x, -2147483648.0, 2147483647.0);
    to[k] = static_cast<int64_t>(std::copysign(std::floor(std::abs(limited) + 0.5), limited));
  }
}

}  // namespace

void check_table(std::string_view op, const char* name, const Tensor& table, DType dtype, int64_t count) {
  if (table.dtype() != dtype) fail(Error::Type, op, ": ", name, " must have numbers of another type");
  if (table.is_cuda() || !table.is_contiguous() || table.numel() < count)
    fail(Error::Value, op, ": ", name, " must have ", count, " numbers, contiguous and on the CPU, got ", table.numel());
}

}  // namespace ndd

// Fills `to` with the nearest integers of `count` contiguous numbers; false if they are neither float32 nor float64.
NDD_EXPORT(keep, bool, ndd_round_numbers, (const void* from, int64_t dtype, int64_t count, int64_t* to)) {
  const auto type = static_cast<ndd::DType>(dtype);
  if (type == ndd::DType::float32) ndd::round_numbers(static_cast<const float*>(from), count, to);
  else if (type == ndd::DType::float64) ndd::round_numbers(static_cast<const double*>(from), count, to);
  else return false;
  return true;
}

// Whether one of `count` numbers is 0, as the extents of an empty sample are.
NDD_EXPORT(keep, bool, ndd_has_zero, (const int64_t* numbers, int64_t count)) { return std::find(numbers, numbers + count, 0) != numbers + count; }
