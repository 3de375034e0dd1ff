// SPDX-License-Identifier: Apache-2.0
// The extents and source regions of resized samples, from the arguments of resize. torch_ndd/ops/geometry/_resize_plan.py computes the same on columns,
// for graphs and for equal samples, explains each step, and raises the errors; with NumPy, 16 samples take it 150 us.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ndd/python_interface.h"
#include "ops/geometry/axis_numbers.h"

namespace ndd {
namespace {

// In Python five `AxisNumbers`.
struct ResizeAxis {
  AxisNumbers wanted, limit, start, end, alignment;  // `wanted` is relative if it is a scale; a `limit` of 0 is none
};

NDD_ENUM("resize.Mode", Mode, int64_t, default_mode = 0, stretch = 1, not_larger = 2, not_smaller = 3);
NDD_ENUM("resize.SizeRounding", SizeRounding, int64_t, round = 0, truncate = 1, ceil = 2);

constexpr int kMaxAxes = 8;
using PerAxis = std::array<double, kMaxAxes>;

struct Options {
  Mode mode;
  SizeRounding rounding;
  bool has_region, relative_region, subpixel;
};

double ratio(double a, double b) { return single(a / (b == 0 ? 1.0 : b)); }

double round_extent(double x, SizeRounding rounding) {
  if (rounding == SizeRounding::ceil) return std::ceil(x);
  return std::floor(rounding == SizeRounding::truncate ? x : x + 0.5);
}

// The real-valued size of each axis, negative where mirrored, with missing ones filled in; `taken` are the extents of the source region.
void fill_in(const PerAxis& wanted, const PerAxis& taken, const PerAxis& limit, int axes, Mode mode, PerAxis& real) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  bool any = false;
  PerAxis scale;
  for (int k = 0; k < axes; ++k) {
    scale[k] = ratio(std::abs(wanted[k]), taken[k]);
    any = any || wanted[k] != 0;
  }
  if (!any) {
    real = taken;
    return;
  }
  if (mode == Mode::default_mode || mode == Mode::stretch) {
    // In the default mode, missing sizes get the geometric mean of the known scales; with `stretch` they keep their extents.
    double other = 1.0, count = 0.0;
    for (int k = 0; k < axes && mode == Mode::default_mode; ++k) {
      if (wanted[k] == 0) continue;
      other *= scale[k];
      count += 1.0;
    }
    if (mode == Mode::default_mode) other = single(std::pow(other, 1.0 / (count == 0 ? 1.0 : count)));
    for (int k = 0; k < axes; ++k) real[k] = std::min(wanted[k] != 0 ? std::abs(wanted[k]) : single(taken[k] * other), limit[k]);
  } else {
    // One scale for all axes: the smallest or the largest one wanted.
    const bool smallest = mode == Mode::not_larger;
    const double unset = smallest ? infinity : 0.0;
    double factor = unset;
    for (int k = 0; k < axes; ++k)
      if (wanted[k] != 0 && (smallest ? scale[k] < factor : scale[k] > factor)) factor = scale[k];
    if (factor == unset) factor = 1.0;
    for (int k = 0; k < axes; ++k) factor = std::min(factor, ratio(limit[k], taken[k]));
    for (int k = 0; k < axes; ++k) real[k] = wanted[k] != 0 && scale[k] == factor ? std::abs(wanted[k]) : single(taken[k] * factor);
  }
  for (int k = 0; k < axes; ++k) real[k] = wanted[k] < 0 ? -real[k] : real[k];
}

// Writes the extents, starts and ends of sample i; those of successive axes are `stride` apart. Returns false if an argument is wrong.
bool plan_sample(const ResizeAxis* axis, int axes, const Options& options, const int64_t* lengths, int64_t i, int64_t stride, int64_t* extents,
                 double* bounds) {
  PerAxis wanted, taken, limit, real, start, end;
  for (int k = 0; k < axes; ++k) {
    const auto length = static_cast<double>(lengths[k]);
    wanted[k] = axis[k].wanted(i);
    const double most = axis[k].limit(i);
    limit[k] = most > 0 ? most : std::numeric_limits<double>::infinity();
    start[k] = 0.0;
    end[k] = length;
    if (options.has_region) {
      start[k] = axis[k].start(i);
      end[k] = axis[k].end(i);
      if (!std::isfinite(start[k]) || !std::isfinite(end[k])) return false;
      if (options.relative_region) {
        start[k] *= length;
        end[k] *= length;
      }
      // An empty region would have a scale of 0 / 0.
      const double middle = (start[k] + end[k]) / 2;
      if (std::abs(end[k] - start[k]) < 1e-3) {
        start[k] = middle - 5e-4;
        end[k] = middle + 5e-4;
      }
    }
    taken[k] = std::abs(end[k] - start[k]);
    // Empty samples are left to Python.
    if (length == 0 || !std::isfinite(wanted[k]) || !std::isfinite(most)) return false;
    if (axis[k].wanted.relative) wanted[k] = single(length * wanted[k]);
  }
  fill_in(wanted, taken, limit, axes, options.mode, real);
  for (int k = 0; k < axes; ++k) {
    const double rounded = std::max(round_extent(std::abs(real[k]), options.rounding), 1.0);
    if (!(rounded < 2147483648.0)) return false;
    if (real[k] < 0) std::swap(start[k], end[k]);
    // The region grows or shrinks with the rounding of the extent, about the aligned point, so the scale stays exact.
    if (options.subpixel) {
      const double at = axis[k].alignment(i), by = rounded / (real[k] == 0 ? 1.0 : std::abs(real[k]));
      if (!std::isfinite(at)) return false;
      const double middle = (1 - at) * start[k] + at * end[k];
      start[k] = middle + (start[k] - middle) * by;
      end[k] = middle + (end[k] - middle) * by;
    }
    extents[k * stride] = static_cast<int64_t>(rounded);
    bounds[k * stride] = start[k];
    bounds[(axes + k) * stride] = end[k];
  }
  return true;
}

}  // namespace
}  // namespace ndd

// Fills `extents`, int64 (axes, samples), and `bounds`, float64 (2 * axes, samples): starts, then ends. `lengths` are the extents of the samples, as
// AxisNumbers. Returns false if an argument is wrong, or if a sample is empty.
NDD_EXPORT(keep, bool, ndd_resize_sizes,
           (const void* lengths, const void* arguments, int64_t axes, int64_t samples, int64_t mode, int64_t rounding, bool has_region,
            bool relative_region, bool subpixel, int64_t* extents, double* bounds)) {
  if (axes > ndd::kMaxAxes) return false;
  const auto* length = static_cast<const ndd::AxisNumbers*>(lengths);
  const ndd::Options options{static_cast<ndd::Mode>(mode), static_cast<ndd::SizeRounding>(rounding), has_region, relative_region, subpixel};
  std::array<int64_t, ndd::kMaxAxes> sample_lengths;
  for (int64_t i = 0; i < samples; ++i) {
    for (int64_t k = 0; k < axes; ++k) sample_lengths[k] = static_cast<int64_t>(length[k](i));
    if (!ndd::plan_sample(static_cast<const ndd::ResizeAxis*>(arguments), static_cast<int>(axes), options, sample_lengths.data(), i, samples,
                          extents + i, bounds + i))
      return false;
  }
  return true;
}

// The same in the form that the kernel takes: `regions`, float32 (samples, 2 * axes), and `shapes`, int64 (samples, ndim), in which it replaces the
// extents of the axes from `first` on.
NDD_EXPORT(keep, bool, ndd_resize_regions,
           (const void* arguments, int64_t axes, int64_t samples, int64_t mode, int64_t rounding, bool has_region, bool relative_region,
            bool subpixel, int64_t first, int64_t ndim, int64_t* shapes, float* regions)) {
  if (axes > ndd::kMaxAxes) return false;
  const ndd::Options options{static_cast<ndd::Mode>(mode), static_cast<ndd::SizeRounding>(rounding), has_region, relative_region, subpixel};
  std::array<int64_t, ndd::kMaxAxes> extents;
  std::array<double, 2 * ndd::kMaxAxes> bounds;
  for (int64_t i = 0; i < samples; ++i, shapes += ndim, regions += 2 * axes) {
    if (!ndd::plan_sample(static_cast<const ndd::ResizeAxis*>(arguments), static_cast<int>(axes), options, shapes + first, i, 1, extents.data(),
                          bounds.data()))
      return false;
    std::copy_n(extents.data(), axes, shapes + first);
    std::copy_n(bounds.data(), 2 * axes, regions);
  }
  return true;
}
