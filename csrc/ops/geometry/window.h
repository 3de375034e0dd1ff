// SPDX-License-Identifier: Apache-2.0
// The window that crop, slice, pad, paste and crop_mirror_normalize copy, as torch_ndd/ops/geometry/_crop_window.py computes it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "ndd/args.h"
#include "ndd/border.h"
#include "ndd/kernel.h"
#include "ndd/slice/slice.h"

namespace ndd {

// An argument with one value for each channel, or one for all.
// Throws unless both layouts have the same `ndim` axes, each once, among them channels and the width: kernels find axes by their letters.
inline void check_layouts(const std::string& op, const std::string& layout, const std::string& output_layout, int64_t ndim) {
  std::string sorted = layout, output_sorted = output_layout;
  std::sort(sorted.begin(), sorted.end());
  std::sort(output_sorted.begin(), output_sorted.end());
  const bool has_each_once = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  if (static_cast<int64_t>(layout.size()) != ndim || sorted != output_sorted || !has_each_once || layout.find('C') == layout.npos ||
      layout.find('W') == layout.npos)
    fail(Error::Value, op, ": the layouts \"", layout, "\" and \"", output_layout, "\" must have the axes of the images in some order");
}

class PerChannel {
 public:
  PerChannel(const std::string& op, const char* name, const Tensor& values) : op_(op), name_(name), values_(values) {}

  float operator()(int64_t sample, int64_t channel) const { return values_(sample, values_.cols() == 1 ? 0 : channel); }

  void check(int64_t sample, int64_t channels) const {
    if (values_.cols() == 1 || values_.cols() == channels) return;
    fail(op_, ": argument '", name_, "' has ", values_.cols(), " values, but sample ", sample, " has ", channels, " channels");
  }

  bool single() const { return values_.cols() == 1; }
  int64_t count() const { return values_.cols(); }

 private:
  std::string op_;
  const char* name_;
  Args<float> values_;
};

// In place of a Border: windows lie inside of their samples.
inline constexpr int64_t kInside = -1;

// Whether what lies outside is filled. Throws unless `border` is a Border or kInside.
inline bool fills(const std::string& op, int64_t border) {
  if (border < kInside || border > static_cast<int64_t>(Border::wrap)) fail(Error::Value, op, ": unknown border ", border);
  return border == static_cast<int64_t>(Border::constant);
}

class Window {
 public:
  // `start`: rows of where the window begins in each axis of the input; its extents are those of the output.
  Window(const std::string& op, const Tensor& start, const Tensor& fill_values, bool pad, const std::string& layout)
      : fill(op, "fill_values", fill_values), op_(op), start_(start), pad_(pad), layout_(layout) {}

  int64_t start(int64_t i, int axis) const { return start_(i, axis); }

  // Python has checked the windows already, except in a compiled graph.
  void check(int64_t i, int axis, int64_t extent, int64_t in_extent) const {
    const int64_t begin = start(i, axis);
    // As a difference: the sum of a large start and the extent could overflow.
    if (pad_ || (begin >= 0 && begin <= in_extent - extent)) return;
    fail(op_, ": sample ", i, ": the window [", begin, ", ", begin + extent, ") exceeds axis ", name(axis), " of extent ", in_extent);
  }

  // Throws if the window has elements, but the sample has none of which its border could consist.
  void check_elements(int64_t i, const int64_t* in_shape, const int64_t* out_shape, int ndim) const {
    if (std::any_of(out_shape, out_shape + ndim, [](int64_t extent) { return extent <= 0; })) return;
    for (int axis = 0; axis < ndim; ++axis)
      if (in_shape[axis] <= 0)
        fail(op_, ": sample ", i, ": axis ", name(axis), " has no elements of which the border could consist; out_of_bounds_policy=\"pad\" fills it");
  }

  bool pad() const { return pad_; }

  PerChannel fill;

 private:
  std::string name(int axis) const { return layout_.empty() ? std::to_string(axis) : layout_.substr(axis, 1); }

  std::string op_;
  Args<int64_t> start_;
  bool pad_;
  std::string layout_;
};

}  // namespace ndd
