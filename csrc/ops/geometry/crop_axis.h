// SPDX-License-Identifier: Apache-2.0
// A crop along one axis of a sample, from its size and its relative position.
#pragma once

#include <cmath>
#include <cstdint>

#include "ndd/python_interface.h"
#include "ops/geometry/axis_numbers.h"

namespace ndd {

NDD_ENUM("window.Rounding", Rounding, int64_t, round = 0, truncate = 1, half_to_even = 2);

// Halves away from zero, unlike std::nearbyint().
inline double round_away(double x) { return std::copysign(std::floor(std::abs(x) + 0.5), x); }

// Sets where the window of sample i begins, and its size, which is that of the sample if less than 1 is wanted; false if an argument is wrong.
inline bool find_crop(const AxisNumbers& positions, const AxisNumbers& sizes, int64_t i, int64_t length, Rounding rounding, int64_t& at,
                      int64_t& size) {
  const double position = positions(i), wanted = sizes(i);
  if (!(std::abs(wanted) < 2147483648.0) || !(position >= 0 && position <= 1)) return false;
  size = wanted >= 1 ? static_cast<int64_t>(wanted) : length;
  const double room = position * static_cast<double>(length - size);
  at = static_cast<int64_t>(rounding == Rounding::round      ? round_away(room)
                            : rounding == Rounding::truncate ? std::trunc(room)
                                                             : std::nearbyint(room));
  return true;
}

}  // namespace ndd
