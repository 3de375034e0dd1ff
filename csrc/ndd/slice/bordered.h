// SPDX-License-Identifier: Apache-2.0
// Windows beyond which an array goes on with its own elements: repeated, reflected or periodic. The positions of the window along an axis fall into
// runs, which come from neighboring elements in ascending or descending order, or from a single one; the window falls into boxes of such runs, and
// each box is a Slice of the array. So the part inside the array moves as that of any window, and no element is mapped alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ndd/border.h"
#include "ndd/slice/slice.h"

namespace ndd {

// Position to + k of the window comes from element from + k * step of the array, for all k below `extent`; and again `times` times in all, `period`
// positions further each time.
struct BorderRun {
  int64_t to, extent, from, step, times, period;
  bool inside;  // the part of the window inside the array
};

// The runs of a window's positions along an axis.
class BorderRuns {
 public:
  // The window [start, start + extent) of an axis of `length` elements, at least one.
  BorderRuns(Border border, int64_t start, int64_t extent, int64_t length) : border_(border), length_(length) {
    // Far away, where sums could overflow: the nearest window with the same elements.
    constexpr int64_t kFar = int64_t{1} << 60;
    if (border == Border::clamp || length == 1) start = std::clamp(start, -extent, length);
    else if (start < -kFar || start > kFar) start %= 2 * block();
    start_ = start;
    const int64_t end = start + extent, first = std::clamp<int64_t>(start, 0, length), last = std::clamp<int64_t>(end, 0, length);
    add_beyond<false>(-std::min<int64_t>(end, 0), -std::min<int64_t>(start, 0));
    if (first < last) add({first - start, last - first, first, 1, 1, 0, true});
    add_beyond<true>(std::max(start, length) - length, std::max(end, length) - length);
  }

  const BorderRun* begin() const { return runs_; }
  const BorderRun* end() const { return runs_ + count_; }

 private:
  // Positions after which the direction changes, or the first element follows the last one.
  int64_t block() const { return border_ == Border::reflect_101 ? length_ - 1 : length_; }

  void add(const BorderRun& run) { runs_[count_++] = run; }

  // Adds the positions [first, last) beyond an end of the array, counted from that end on.
  template <bool behind>
  void add_beyond(int64_t first, int64_t last) {
    if (first >= last) return;
    // A run of positions from `begin` on. It begins with the element that is `distance` away from the end, and each further one is farther by `step`.
    const auto add_run = [&](int64_t begin, int64_t extent, int64_t distance, int64_t step, int64_t times, int64_t period) {
      if (behind) return add({length_ - start_ + begin, extent, length_ - 1 - distance, -step, times, period, false});
      // In front of the array positions are counted backwards.
      add({-start_ - begin - extent - (times - 1) * period, extent, distance + (extent - 1) * step, -step, times, period, false});
    };
    if (border_ == Border::clamp || length_ == 1) return add_run(first, last - first, 0, 0, 1, 0);
    const int64_t size = block(), period = border_ == Border::wrap ? size : 2 * size;
    // Positions [begin, end) of block k, and of the `times` - 1 blocks that lie one period further each.
    const auto add_block = [&](int64_t k, int64_t begin, int64_t end, int64_t times) {
      const bool nears = border_ == Border::wrap || k % 2 != 0;  // the end of the array
      const int64_t nearest = border_ == Border::reflect_101 && k % 2 == 0 ? 1 : 0;
      add_run(k * size + begin, end - begin, nears ? size - 1 + nearest - begin : nearest + begin, nears ? -1 : 1, times, period);
    };
    const int64_t last_block = last / size, rest = last % size;
    int64_t k = first / size;
    if (k == last_block) return add_block(k, first % size, rest, 1);
    if (first % size != 0) add_block(k, first % size, size, 1), ++k;
    const int64_t blocks = last_block - k, kinds = period / size;
    for (int64_t kind = 0; kind < std::min(kinds, blocks); ++kind) add_block(k + kind, 0, size, (blocks - kind + kinds - 1) / kinds);
    if (rest > 0) add_block(last_block, 0, rest, 1);
  }

  // On each side a part of a block, one repeated block in each direction, and another part.
  static constexpr int kMaxRuns = 9;

  Border border_;
  int64_t length_, start_ = 0;
  BorderRun runs_[kMaxRuns];
  int count_ = 0;
};

// Appends the boxes of a window. `whole` has what they share: the arrays, `copies` and `channels`.
class BorderedWindow {
 public:
  BorderedWindow(SliceBatch& batch, const Slice& whole, const int64_t* in_shape, const int64_t* out_shape, int ndim, int64_t out_bytes)
      : batch_(batch), slice_(whole), in_shape_(in_shape), out_shape_(out_shape), ndim_(ndim), out_bytes_(out_bytes) {
    check_slice_dims(ndim);
    slice_.placed = true;
    for (int d = ndim - 1; d >= 0; --d) {
      const bool last = d == ndim - 1;
      in_step_[d] = last ? 1 : in_step_[d + 1] * in_shape[d + 1];
      out_step_[d] = last ? 1 : out_step_[d + 1] * out_shape[d + 1];
    }
  }

  // start(axis) is where the window begins. A window with elements needs an array with elements.
  template <class Start>
  void add(Border border, Start start) {
    if (std::all_of(out_shape_, out_shape_ + ndim_, [](int64_t extent) { return extent > 0; })) add_axis(0, border, start, 0, 0, true);
  }

 private:
  template <class Start>
  void add_axis(int d, Border border, const Start& start, int64_t from, int64_t to, bool inside) {
    if (d == ndim_) {
      Slice& slice = batch_.slices.emplace_back(slice_);
      slice.origin = from;
      slice.out = static_cast<char*>(slice_.out) + to * out_bytes_;
      // Of the rows beside the array, a part of the cache lines is not theirs: written past the caches, 16 VGA images with a border of two pixels take
      // 717 us instead of 808.
      slice.cached = !inside;
      return;
    }
    for (const BorderRun& run : BorderRuns(border, start(d), out_shape_[d], in_shape_[d])) {
      // Repetitions are an axis of the slice, as long as it has room for that and for the axes that follow.
      const bool has_room = slice_.ndim + ndim_ - d < kSliceDims;
      const int ndim = slice_.ndim;
      for (int64_t k = 0; k < (has_room ? 1 : run.times); ++k) {
        if (has_room && run.times > 1) append(run.times, 0, run.period * out_step_[d]);
        append(run.extent, run.step * in_step_[d], out_step_[d]);
        add_axis(d + 1, border, start, from + run.from * in_step_[d], to + (run.to + k * run.period) * out_step_[d], inside && run.inside);
        slice_.ndim = ndim;
      }
    }
  }

  void append(int64_t extent, int64_t in_step, int64_t out_step) {
    const int d = slice_.ndim++;
    if (slice_.channel >= 0) slice_.channel = d;  // the last axis
    slice_.extent[d] = slice_.end[d] = extent;
    slice_.begin[d] = 0;
    slice_.stride[d] = in_step;
    slice_.out_stride[d] = out_step;
  }

  SliceBatch& batch_;
  Slice slice_;
  const int64_t *in_shape_, *out_shape_;
  int ndim_;
  int64_t out_bytes_, in_step_[kSliceDims], out_step_[kSliceDims];
};

}  // namespace ndd
