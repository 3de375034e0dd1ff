// SPDX-License-Identifier: Apache-2.0
// multi_paste: regions of one or several inputs are pasted onto a black output, later ones over earlier ones. Videos are stacks with an axis of
// frames in front.
#include <cmath>

#include "ndd/args.h"
#include "ndd/kernel.h"
#include "ndd/slice/layers.h"

namespace ndd {
namespace {

using MaybeArgs = std::optional<Args<double>>;

// Two numbers, for height and width, for each pasted region and perhaps each frame.
class Pairs {
 public:
  Pairs(const char* name, const MaybeTensor& values, bool relative) : name_(name), relative_(relative) {
    if (!values) return;
    args_.emplace(*values);
    per_frame_ = values->dim() == 4;
    frames_ = per_frame_ ? values->size(1) : 1;
  }

  bool has_value() const { return args_.has_value(); }

  void check(int64_t sample, int64_t regions, int64_t frames) const {
    if (!has_value()) return;
    if (per_frame_ && frames_ != 1 && frames > frames_) fail(at(sample), "is for ", frames_, " frames, but there are ", frames);
    const int64_t columns = args_->cols() / std::max<int64_t>(frames_, 1);
    // Rows of frames are not padded: their number of regions is that of the argument.
    int64_t numbers = columns;
    while (!per_frame_ && numbers > 0 && is_padding((*args_)(sample, numbers - 1))) --numbers;
    if (numbers != 2 * regions)
      fail(at(sample), "must have 2 numbers, for height and width, for each of the ", regions, " pasted regions, got ", numbers);
  }

  // Positions are rounded down and sizes up.
  int64_t operator()(int64_t sample, int64_t frame, int64_t region, int axis, int64_t extent, bool is_size) const {
    const int64_t columns = args_->cols() / std::max<int64_t>(frames_, 1);
    const double value = (*args_)(sample, (frames_ > 1 ? frame : 0) * columns + 2 * region + axis);
    // Below 2^53: the conversion is exact, and sums of two cannot overflow.
    if (!relative_ && !(std::fabs(value) < 9e15)) fail(at(sample), "must be a number of pixels, got ", value);
    if (!relative_) return static_cast<int64_t>(value);
    if (!(value >= 0.0 && value <= 1.0)) fail(at(sample), "must be in the range from 0 to 1, got ", value);
    const float scaled = static_cast<float>(value) * static_cast<float>(extent);
    return static_cast<int64_t>(is_size ? std::ceil(scaled) : std::floor(scaled));
  }

  // Rows of ragged arguments are padded with NaN, or with the smallest int32 if they are integers.
  static bool is_padding(double value) { return std::isnan(value) || value == -2147483648.0; }

 private:
  std::string at(int64_t sample) const { return "multi_paste: sample " + std::to_string(sample) + ": '" + name_ + "' "; }

  std::string name_;
  bool relative_, per_frame_ = false;
  int64_t frames_ = 1;
  MaybeArgs args_;
};

struct MultiPaste {
  std::vector<Samples> inputs;
  Samples out;
  MaybeArgs in_ids;
  Pairs in_anchors, shapes, out_anchors;

  // Regions of sample i: one of each input, or as many as in_ids has numbers.
  int64_t regions(int64_t i) const {
    if (!in_ids) return static_cast<int64_t>(inputs.size());
    int64_t count = in_ids->cols();
    while (count > 0 && Pairs::is_padding((*in_ids)(i, count - 1))) --count;
    return count;
  }

  // Region k of sample i, in one frame. `in` is the frame's source, (height, width, channels), `out` its extents.
  Layer region(int64_t i, int64_t f, int64_t k, const char* in, const int64_t* shape, const int64_t* extent) const {
    const std::string where = "multi_paste: sample " + std::to_string(i) + ", region " + std::to_string(k) + ": ";
    if (shape[2] != extent[2])
      fail(where, "has ", shape[2], " channels, the output has ", extent[2], "; masks (objects, height, width) have the layout FHW");
    Layer layer;
    layer.in = in;
    layer.begin[2] = 0;
    layer.end[2] = extent[2];
    layer.stride[2] = 1;
    layer.stride[1] = shape[2];
    layer.stride[0] = shape[1] * shape[2];
    for (int d = 0; d < 2; ++d) {
      const int64_t from = in_anchors.has_value() ? in_anchors(i, f, k, d, shape[d], false) : 0;
      const int64_t size = shapes.has_value() ? shapes(i, f, k, d, shape[d], true) : shape[d] - from;
      const int64_t to = out_anchors.has_value() ? out_anchors(i, f, k, d, extent[d], false) : 0;
      // Refused, not clamped: a clamped region would show another part of its input.
      if (from < 0 || size < 0 || from + size > shape[d])
        fail(where, "must lie within its input, but along axis ", d, " it goes from ", from, " to ", from + size, " of ", shape[d]);
      if (to < 0 || to + size > extent[d])
        fail(where, "must lie within the output, but along axis ", d, " it goes from ", to, " to ", to + size, " of ", extent[d]);
      // The element of the source that lies at the beginning of the region.
      layer.origin += from * layer.stride[d];
      layer.begin[d] = to;
      layer.end[d] = to + size;
    }
    return layer;
  }

  // All frames of sample i, as one more axis in front.
  Layers sample(int64_t i) const {
    const bool has_frames = out.ndim() == 4;
    const int64_t frames = has_frames ? out.shape(i)[0] : 1, *extent = out.shape(i) + (has_frames ? 1 : 0), count = regions(i);
    Layers stack;
    stack.out = out.data(i);
    stack.ndim = 4;
    stack.extent[0] = frames;
    std::copy(extent, extent + 3, stack.extent + 1);
    stack.fills.push_back(0.0f);
    // A black background below the regions.
    stack.layers.push_back(stack.whole(nullptr));
    for (const auto* pairs : {&in_anchors, &shapes, &out_anchors}) pairs->check(i, count, frames);
    // There may be more frames of such a sample than memory has layers for.
    if (out.volume(i) == 0) return stack;
    for (int64_t k = 0; k < count; ++k) {
      const Samples& in = inputs[in_ids ? 0 : k];
      const int64_t source = in_ids ? static_cast<int64_t>((*in_ids)(i, k)) : i;
      if (source < 0 || source >= in.size())
        fail("multi_paste: sample ", i, ": in_ids must be in the range from 0 to ", in.size() - 1, ", got ", source);
      // An input without frames is pasted into every frame of the output.
      const bool moves = in.ndim() == 4;
      const int64_t* shape = in.shape(source) + (moves ? 1 : 0);
      if (moves && in.shape(source)[0] < frames)
        fail("multi_paste: sample ", i, ": ", frames, " frames are pasted, but an input has ", in.shape(source)[0]);
      const int64_t bytes = moves ? shape[0] * shape[1] * shape[2] * in.item_bytes() : 0;
      for (int64_t f = 0; f < frames; ++f) {
        const Layer inner = region(i, f, k, static_cast<const char*>(in.data(source)) + f * bytes, shape, extent);
        Layer layer;
        layer.in = inner.in;
        layer.origin = inner.origin;
        // A layer of one frame: its stride along the axis of frames does not matter.
        layer.begin[0] = f;
        layer.end[0] = f + 1;
        layer.stride[0] = 0;
        std::copy(inner.begin, inner.begin + 3, layer.begin + 1);
        std::copy(inner.end, inner.end + 3, layer.end + 1);
        std::copy(inner.stride, inner.stride + 3, layer.stride + 1);
        stack.layers.push_back(layer);
      }
    }
    return stack;
  }
};

void multi_paste(const std::vector<Tensor>& inputs, const std::vector<Tensor>& input_shapes, const MaybeTensor& in_ids, const MaybeTensor& in_anchors,
                 const MaybeTensor& shapes, const MaybeTensor& out_anchors, bool in_relative, bool shapes_relative, bool out_relative,
                 const Tensor& output, const MaybeTensor& output_shapes) {
  const MultiPaste paste{samples_of(inputs, input_shapes),
                         Samples(output, output_shapes),
                         in_ids ? MaybeArgs(Args<double>(*in_ids)) : std::nullopt,
                         Pairs(in_relative ? "in_anchors_rel" : "in_anchors", in_anchors, in_relative),
                         Pairs(shapes_relative ? "shapes_rel" : "shapes", shapes, shapes_relative),
                         Pairs(out_relative ? "out_anchors_rel" : "out_anchors", out_anchors, out_relative)};
  if (inputs.empty() || (paste.out.ndim() != 3 && paste.out.ndim() != 4))
    fail(Error::Value, "multi_paste: there must be inputs, and images or videos");
  for (const Samples& in : paste.inputs)
    if ((in.ndim() != 3 && in.ndim() != paste.out.ndim()) || in.dtype() != paste.inputs[0].dtype())
      fail(Error::Value, "multi_paste: the inputs must be images or videos of one type");
  run_layers("multi_paste", paste.inputs[0], paste.out, [=](int64_t i) { return paste.sample(i); });
}

}  // namespace
}  // namespace ndd
NDD_HOST_KERNELS(multi_paste, ndd::multi_paste)
