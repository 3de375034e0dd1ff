// SPDX-License-Identifier: Apache-2.0
// The kernel of indexing: sample i of the output is a part of sample index[i] of the input (of sample i without an index), from `starts` in steps
// of `steps`, which have one row for all samples or one for each. A step of 0 picks one position and drops the axis.
#include <cstdint>
#include <cstdlib>

#include "ndd/args.h"
#include "ndd/kernel.h"
#include "ndd/slice/slice.h"

namespace ndd {
namespace {

struct Axis {
  int64_t extent, stride;
};

// Axes of one element are dropped and contiguous ones merged, so the driver walks as few axes as possible.
void add_axis(std::vector<Axis>& axes, Axis axis) {
  if (axis.extent == 1) return;
  if (!axes.empty() && axes.back().stride == axis.extent * axis.stride) axes.back() = {axes.back().extent * axis.extent, axis.stride};
  else axes.push_back(axis);
}

// A slice for every position of the axes that the driver has no room for: rarely more than one.
void add_slices(SliceBatch& batch, const Axis* axes, int ndim, const char* in, char* out, int64_t item) {
  if (ndim > kSliceDims) {
    int64_t volume = item;
    for (int d = 1; d < ndim; ++d) volume *= axes[d].extent;
    for (int64_t k = 0; k < axes->extent; ++k) add_slices(batch, axes + 1, ndim - 1, in + k * axes->stride * item, out + k * volume, item);
    return;
  }
  Slice slice;
  slice.in = in;
  slice.out = out;
  for (int d = 0; d < ndim; ++d) {
    slice.extent[d] = slice.end[d] = axes[d].extent;
    slice.stride[d] = axes[d].stride;
    slice.begin[d] = 0;
  }
  slice.ndim = ndim;
  batch.slices.push_back(slice);
}

void take(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& index, const Tensor& starts, const Tensor& steps,
          const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const std::optional<Args<int64_t>> chosen = index ? std::optional<Args<int64_t>>(*index) : std::nullopt;
  const Args<int64_t> first(starts), step(steps);
  run_slices("take", out.size(), in, out, true, [=](int64_t i, SliceBatch& batch) {
    batch.channels.resize(1);
    // From here on no extent is 0, which is divided by below.
    if (out.volume(i) == 0) return;
    const int64_t source = chosen ? (*chosen)(i) : i, *shape = in.shape(source), *extents = out.shape(i);
    const auto* from = static_cast<const char*>(in.data(source));
    std::vector<Axis> axes;
    int64_t stride = in.volume(source);
    const int64_t* const end = extents + out.ndim();
    for (int64_t d = 0; d < in.ndim(); ++d) {
      const int64_t begin = first(i, d), by = step(i, d), count = by == 0 ? 1 : extents == end ? 0 : *extents;
      // Compared without the last position, which could overflow.
      const bool inside = begin >= 0 && begin < shape[d];
      const int64_t room = !inside ? 0 : by < 0 ? begin : shape[d] - 1 - begin;
      if (!inside || count < 1 || by == INT64_MIN || (count - 1 > 0 && room / (count - 1) < std::abs(by)))
        fail(Error::Value, "take: sample ", i, ": axis ", d, " of ", shape[d], " elements does not have those from ", begin, " on");
      stride /= shape[d];
      from += begin * stride * in.item_bytes();
      if (by != 0) {
        add_axis(axes, {count, count > 1 ? by * stride : 0});
        ++extents;
      }
    }
    if (extents != end) fail(Error::Value, "take: sample ", i, " of the output has more dimensions than are kept");
    add_slices(batch, axes.data(), static_cast<int>(axes.size()), from, static_cast<char*>(out.data(i)), in.item_bytes());
  });
}

}  // namespace
}  // namespace ndd
NDD_HOST_KERNELS(take, ndd::take)
