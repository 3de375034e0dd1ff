// SPDX-License-Identifier: Apache-2.0
// out[o] = sum over k of weight[o][k] * in[start[o] + k] along each resampled axis; weights and starts are those of ndd/resample/resample.h.
#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "ndd/args.h"
#include "ndd/error.h"
#include "ndd/resample/resample.h"
#include "ndd/samples.h"
#include "ops/geometry/window.h"

namespace ndd {

// The operators, whose errors name them.
inline constexpr char kResize[] = "resize", kResizeCropMirror[] = "resize_crop_mirror", kTensorResize[] = "tensor_resize",
                      kRandomResizedCrop[] = "random_resized_crop", kMultiCrop[] = "multi_crop";

// The arguments as both backends read them. A row of `roi` holds the starts of the resampled axes, then their ends, in source elements; without it the
// whole sample is the source. A row of `window`, which only torch's rule and Pillow's take, holds the first element of the output on each resampled axis,
// then the extents of the whole image that the output is a part of. `axes` has a bit for each resampled dimension.
class ResizeArgs {
 public:
  bool antialias;
  Rule rule;

  ResizeArgs(const char* op, const MaybeTensor& roi_rows, const MaybeTensor& window_rows, const Tensor& min, const Tensor& mag, bool antialias_,
             int64_t rule_, int64_t axes, const MaybeTensor& mirror = MaybeTensor())
      : antialias(antialias_), rule(static_cast<Rule>(rule_)), op_(op), min_filter_(min), mag_filter_(mag), axes_(axes) {
    if (mirror) mirror_ = std::make_shared<Args<int64_t>>(*mirror);
    if (roi_rows) roi_ = std::make_shared<Args<float>>(*roi_rows);
    if (window_rows && rule == Rule::dali) fail(Error::Value, op, ": DALI's rule does not take a window; use a source region");
    if (window_rows) window_ = std::make_shared<Args<int64_t>>(*window_rows);
  }

  // Throws unless there is an output for each of `samples` samples, and the axes are those of a job: three, with what lies between two of them.
  void check(int64_t samples, int64_t ndim, int64_t out_samples, int64_t out_ndim) const {
    if (out_samples != samples || out_ndim != ndim) fail(Error::Value, op_, ": the output must have the samples and the dimensions of the input");
    int64_t count = 0, last = -1;
    for (int64_t d = 0; d < ndim; ++d)
      if (axes_ >> d & 1) {
        count += 1 + (last >= 0 && d > last + 1);
        last = d;
      }
    if (ndim > 62 || count > 3 || axes_ >> ndim != 0) fail(Error::Value, op_, ": these axes cannot be resampled together");
  }

  // A sample as [outer][depth][height][width][channels]: resampled dimensions are axes, the run of other dimensions between two of them is an axis that
  // stays as it is, and missing axes have one element.
  template <class Job>
  void read(int64_t sample, const int64_t* in, const int64_t* out, int64_t ndim, Job& job) const {
    const Filter reduce = filter(min_filter_(sample)), enlarge = filter(mag_filter_(sample));
    const auto resampled = [&](int64_t d) { return axes_ >> d & 1; };
    // Count the axes of the job: at most three. The last one is the width.
    int64_t last = -1, count = 0, resampled_count = 0;
    for (int64_t d = 0; d < ndim; ++d) {
      if (!resampled(d)) continue;
      count += 1 + (last >= 0 && d > last + 1);
      ++resampled_count;
      last = d;
    }
    job.outer = job.channels = 1;
    for (Axis& axis : job.axes) axis = unchanged_axis(1);
    // The next axis of the job, which are the last `count`, and the next column of roi and window.
    int64_t a = 3 - count, r = 0;
    for (int64_t d = 0; d < ndim; ++d)
      if (!resampled(d) && in[d] != out[d])
        fail(Error::Value, op_, ": sample ", sample, " of the output must have ", in[d], " elements along axis ", d);
    for (int64_t d = 0; d < ndim; ++d) {
      if (d > last) {
        job.channels *= in[d];
      } else if (resampled(d)) {
        const int64_t n = check_extent(sample, in[d]);
        if (n == 0 && out[d] > 0) fail(op_, ": sample ", sample, " has no pixels");
        float lo = roi_ ? (*roi_)(sample, r) : 0.0f, hi = roi_ ? (*roi_)(sample, resampled_count + r) : static_cast<float>(n);
        if (mirror_ && d == last && (*mirror_)(sample) != 0) std::swap(lo, hi);
        if (rule != Rule::dali) check_region(sample, n, lo, hi);
        const int64_t whole = window_ ? (*window_)(sample, resampled_count + r) : out[d];
        Axis& axis = job.axes[a++] = make_axis(n, check_extent(sample, whole), lo, hi, reduce, enlarge, antialias);
        if (window_) {
          axis.first = (*window_)(sample, r);
          axis.out = check_extent(sample, out[d]);
          if (axis.out > 0 && whole < 1) fail(op_, ": sample ", sample, " has no pixels after resizing");
          check_extent(sample, axis.first < 0 ? -axis.first : axis.first);
        }
        ++r;
      } else if (r == 0) {
        job.outer *= in[d];
      } else {
        int64_t n = in[d];
        while (!resampled(d + 1)) n *= in[++d];
        job.axes[a++] = unchanged_axis(check_extent(sample, n));
      }
    }
    for (Axis& axis : job.axes) {
      axis.rule = rule;
      axis.antialias = is_pillow(rule) || (rule == Rule::torch && antialias);
      if (rule != Rule::dali && axis.filter == Filter::gaussian) fail(op_, ": the rules of torch and Pillow do not support Gaussian interpolation");
    }
  }

  const char* op() const { return op_; }

 private:
  // Coordinates are floats: up to 2^22 they are exact to half an element, which rounding to the nearest pixel needs.
  int64_t check_extent(int64_t sample, int64_t n) const {
    constexpr int64_t kMaxExtent = 4194304;
    if (n > kMaxExtent)
      fail(op_, ": sample ", sample, " has an axis of ", n, " elements; at most ", kMaxExtent, " can be resampled, cut it into parts");
    return n;
  }

  // The rules of torch and Pillow crop the region first, so it must consist of whole pixels within the image.
  void check_region(int64_t sample, int64_t n, float lo, float hi) const {
    const float begin = fminf(lo, hi), end = fmaxf(lo, hi);
    if (!(roundf(begin) >= 0.0f && roundf(end) <= static_cast<float>(n) && roundf(end) - roundf(begin) >= 1.0f))
      fail(op_, ": sample ", sample, ": by the rule of torch and Pillow the source region must be whole pixels of the image, got ", lo, " to ", hi,
           " of ", n);
  }

  Filter filter(int64_t f) const {
    if (f < 0 || f > 5) fail(op_, ": interpolation type must be from 0 to 5, got ", f);
    return static_cast<Filter>(f);
  }

  const char* op_;
  std::shared_ptr<const Args<float>> roi_;
  std::shared_ptr<const Args<int64_t>> window_, mirror_;
  Args<int64_t> min_filter_, mag_filter_;
  int64_t axes_;
};

// What crop_mirror_normalize would do with the resized images: their elements are rounded to the type of the input, become (in - mean) / std, and are
// stored in another order of axes. Without an output layout they are not normalized.
class NormalizeArgs {
 public:
  // The layouts are of samples with `ndim` axes.
  NormalizeArgs(const char* op, const MaybeTensor& mean, const MaybeTensor& std, const std::string& layout, const std::string& output_layout,
                int64_t ndim)
      : wanted_(!output_layout.empty()), layout_(layout), output_layout_(output_layout) {
    if (mean) mean_.emplace(op, "mean", *mean);
    if (std) std_.emplace(op, "std", *std);
    if (!wanted_) return;
    check_slice_dims(ndim);
    check_layouts(op, layout, output_layout, ndim);
    // The input's axis for each axis of the output.
    for (size_t d = 0; d < output_layout.size(); ++d) order_[d] = static_cast<int>(layout.find(output_layout[d]));
  }

  bool wanted() const { return wanted_; }
  const std::string& layout() const { return layout_; }
  const std::string& output_layout() const { return output_layout_; }

  // The shape of a sample after resizing, in the input's order, from its final one.
  void resized_shape(const int64_t* to, int64_t* shape) const {
    for (size_t d = 0; d < output_layout_.size(); ++d) shape[order_[d]] = to[d];
  }

  void append_channels(int64_t sample, int64_t count, std::vector<Channel>& channels) const {
    if (mean_) mean_->check(sample, count);
    if (std_) std_->check(sample, count);
    for (int64_t c = 0; c < count; ++c) channels.push_back({mean_ ? (*mean_)(sample, c) : 0.0f, std_ ? 1.0f / (*std_)(sample, c) : 1.0f, 0.0f, 0.0f});
  }

  // Appends the slice that normalizes a resized sample, and mirrors its width if that is still to be done.
  void append_slice(int64_t sample, const void* resized, void* out, const int64_t* to, bool same_type, bool mirrored, SliceBatch& batch) const {
    int64_t shape[kSliceDims];
    resized_shape(to, shape);
    const int ndim = static_cast<int>(layout_.size()), width = static_cast<int>(layout_.find('W'));
    Slice slice = window_slice(resized, shape, out, to, order_, ndim, [](int) { return 0; }, [&](int axis) { return mirrored && axis == width; });
    slice.channel = static_cast<int>(output_layout_.find('C'));
    slice.channels = static_cast<int64_t>(batch.channels.size());
    append_channels(sample, to[slice.channel], batch.channels);
    slice.copies =
        same_type && std::all_of(batch.channels.begin() + slice.channels, batch.channels.end(), [](const Channel& c) { return c.identity(); });
    batch.slices.push_back(slice);
  }

 private:
  bool wanted_;
  std::string layout_, output_layout_;
  std::optional<PerChannel> mean_, std_;
  int order_[kSliceDims] = {};
};

// The images of multi_crop's outputs, int64 (M), after a check of what Python has made: a region for each.
inline Args<int64_t> check_sources(const Tensor& sources, const Tensor& roi, const Samples& in, const Samples& out) {
  Args<int64_t> images(sources);
  check_numbers(sources);
  if (sources.numel() != out.size() || images.rows() != out.size() || roi.size(0) != out.size())
    fail(Error::Value, kMultiCrop, ": needs an image and a region for each output");
  for (int64_t i = 0; i < out.size(); ++i)
    if (images(i) < 0 || images(i) >= in.size()) fail(Error::Value, kMultiCrop, ": output ", i, " is of image ", images(i), " of ", in.size());
  return images;
}

}  // namespace ndd
