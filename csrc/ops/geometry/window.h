// SPDX-License-Identifier: Apache-2.0
// The window that crop, slice, pad, paste and crop_mirror_normalize copy, as torch_ndd/ops/geometry/_crop_window.py gives it.
#pragma once

#include <cstdint>
#include <string>

#include "ndd/args.h"
#include "ndd/kernel.h"
#include "ndd/slice/slice.h"

namespace ndd {

// One value for each channel, or one for all.
class PerChannel {
 public:
  PerChannel(const std::string& op, const char* name, const Tensor& values) : op_(op), name_(name), values_(values) {}

  float operator()(int64_t sample, int64_t channel) const { return values_(sample, values_.cols() == 1 ? 0 : channel); }

  void check(int64_t sample, int64_t channels) const {
    if (values_.cols() == 1 || values_.cols() == channels) return;
    fail(op_, ": argument '", name_, "' has ", values_.cols(), " values, but sample ", sample, " has ", channels, " channels");
  }

  bool single() const { return values_.cols() == 1; }

 private:
  std::string op_;
  const char* name_;
  Args<float> values_;
};

class Window {
 public:
  // `start`: rows of where the window begins in each axis of the input; its extents are those of the output.
  Window(const std::string& op, const Tensor& start, const Tensor& fill_values, bool pad, const std::string& layout)
      : fill(op, "fill_values", fill_values), op_(op), start_(start), pad_(pad), layout_(layout) {}

  int64_t start(int64_t i, int axis) const { return start_(i, axis); }

  // Python has checked the windows already, except in a compiled graph.
  void check(int64_t i, int axis, int64_t extent, int64_t in_extent) const {
    const int64_t begin = start(i, axis);
    if (pad_ || (begin >= 0 && begin + extent <= in_extent)) return;
    fail(op_, ": sample ", i, ": the window [", begin, ", ", begin + extent, ") leaves axis ",
         layout_.empty() ? std::to_string(axis) : layout_.substr(axis, 1), " of extent ", in_extent);
  }

  bool pad() const { return pad_; }

  PerChannel fill;

 private:
  std::string op_;
  Args<int64_t> start_;
  bool pad_;
  std::string layout_;
};

// The kernel of what only copies a window and converts its elements. `layout` is empty where there are no channels.
static inline void copy_windows(const std::string& op, const Tensor& input, const MaybeTensor& input_shapes, const Tensor& start,
                                const Tensor& fill_values, bool pad, const std::string& layout, const Tensor& output,
                                const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const Window window(op, start, fill_values, pad, layout);
  const int ndim = static_cast<int>(in.ndim()), channel = static_cast<int>(layout.find('C'));
  const bool copies = in.dtype() == out.dtype();
  run_slices(op, in, out, copies, [=](int64_t i, SliceBatch& batch) {
    const int64_t *from = in.shape(i), *to = out.shape(i);
    for (int a = 0; a < ndim; ++a) window.check(i, a, to[a], from[a]);
    Slice slice =
        window_slice(in.data(i), from, out.data(i), to, nullptr, ndim, [&](int a) { return window.start(i, a); }, [](int) { return false; });
    slice.copies = copies;
    slice.channels = static_cast<int64_t>(batch.channels.size());
    if (pad && channel >= 0) window.fill.check(i, to[channel]);
    if (pad && !window.fill.single()) slice.channel = channel;
    for (int64_t c = 0; c < (slice.channel < 0 ? 1 : to[channel]); ++c) batch.channels.push_back({0.0f, 1.0f, 0.0f, window.fill(i, c)});
    batch.slices.push_back(slice);
  });
}

}  // namespace ndd
