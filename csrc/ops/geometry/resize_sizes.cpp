// SPDX-License-Identifier: Apache-2.0
// The extents and source regions of resized samples, from the arguments of resize. torch_ndd/ops/geometry/_resize_plan.py computes the same on columns,
// for graphs and for equal samples, explains each step, and raises the errors; with NumPy, 16 samples take it 150 us.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "ndd/derive.h"
#include "ndd/python_interface.h"
#include "ops/geometry/axis_numbers.h"
#include "ops/geometry/crop_axis.h"

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

struct Planned {
  std::array<int64_t, kMaxAxes> extents;
  std::array<double, 2 * kMaxAxes> bounds;
};

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
    if (axis[k].wanted.is_relative()) wanted[k] = single(length * wanted[k]);
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

// The arguments of a derivation.
struct Call {
  const ResizeAxis* axis;
  int axes, first;
  Options options;
  const int64_t* more;  // further options

  Call(const void* arguments, const int64_t* o)
      : axis(static_cast<const ResizeAxis*>(arguments)), axes(static_cast<int>(o[0])), first(static_cast<int>(o[1])),
        options{static_cast<Mode>(o[2]), static_cast<SizeRounding>(o[3]), o[4] != 0, o[5] != 0, o[6] != 0}, more(o + 7) {}
  bool plan(const int64_t* extents, int64_t i, Planned& planned) const {
    return axes <= kMaxAxes && plan_sample(axis, axes, options, extents + first, i, 1, planned.extents.data(), planned.bounds.data());
  }
};

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

// The same in the form that the kernel takes: fills the source regions, float32 (samples, 2 * axes), and the shapes of the output. Options: the number
// of axes, the first of them, and what ndd_resize_sizes takes.
NDD_DERIVE(ndd_resize_regions) {
  const ndd::Call call(arguments, options);
  auto* regions = static_cast<float*>(first);
  for (int64_t i = 0; i < samples; ++i, extents += stride, regions += 2 * call.axes, shapes += ndim) {
    ndd::Planned plan;
    if (!call.plan(extents, i, plan)) return false;
    std::copy_n(extents, ndim, shapes);
    std::copy_n(plan.extents.data(), call.axes, shapes + call.first);
    std::copy_n(plan.bounds.data(), 2 * call.axes, regions);
  }
  return true;
}

// The same for a window of the resized image, mirrored or not: position and size of the window along each axis and the sum of mirrored axes follow the
// arguments, the rounding of its start and the rule the options. By DALI's rule the window is a source region; by the others it is `second`, int64
// (samples, 2 * axes): its starts, then the extents of the resized image.
NDD_DERIVE(ndd_resize_windows) {
  const ndd::Call call(arguments, options);
  const auto* window = reinterpret_cast<const ndd::AxisNumbers*>(call.axis + call.axes);
  const ndd::AxisNumbers& mirror = window[2 * call.axes];
  const auto rounding = static_cast<ndd::Rounding>(call.more[0]);
  const bool is_source = call.more[1] == 0;
  auto* regions = static_cast<float*>(first);
  auto* parts = static_cast<int64_t*>(second);
  for (int64_t i = 0; i < samples; ++i, extents += stride, regions += 2 * call.axes, shapes += ndim) {
    ndd::Planned plan;
    if (!call.plan(extents, i, plan)) return false;
    std::copy_n(extents, ndim, shapes);
    const auto flips = static_cast<int64_t>(mirror(i));
    for (int k = 0; k < call.axes; ++k) {
      const int64_t of = plan.extents[k];
      int64_t begin = 0, &size = shapes[call.first + k];
      if (!ndd::find_crop(window[2 * k], window[2 * k + 1], i, of, rounding, begin, size)) return false;
      double start = plan.bounds[k], end = plan.bounds[call.axes + k];
      if (is_source) {
        const double step = (end - start) / static_cast<double>(of);
        end = start + static_cast<double>(begin + size) * step;
        start += static_cast<double>(begin) * step;
      }
      // A mirrored source region makes a mirrored image, whose window starts at the other end.
      if ((flips >> (call.axes - 1 - k) & 1) != 0) {
        std::swap(start, end);
        begin = of - size - begin;
      }
      regions[k] = static_cast<float>(start);
      regions[call.axes + k] = static_cast<float>(end);
      if (is_source) continue;
      parts[k] = begin;
      parts[call.axes + k] = of;
    }
    if (!is_source) parts += 2 * call.axes;
  }
  return true;
}
