// SPDX-License-Identifier: Apache-2.0
// erase: rectangles of an image are filled. A stack of layers: the whole image below, and above it a filled box for each region.
#include "ndd/args.h"
#include "ndd/kernel.h"
#include "ndd/slice/layers.h"
#include "ops/geometry/window.h"

namespace ndd {
namespace {

// The rectangles to erase. Numbers are in elements, or fractions of the extent where they are normalized.
struct Regions {
  Args<float> anchor, shape;
  std::string axes;  // digits
  bool normalized_anchor, normalized_shape, centered;

  // The number of regions of sample i. Rows of the arguments are as long as the longest one and padded with NaN.
  int64_t count(int64_t i) const {
    const auto axis_count = static_cast<int64_t>(axes.size());
    const auto number_count = [&](const Args<float>& argument) {
      int64_t n = argument.cols();
      while (n > 0 && std::isnan(argument(i, n - 1))) --n;
      return n;
    };
    const int64_t anchors = number_count(anchor), shapes = number_count(shape);
    // Here, not in Python, because the numbers may come from an operator that has not run when the call is made.
    if (anchors != shapes || anchors % axis_count != 0)
      fail("erase: sample ", i, " has ", anchors, " numbers in 'anchor' and ", shapes, " in 'shape'; both must have ", axis_count,
           " for each region, one for each axis");
    return anchors / axis_count;
  }

  static int64_t clamped(float position, int64_t extent) {
    // Compared as floats: a conversion of what exceeds 64 bits is undefined.
    return position > 0.0f ? position < static_cast<float>(extent) ? static_cast<int64_t>(position) : extent : 0;  // NaN: 0
  }

  // Places region k of sample i; false if it is empty after clamping to the sample.
  bool place(int64_t i, int64_t k, const int64_t* extent, Layer& layer) const {
    for (size_t j = 0; j < axes.size(); ++j) {
      const int d = axes[j] - '0';
      const auto column = static_cast<int64_t>(k * axes.size() + j);
      const auto length = static_cast<float>(extent[d]);
      const float size = shape(i, column) * (normalized_shape ? length : 1.0f);
      float begin = anchor(i, column) * (normalized_anchor ? length : 1.0f);
      if (centered) begin -= size * 0.5f;
      // Both ends are rounded down.
      layer.begin[d] = clamped(begin, extent[d]);
      layer.end[d] = clamped(begin + size, extent[d]);
      if (layer.end[d] <= layer.begin[d]) return false;
    }
    return true;
  }
};

void erase(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& anchor, const Tensor& shape, const Tensor& fill_value,
           const std::string& axes, int64_t channel, bool normalized_anchor, bool normalized_shape, bool centered_anchor, const Tensor& output,
           const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const Regions regions{Args<float>(anchor), Args<float>(shape), axes, normalized_anchor, normalized_shape, centered_anchor};
  const PerChannel fill("erase", "fill_value", fill_value);
  const int ndim = static_cast<int>(in.ndim());
  check_slice_dims(ndim);
  check_outputs("erase", out, in);
  for (const char axis : axes)
    if (axis < '0' || axis >= '0' + ndim) fail(Error::Value, "erase: the axes must be those of the images, got \"", axes, "\"");
  if (axes.empty() || (!fill.single() && (channel < 0 || channel >= ndim)))
    fail(Error::Value, "erase: the images do not have the axes of the arguments");
  run_layers("erase", in, out, [=](int64_t i) {
    Layers stack;
    stack.out = out.data(i);
    stack.ndim = ndim;
    for (int d = 0; d < ndim; ++d) stack.extent[d] = in.shape(i)[d];
    // A fill value for each channel; otherwise one for all, and the axis of channels does not matter.
    if (!fill.single()) {
      stack.channel = static_cast<int>(channel);
      fill.check(i, stack.extent[channel]);
    }
    for (int64_t c = 0; c < (stack.channel < 0 ? 1 : stack.extent[channel]); ++c) stack.fills.push_back(fill(i, c));
    // The image below, regions without a source above it: run_layers() takes the uppermost layer of each element.
    stack.layers.push_back(stack.whole(in.data(i)));
    for (int64_t k = 0, count = regions.count(i); k < count; ++k) {
      Layer layer = stack.whole(nullptr);
      if (regions.place(i, k, stack.extent, layer)) stack.layers.push_back(layer);
    }
    return stack;
  });
}

}  // namespace
}  // namespace ndd
NDD_HOST_KERNELS(erase, ndd::erase)
