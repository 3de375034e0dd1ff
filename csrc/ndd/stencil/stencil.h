// SPDX-License-Identifier: Apache-2.0
// Stencil driver: every output element is computed from a window of input elements around it. This header holds what both backends share: borders,
// the images of a sample, and arguments per axis. On the CPU, rows.h walks the rows and cpu.h convolves; on CUDA, tile.cuh stages tiles, which
// separable.cuh and windows.cuh filter, and byte_windows.cuh filters bytes with small windows, four at a time.
//
// Borders are resolved while rows or tiles are staged, so filters never read outside an image. All element types are supported, with any alignment.
//
// Which to take on CUDA: byte_windows.cuh for bytes and windows of a few fixed sizes, byte_blur.cuh for symmetric convolutions of bytes,
// separable.cuh for filters that go along one axis after the other, windows.cuh for all others that fit in shared memory. Each has a function
// that says whether it takes an image, and operators keep a kernel of an element a thread for the rest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ndd/args.h"
#include "ndd/border.h"
#include "ndd/error.h"
#include "ndd/hd.h"
#include "ndd/samples.h"

namespace ndd {

// A symmetric window of 2 * radius() + 1 taps: half[k] is the weight of the two elements at distance k, half[0] that of the center.
struct SymmetricWindow {
  std::vector<float> half{1.0f};
  int64_t radius() const { return static_cast<int64_t>(half.size()) - 1; }
};

// An image as the driver sees it: missing spatial axes have extent 1, and `inner` is the number of interleaved channels.
struct Grid {
  int64_t depth = 1, height = 1, width = 1, inner = 1;

  NDD_HD int64_t row() const { return width * inner; }
  NDD_HD int64_t volume() const { return depth * height * width * inner; }
};

// The extent of a window along an axis: `size` elements, `before` of which precede the output's own position.
struct Reach {
  int32_t size = 1, before = 0;
};

// The dimensions of a sample that are filtered: `spatial` ones from `first` on. Frames and planar channels precede them and form separate images;
// interleaved channels follow them.
struct SpatialAxes {
  int64_t first, spatial;

  int64_t images(const Samples& in, int64_t i) const {
    int64_t count = 1;
    for (int64_t d = 0; d < first; ++d) count *= in.shape(i)[d];
    return count;
  }

  // The frame to which one of the images of sample i belongs.
  int64_t frame(const Samples& in, int64_t i, int64_t image) const {
    const int64_t frames = first > 0 ? in.shape(i)[0] : 1;
    return frames > 1 ? image / (images(in, i) / frames) : 0;
  }

  Grid grid(const Samples& in, int64_t i) const {
    if (first < 0 || spatial < 1 || spatial > 3 || first + spatial > in.ndim())
      fail(Error::Value, "images of ", in.ndim(), " dimensions do not have the ", spatial, " axes from ", first, " on");
    const int64_t* shape = in.shape(i) + first;
    Grid grid;
    grid.width = shape[spatial - 1];
    if (spatial > 1) grid.height = shape[spatial - 2];
    if (spatial > 2) grid.depth = shape[0];
    for (int64_t d = spatial; d < in.ndim() - first; ++d) grid.inner *= shape[d];
    return grid;
  }
};

// Values for every axis and frame: a row of the tensor holds one value, one per axis, or (frames, 1 or axes).
template <class T>
class AxisArgs {
 public:
  AxisArgs(const char* op, const Tensor& tensor)
      : op_(op), values_(tensor), frames_(tensor.dim() > 2 ? tensor.size(1) : 1), axes_(tensor.dim() > 1 ? tensor.size(tensor.dim() - 1) : 1) {}

  T operator()(int64_t i, int64_t frame, int64_t axis) const {
    if (frames_ > 1 && frame >= frames_) fail(op_, ": sample ", i, " has more frames than the ", frames_, " of its arguments");
    return values_(i, (frames_ > 1 ? frame * axes_ : 0) + (axes_ > 1 ? axis : 0));
  }

 private:
  const char* op_;
  Args<T> values_;
  int64_t frames_, axes_;
};

}  // namespace ndd
