// SPDX-License-Identifier: Apache-2.0
// rotate: the map from output to input of every image of a batch, shared by the CPU and the CUDA kernel.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "ndd/args.h"
#include "ndd/error.h"
#include "ndd/samples.h"
#include "ndd/warp.h"

namespace ndd::rotate {

// from = r * (to - centre of the output) + centre of the input, sizes x first. In double: a quarter turn maps pixel centres onto pixel centres exactly.
template <int D>
AffineMap<D> about_centres(const double (&r)[D][D], const int64_t (&in)[D], const int64_t (&out)[D]) {
  AffineMap<D> map;
  for (int i = 0; i < D; ++i) {
    double shift = 0.5 * static_cast<double>(in[i]);
    for (int k = 0; k < D; ++k) {
      map.m[i][k] = static_cast<float>(r[i][k]);
      shift -= r[i][k] * 0.5 * static_cast<double>(out[k]);
    }
    map.m[i][D] = static_cast<float>(shift);
  }
  return map;
}

class Arguments {
 public:
  Arguments(const Tensor& angle, const MaybeTensor& axis, const MaybeTensor& fill_value) : angle_(angle) {
    if (axis) axis_.emplace(*axis);
    if (fill_value) fill_.emplace(*fill_value);
  }

  template <int D>
  static int64_t frames(const Samples& in, int64_t i) {
    return in.ndim() > D + 1 ? in.shape(i)[0] : 1;
  }

  // Frame f of sample i. An argument has one value for the sample, or one per frame.
  template <int D>
  WarpItem<D, AffineMap<D>> item(const Samples& in, const Samples& out, int64_t i, int64_t f) const {
    const int64_t *from = in.shape(i) + in.ndim() - D - 1, *to = out.shape(i) + out.ndim() - D - 1;
    WarpItem<D, AffineMap<D>> item;
    item.src.channels = from[D];
    item.src.clamp = !fill_;
    item.src.fill = fill_ ? (*fill_)(i) : 0.0f;
    int64_t in_volume = from[D], out_volume = to[D];
    for (int d = 0; d < D; ++d) {
      item.src.size[d] = from[D - 1 - d];
      item.size[d] = to[D - 1 - d];
      item.src.stride[d] = in_volume;
      in_volume *= item.src.size[d];
      out_volume *= item.size[d];
    }
    if (in_volume == 0 && out_volume > 0) throw Error(Error::Runtime, "rotate: sample " + std::to_string(i) + " has no pixels");
    item.src.data = static_cast<const char*>(in.data(i)) + f * in_volume * in.item_bytes();
    item.out = static_cast<char*>(out.data(i)) + f * out_volume * out.item_bytes();
    item.map = map(i, f, item.src.size, item.size);
    return item;
  }

 private:
  double radians(int64_t i, int64_t f) const {
    if (angle_.cols() > 1 && f >= angle_.cols())
      throw Error(Error::Runtime, "rotate: sample " + std::to_string(i) + " has more frames than the " + std::to_string(angle_.cols()) + " of angle");
    const double degrees = angle_.of_frame(i, f);
    if (!std::isfinite(degrees)) throw Error(Error::Runtime, "rotate: angle must be finite, sample " + std::to_string(i));
    return degrees * (M_PI / 180.0);
  }

  // Counter-clockwise as displayed, y pointing down.
  AffineMap<2> map(int64_t i, int64_t f, const int64_t (&in)[2], const int64_t (&out)[2]) const {
    const double c = std::cos(radians(i, f)), s = std::sin(radians(i, f));
    return about_centres<2>({{c, -s}, {s, c}}, in, out);
  }

  // The inverse of the right-handed rotation about the axis (x, y, z), which need not be normalised.
  AffineMap<3> map(int64_t i, int64_t f, const int64_t (&in)[3], const int64_t (&out)[3]) const {
    const int64_t first = axis_->cols() > 3 ? 3 * f : 0;
    if (first + 3 > axis_->cols())
      throw Error(Error::Runtime, "rotate: sample " + std::to_string(i) + " has more frames than the " + std::to_string(axis_->cols() / 3) + " of axis");
    double x = (*axis_)(i, first), y = (*axis_)(i, first + 1), z = (*axis_)(i, first + 2);
    const double length = std::sqrt(x * x + y * y + z * z);
    if (!(length > 0.0) || !std::isfinite(length))
      throw Error(Error::Runtime, "rotate: axis must be finite and not zero, sample " + std::to_string(i));
    x /= length, y /= length, z /= length;
    const double c = std::cos(radians(i, f)), s = -std::sin(radians(i, f)), v = 1.0 - c;
    return about_centres<3>({{c + v * x * x, v * x * y - s * z, v * x * z + s * y},
                             {v * x * y + s * z, c + v * y * y, v * y * z - s * x},
                             {v * x * z - s * y, v * y * z + s * x, c + v * z * z}},
                            in, out);
  }

  Args<float> angle_;
  std::optional<Args<float>> axis_, fill_;
};

}  // namespace ndd::rotate
