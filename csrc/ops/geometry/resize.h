// SPDX-License-Identifier: Apache-2.0
// out[o] = sum over k of weight[o][k] * in[start[o] + k] along each spatial axis; weights and starts are those of ndd/resample.h.
#pragma once
#include <optional>
#include <string>

#include "ndd/args.h"
#include "ndd/error.h"
#include "ndd/resample.h"
#include "ndd/samples.h"

namespace ndd {

// The arguments as both backends read them. A row of `roi` holds the starts of the spatial axes, then their ends, in source
// elements; without it the whole sample is the source.
struct ResizeArgs {
  std::optional<Args<float>> roi;
  Args<int64_t> min_filter, mag_filter;
  bool antialias;
  int64_t first_spatial, spatial;

  ResizeArgs(const MaybeTensor& roi_rows, const Tensor& min, const Tensor& mag, bool antialias_, int64_t first, int64_t count)
      : min_filter(min), mag_filter(mag), antialias(antialias_), first_spatial(first), spatial(count) {
    if (roi_rows) roi.emplace(*roi_rows);
  }

  // Depth, height and width of a sample; the depth of a picture is an axis of one element.
  void read_axes(int64_t sample, const int64_t* in, const int64_t* out, Axis (&axes)[3]) const {
    const Filter reduce = filter(min_filter(sample)), enlarge = filter(mag_filter(sample));
    axes[0] = make_axis(1, 1, 0, 1, Filter::nearest, Filter::nearest, false);
    for (int64_t a = 0; a < spatial; ++a) {
      const int64_t n = in[first_spatial + a];
      if (n == 0 && out[first_spatial + a] > 0) throw Error(Error::Runtime, "resize: sample " + std::to_string(sample) + " has no pixels");
      const float lo = roi ? (*roi)(sample, a) : 0.0f, hi = roi ? (*roi)(sample, spatial + a) : static_cast<float>(n);
      axes[3 - spatial + a] = make_axis(n, out[first_spatial + a], lo, hi, reduce, enlarge, antialias);
    }
  }

  int64_t outer(const int64_t* shape) const { return product(shape, 0, first_spatial); }
  int64_t channels(const int64_t* shape, int64_t ndim) const { return product(shape, first_spatial + spatial, ndim); }

 private:
  static Filter filter(int64_t f) {
    if (f < 0 || f > 5) throw Error(Error::Runtime, "resize: interpolation type " + std::to_string(f) + " is not one of 0 to 5");
    return static_cast<Filter>(f);
  }

  static int64_t product(const int64_t* shape, int64_t begin, int64_t end) {
    int64_t n = 1;
    for (int64_t d = begin; d < end; ++d) n *= shape[d];
    return n;
  }
};

}  // namespace ndd
