// SPDX-License-Identifier: Apache-2.0
// water: from = (x + ampl_x sin(freq_x y + phase_x), y + ampl_y cos(freq_y x + phase_y)), where x and y are the output pixel's numbers.
#include "ndd/kernel.h"
#include "ndd/sine.h"
#include "ndd/warp_driver.h"

namespace ndd {
namespace {

struct WaterMap {
  float ampl_x, ampl_y, freq_x, freq_y, phase_x, phase_y;

  NDD_HD Point<2> operator()(const Point<2>& to) const {
    const float x = to.at[0] - 0.5f, y = to.at[1] - 0.5f;
    return {x + ampl_x * sine(freq_x * y + phase_x), y + ampl_y * cosine(freq_y * x + phase_y)};
  }
};

struct WaterMaps {
  using Map = WaterMap;
  Args<float> ampl_x, ampl_y, freq_x, freq_y, phase_x, phase_y;
  Args<int64_t> mask;

  void operator()(WarpItem<2, WaterMap>& item, int64_t i, int64_t) const {
    item.map = {ampl_x(i), ampl_y(i), freq_x(i), freq_y(i), phase_x(i), phase_y(i)};
    if (mask(i) == 0) item.interp = Interp::copy;
  }
};

void water(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& ampl_x, const Tensor& ampl_y, const MaybeTensor& fill_value,
           const Tensor& freq_x, const Tensor& freq_y, int64_t interp_type, const Tensor& mask, const Tensor& phase_x, const Tensor& phase_y,
           int64_t first_spatial, bool frames, const Tensor& output, const MaybeTensor& output_shapes) {
  const WarpImages images("water", {input, input_shapes}, {output, output_shapes}, Border::constant, fill_value, first_spatial, 2, frames);
  const WaterMaps maps{Args<float>(ampl_x), Args<float>(ampl_y),  Args<float>(freq_x),  Args<float>(freq_y),
                       Args<float>(phase_x), Args<float>(phase_y), Args<int64_t>(mask)};
  warp_images<2, false>(images, static_cast<Interp>(interp_type), maps);
}

}  // namespace
}  // namespace ndd
NDD_KERNELS(water, ndd::water)
