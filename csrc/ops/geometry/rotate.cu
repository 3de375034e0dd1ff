// SPDX-License-Identifier: Apache-2.0
// rotate: from = r * (to - center of the output) + center of the input.
#include "ndd/kernel.h"
#include "ndd/warp/driver.h"

namespace ndd::rotate_kernels {
namespace {

// Sizes are x first. In double, so a quarter turn maps pixel centers exactly onto pixel centers.
template <int D>
AffineMap<D> map_about_centers(const double (&r)[D][D], const int64_t (&in)[D], const int64_t (&out)[D]) {
  AffineMap<D> map;
  for (int i = 0; i < D; ++i) {
    // The center of the input minus r times that of the output.
    double shift = 0.5 * static_cast<double>(in[i]);
    for (int k = 0; k < D; ++k) {
      map.m[i][k] = static_cast<float>(r[i][k]);
      shift -= r[i][k] * 0.5 * static_cast<double>(out[k]);
    }
    map.m[i][D] = static_cast<float>(shift);
  }
  return map;
}

// An argument has one value for the sample, or one for each frame.
template <int D>
class RotationMaps {
 public:
  using Map = AffineMap<D>;

  RotationMaps(const WarpImages& images, const Tensor& angle, const MaybeTensor& axis) : images_(images), angle_(angle) {
    if (axis) axis_.emplace(*axis);
  }

  void operator()(WarpItem<D, Map>& item, int64_t i, int64_t f) const {
    images_.check_frames(i, angle_.cols(), "angle");
    const double degrees = angle_.of_frame(i, f);
    if (!std::isfinite(degrees)) images_.refuse(i, "angle must be finite");
    const double radians = degrees * (M_PI / 180.0), c = std::cos(radians);
    if constexpr (D == 2) {  // counter-clockwise as displayed, y pointing down
      const double s = std::sin(radians);
      item.map = map_about_centers<2>({{c, -s}, {s, c}}, item.src.size, item.size);
    } else {  // the inverse of the right-handed rotation about the axis
      const double s = -std::sin(radians), v = 1.0 - c;
      const Point<3> axis = direction(i, f);
      const double x = axis.at[0], y = axis.at[1], z = axis.at[2], length = std::sqrt(x * x + y * y + z * z);
      if (!(length > 0.0) || !std::isfinite(length)) images_.refuse(i, "axis must be finite and not zero");
      const double a[3] = {x / length, y / length, z / length};
      // Rodrigues' formula.
      item.map = map_about_centers<3>({{c + v * a[0] * a[0], v * a[0] * a[1] - s * a[2], v * a[0] * a[2] + s * a[1]},
                                       {v * a[0] * a[1] + s * a[2], c + v * a[1] * a[1], v * a[1] * a[2] - s * a[0]},
                                       {v * a[0] * a[2] - s * a[1], v * a[1] * a[2] + s * a[0], c + v * a[2] * a[2]}},
                                      item.src.size, item.size);
    }
  }

 private:
  Point<3> direction(int64_t i, int64_t f) const {
    images_.check_frames(i, axis_->cols() / 3, "axis");
    const int64_t first = axis_->cols() > 3 ? 3 * f : 0;
    return {(*axis_)(i, first), (*axis_)(i, first + 1), (*axis_)(i, first + 2)};
  }

  WarpImages images_;
  Args<float> angle_;
  std::optional<Args<float>> axis_;
};

void rotate(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& angle, const MaybeTensor& axis, const MaybeTensor& fill_value,
            int64_t interp_type, bool fades, int64_t first_spatial, int64_t spatial, bool frames, const Tensor& output,
            const MaybeTensor& output_shapes) {
  const WarpImages images("rotate", {input, input_shapes}, {output, output_shapes}, fill_value ? Border::constant : Border::clamp, fill_value,
                          first_spatial, spatial, frames, fades);
  const Interp interp = static_cast<Interp>(interp_type);
  if (spatial == 3) warp_images<3, false>(images, interp, RotationMaps<3>(images, angle, axis));
  else warp_images<2, false>(images, interp, RotationMaps<2>(images, angle, axis));
}

}  // namespace
}  // namespace ndd::rotate_kernels
NDD_KERNELS(rotate, ndd::rotate_kernels::rotate)
