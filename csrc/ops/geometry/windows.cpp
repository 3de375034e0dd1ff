// SPDX-License-Identifier: Apache-2.0
// The windows that crop and slice cut out of every sample, from their arguments. torch_ndd/ops/geometry/_crop_window.py and slice.py compute the same on
// columns, for graphs, and raise the errors; with a torch operation for each step, 16 windows take them 200 us.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ndd/derive.h"
#include "ndd/python_interface.h"
#include "ops/geometry/axis_numbers.h"
#include "ops/geometry/crop_axis.h"

namespace ndd {
namespace {

struct Axis {
  int64_t dimension;  // of the sample
  AxisNumbers begin, end;  // of a crop its relative position and its size; of a slice its start, and its end or extent
};

NDD_ENUM("window.Kind", Kind, int64_t, crop = 0, slice_end = 1, slice_shape = 2);
NDD_ENUM("window.Policy", Policy, int64_t, error = 0, pad = 1, trim_to_shape = 2);
bool find_slice(const AxisNumbers& begin, const AxisNumbers& end, int64_t i, int64_t length, bool is_shape, int64_t& at, int64_t& size) {
  constexpr double kMax = 9007199254740992.0;  // 2^53
  const double from = begin(i), to = end(i);
  if (!(std::abs(from) < kMax && std::abs(to) < kMax)) return false;
  const double first = begin.times(from, length);
  double last = end.times(to, length);
  if (is_shape && !(last >= 0)) return false;
  if (is_shape) {
    // DALI adds a relative start and a relative shape in double.
    const bool is_double = begin.is_relative() && end.is_relative();
    last = is_double ? from * static_cast<double>(length) + to * static_cast<double>(length) : first + last;
  }
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

// Fills the starts of the windows, int64 (samples, ndim), and their extents. Options: the kind, the number of axes, the policy and the rounding.
NDD_DERIVE(ndd_windows) {
  const auto* axes = static_cast<const ndd::Axis*>(arguments);
  const auto kind = static_cast<ndd::Kind>(options[0]);
  const auto policy = static_cast<ndd::Policy>(options[2]);
  const auto rounding = static_cast<ndd::Rounding>(options[3]);
  auto* starts = static_cast<int64_t*>(first);
  for (int64_t i = 0; i < samples; ++i, extents += stride, starts += ndim, shapes += ndim) {
    std::fill_n(starts, ndim, 0);
    std::copy_n(extents, ndim, shapes);
    for (const ndd::Axis* axis = axes; axis < axes + options[1]; ++axis) {
      const int64_t length = extents[axis->dimension];
      int64_t &at = starts[axis->dimension], &size = shapes[axis->dimension];
      const bool found = kind == ndd::Kind::crop ? ndd::find_crop(axis->begin, axis->end, i, length, rounding, at, size)
                                                 : ndd::find_slice(axis->begin, axis->end, i, length, kind == ndd::Kind::slice_shape, at, size);
      if (!found || !ndd::limit_window(policy, length, at, size)) return false;
    }
  }
  return true;
}
