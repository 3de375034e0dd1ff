// SPDX-License-Identifier: Apache-2.0
// The windows that crop and slice cut out of every sample, from their arguments. torch_ndd/ops/geometry/_crop_window.py and slice.py compute the same on
// columns, for graphs, and raise the errors; with a torch operation for each step, 16 windows take them 200 us.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ndd/python_interface.h"
#include "ops/geometry/axis_numbers.h"

namespace ndd {
namespace {

struct Axis {
  int64_t dimension;  // of the sample
  AxisNumbers begin, end;
};

NDD_ENUM("window.Kind", Kind, int64_t, crop = 0, slice_end = 1, slice_shape = 2);
NDD_ENUM("window.Policy", Policy, int64_t, error = 0, pad = 1, trim_to_shape = 2);
NDD_ENUM("window.Rounding", Rounding, int64_t, round = 0, truncate = 1, half_to_even = 2);

// Halves away from zero, unlike std::nearbyint().
double round_away(double x) { return std::copysign(std::floor(std::abs(x) + 0.5), x); }

// Sets where a window of relative position begins, and its size; false if an argument is wrong.
bool find_crop(const Axis& axis, int64_t i, int64_t length, Rounding rounding, int64_t& at, int64_t& size) {
  const double position = axis.begin(i), wanted = axis.end(i);
  if (!(std::abs(wanted) < 2147483648.0) || !(position >= 0 && position <= 1)) return false;
  size = wanted > 0 ? static_cast<int64_t>(wanted) : length;
  const double room = position * static_cast<double>(length - size);
  at = static_cast<int64_t>(rounding == Rounding::round      ? round_away(room)
                            : rounding == Rounding::truncate ? std::trunc(room)
                                                             : std::nearbyint(room));
  return true;
}

bool find_slice(const Axis& axis, int64_t i, int64_t length, bool is_shape, int64_t& at, int64_t& size) {
  constexpr double kMax = 9007199254740992.0;  // 2^53
  double first = axis.begin(i), last = axis.end(i);
  if (!(std::abs(first) < kMax && std::abs(last) < kMax)) return false;
  if (axis.begin.relative) first *= static_cast<double>(length);
  if (axis.end.relative) last *= static_cast<double>(length);
  if (is_shape && !(last >= 0)) return false;
  if (is_shape) last += first;
  // Relative numbers times an extent may be any.
  if (!(std::abs(first) < kMax && std::abs(last) < kMax)) return false;
  at = static_cast<int64_t>(round_away(first));
  size = static_cast<int64_t>(round_away(last)) - at;
  return size >= 0;
}

// Applies the policy for windows that leave the sample; false for an error.
bool limit_window(Policy policy, int64_t length, int64_t& at, int64_t& size) {
  if (policy == Policy::error) return at >= 0 && at + size <= length;
  if (policy == Policy::trim_to_shape) {
    // A window that lies completely outside becomes an empty one at the border.
    const int64_t last = std::min(at + size, length);
    at = std::min(std::max<int64_t>(at, 0), length);
    size = std::max<int64_t>(last - at, 0);
  }
  return true;
}

}  // namespace
}  // namespace ndd

// Fills `starts` and `sizes`, int64 (samples, ndim). `extents` has rows of `ndim` numbers, `extent_stride` apart. Returns whether all windows are valid.
NDD_EXPORT(keep, bool, ndd_windows,
           (int64_t kind, const int64_t* extents, int64_t extent_stride, int64_t samples, int64_t ndim, const void* axes, int64_t axis_count,
            int64_t policy, int64_t rounding, int64_t* starts, int64_t* sizes)) {
  const auto* table = static_cast<const ndd::Axis*>(axes);
  for (int64_t i = 0; i < samples; ++i, extents += extent_stride, starts += ndim, sizes += ndim) {
    std::fill_n(starts, ndim, 0);
    std::copy_n(extents, ndim, sizes);
    for (int64_t k = 0; k < axis_count; ++k) {
      const ndd::Axis& axis = table[k];
      const int64_t length = extents[axis.dimension];
      int64_t &at = starts[axis.dimension], &size = sizes[axis.dimension];
      const auto which = static_cast<ndd::Kind>(kind);
      const bool found = which == ndd::Kind::crop ? find_crop(axis, i, length, static_cast<ndd::Rounding>(rounding), at, size)
                                                  : find_slice(axis, i, length, which == ndd::Kind::slice_shape, at, size);
      if (!found || !limit_window(static_cast<ndd::Policy>(policy), length, at, size)) return false;
    }
  }
  return true;
}
