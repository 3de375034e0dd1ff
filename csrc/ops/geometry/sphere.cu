// SPDX-License-Identifier: Apache-2.0
// sphere: from = center + d * |d| / r, where d is the distance from the center and r half of the longer side.
#include "ndd/kernel.h"
#include "ndd/warp/driver.h"

namespace ndd::sphere_kernels {
namespace {

// mul_then_add rounds twice on both devices: a fused multiply-add would move points that lie on the border of two pixels.
struct SphereMap {
  float center_x, center_y, per_radius;

  NDD_HD Point<2> operator()(const Point<2>& to) const {
    const float x = to.at[0] - center_x, y = to.at[1] - center_y;
    const float stretch = sqrtf(mul_then_add(x, x, y * y)) * per_radius;
    return {mul_then_add(x, stretch, center_x), mul_then_add(y, stretch, center_y)};
  }
};

struct SphereMaps {
  using Map = SphereMap;
  Args<int64_t> mask;

  void operator()(WarpItem<2, SphereMap>& item, int64_t i, int64_t) const {
    const int64_t width = item.size[0], height = item.size[1];
    const int64_t radius = (width > height ? width : height) / 2;  // truncated, as in DALI
    item.map = {0.5f * static_cast<float>(width), 0.5f * static_cast<float>(height), radius > 0 ? 1.0f / static_cast<float>(radius) : 0.0f};
    if (mask(i) == 0) item.interp = Interp::copy;
  }
};

void sphere(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& fill_value, int64_t interp_type, const Tensor& mask,
            int64_t first_spatial, bool frames, const Tensor& output, const MaybeTensor& output_shapes) {
  const WarpImages images("sphere", {input, input_shapes}, {output, output_shapes}, Border::constant, fill_value, first_spatial, 2, frames);
  warp_images<2, false>(images, static_cast<Interp>(interp_type), SphereMaps{Args<int64_t>(mask)});
}

}  // namespace
}  // namespace ndd::sphere_kernels
NDD_KERNELS(sphere, ndd::sphere_kernels::sphere)
