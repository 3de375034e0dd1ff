// SPDX-License-Identifier: Apache-2.0
// Numbers for every sample of a batch, as torch_ndd/ops/geometry/_axis_numbers.py passes them to code that computes windows and sizes.
#pragma once

#include <cmath>
#include <cstdint>

#include "ndd/dtypes.h"
#include "ndd/python_interface.h"

namespace ndd {

// Products and scales are floats in DALI: 0.7 of 10 pixels is then 7, and where a size lies halfway the rounding decides between two extents.
inline double single(double x) { return static_cast<double>(static_cast<float>(x)); }

// Whether a number is relative to an extent, and how their product is rounded.
NDD_ENUM("axis.Relative", Relative, int64_t, no = 0, in_double = 1, in_float = 2);

// An argument for one axis: a number for every sample, or one for all. In Python `struct.pack("Pqqdq", ...)`.
struct AxisNumbers {
  const void* data;  // null: `value` for all samples
  int64_t dtype, stride;  // the stride in elements
  double value;
  Relative relative;

  bool is_relative() const { return relative != Relative::no; }
  // Returns the number of elements that `x` is of an extent.
  double times(double x, int64_t length) const {
    const auto extent = static_cast<double>(length);
    return relative == Relative::in_float ? single(x * single(extent)) : is_relative() ? x * extent : x;
  }
  // Floating-point arguments are float32 in DALI: 0.3 of 5 pixels is then more than a half.
  double operator()(int64_t i) const {
    if (data == nullptr) return value;
    switch (static_cast<DType>(dtype)) {
      case DType::float32: return static_cast<double>(static_cast<const float*>(data)[i * stride]);
      case DType::float64: return single(static_cast<const double*>(data)[i * stride]);
      case DType::int32: return static_cast<double>(static_cast<const int32_t*>(data)[i * stride]);
      case DType::int64: return static_cast<double>(static_cast<const int64_t*>(data)[i * stride]);
      case DType::uint8:
      case DType::boolean: return static_cast<double>(static_cast<const uint8_t*>(data)[i * stride]);
      default: return NAN;  // refused, as any other number that is not finite
    }
  }
};

}  // namespace ndd
