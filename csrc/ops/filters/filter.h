// SPDX-License-Identifier: Apache-2.0
// The inputs and arguments of filter as both backends read them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "ndd/stencil/stencil.h"

namespace ndd::filter {

struct Arguments {
  Samples in, weights, out;
  std::optional<Samples> fill;
  AxisArgs<int64_t> anchor;
  SpatialAxes axes, out_axes{};  // an output with one more dimension than its input has a frame for each filter of the image
  bool valid;

  Arguments(const Tensor& data, const MaybeTensor& data_shapes, const Tensor& filter, const MaybeTensor& filter_shapes,
            const std::optional<Tensor>& fill_value, const MaybeTensor& fill_shapes, const Tensor& anchor, bool valid, SpatialAxes axes,
            const Tensor& output, const MaybeTensor& output_shapes)
      : in(data, data_shapes), weights(filter, filter_shapes), out(output, output_shapes), anchor("filter", anchor), axes(axes), valid(valid) {
    if (fill_value) fill.emplace(*fill_value, fill_shapes);
    const int64_t lead = out.ndim() - in.ndim();
    // Whether the axes can be subtracted at all comes first.
    const bool few = axes.spatial >= 1 && axes.spatial <= 3;
    const int64_t sets = few ? weights.ndim() - axes.spatial : 0;
    if (!few || axes.first < 0 || axes.first > in.ndim() - axes.spatial || (lead != 0 && lead != 1) || (sets != 0 && sets != 1) ||
        (fill && fill->ndim() > 1))
      fail(Error::Value, "filter: the images, the filters or the output do not have the axes that are filtered");
    out_axes = {axes.first + lead, axes.spatial};
    if (out.size() != in.size() || weights.size() != in.size() || (fill && fill->size() != in.size()))
      fail(Error::Value, "filter: there must be an output and filters for each of ", in.size(), " samples");
    for (int64_t i = 0; i < in.size(); ++i) check_shapes(i);
  }

  // The number of output images of sample i, the frame of each, and its input image.
  int64_t images(int64_t i) const { return out_axes.images(out, i); }
  int64_t frame(int64_t i, int64_t image) const { return out_axes.frame(out, i, image); }
  const void* source(int64_t i, int64_t image, const Grid& grid) const {
    const int64_t own = out.ndim() > in.ndim() ? image % axes.images(in, i) : image;
    return static_cast<const char*>(in.data(i)) + own * grid.volume() * in.item_bytes();
  }

  // Where the weights of an image of sample i begin, and its fill value, in elements from the start of their sample.
  int64_t weights_at(int64_t i, int64_t frame) const { return weights.ndim() > axes.spatial ? frame * (weights.volume(i) / weights.shape(i)[0]) : 0; }
  int64_t fill_at(int64_t frame) const { return fill->ndim() > 0 ? frame : 0; }

  // The window along depth, height and width.
  std::array<Reach, 3> reach(int64_t i, int64_t frame) const {
    const int64_t* size = weights.shape(i) + (weights.ndim() - axes.spatial);
    std::array<Reach, 3> reaches;
    for (int64_t a = 0; a < axes.spatial; ++a) {
      const int64_t at = valid ? 0 : anchor(i, frame, a);
      if (at < -1 || at >= size[a])
        fail("filter: anchor must be -1 or within the filter, got ", at, " along an axis of ", size[a], " weights, for sample ", i);
      reaches[3 - axes.spatial + a] = {static_cast<int32_t>(size[a]), static_cast<int32_t>(at < 0 ? size[a] / 2 : at)};
    }
    return reaches;
  }

 private:
  void check_shapes(int64_t i) const {
    const auto reject = [=](const auto&... why) { fail("filter: sample ", i, ": ", why...); };
    const int64_t frames = out_axes.first > 0 ? out.shape(i)[0] : 1, outer = weights.ndim() - axes.spatial;
    if (weights.volume(i) == 0 && !(outer > 0 && frames == 0)) reject("the filter has no weights");
    if (outer > 0 && weights.shape(i)[0] != frames) reject("there are ", frames, " frames, but filters for ", weights.shape(i)[0]);
    if (fill && fill->ndim() > 0 && fill->shape(i)[0] != frames) reject("there are ", frames, " frames, but fill values for ", fill->shape(i)[0]);
    for (int64_t a = 0; a < axes.spatial; ++a) {
      const int64_t size = weights.shape(i)[outer + a], extent = in.shape(i)[axes.first + a];
      if (size >= int64_t{1} << 31) reject("the filter is too large");
      if (valid && size > extent) reject("the filter (", size, ") is larger than the image (", extent, "), which mode=\"valid\" does not allow");
    }
    for (int64_t d = 0; d < in.ndim() && out.volume(i) > 0; ++d) {
      const int64_t a = d - axes.first, less = valid && a >= 0 && a < axes.spatial ? weights.shape(i)[outer + a] - 1 : 0;
      if (out.shape(i)[out.ndim() - in.ndim() + d] != in.shape(i)[d] - less) reject("the output has another size than the filtered image");
    }
  }
};

}  // namespace ndd::filter
