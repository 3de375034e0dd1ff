// SPDX-License-Identifier: Apache-2.0
// water: from = (x + ampl_x sin(freq_x y + phase_x), y + ampl_y cos(freq_y x + phase_y)), where x and y are the output pixel's numbers.
#include <cstdint>
#include <vector>

#include "ndd/kernel.h"
#include "ndd/warp/driver.h"

namespace ndd::water_kernels {
namespace {

// Sine and cosine that CPU loops vectorize and both backends agree about: sinf is a call, many times as slow.
//
// sin(x + quarters * pi / 2) for |x| up to 1e8, correctly rounded to float except for a few arguments in a million; some value from -1 to 1 for any other x.
// In double: at multiples of pi / 2 the result must be exact, because a point there lies on the border of two pixels.
NDD_HD float sine_shifted(float x, double quarters) {
  const double turns = static_cast<double>(x) * 0.31830988618379067 + 0.5 * quarters;  // in half turns
  const double limited = turns > -1e9 ? turns < 1e9 ? turns : 1e9 : -1e9;              // what an int32 holds
  const int32_t whole = static_cast<int32_t>(limited + (limited < 0 ? -0.5 : 0.5));
  double r = (turns - whole) * 3.141592653589793;
  r = r > -1.5707963267948966 ? r < 1.5707963267948966 ? r : 1.5707963267948966 : -1.5707963267948966;  // bounds whatever was limited above
  const double s = r * r;
  // Taylor's series up to r^15: the next term is below 7e-12.
  const double series =
      s * (-1.0 / 6 + s * (1.0 / 120 +
                           s * (-1.0 / 5040 + s * (1.0 / 362880 + s * (-1.0 / 39916800 + s * (1.0 / 6227020800.0 + s * (-1.0 / 1307674368000.0)))))));
  const float sine = static_cast<float>(r + r * series);
  return whole & 1 ? -sine : sine;
}

NDD_HD float sine(float x) { return sine_shifted(x, 0.0); }
NDD_HD float cosine(float x) { return sine_shifted(x, 1.0); }

struct WaterMap {
  float ampl_x, ampl_y, freq_x, freq_y, phase_x, phase_y;

  NDD_HD float shift_x(float y) const { return ampl_x * sine(mul_then_add(freq_x, y, phase_x)); }
  NDD_HD float shift_y(float x) const { return ampl_y * cosine(mul_then_add(freq_y, x, phase_y)); }

  NDD_HD Point<2> operator()(const Point<2>& to) const {
    // The map is given pixel centers; the formula above counts pixels.
    const float x = to.at[0] - 0.5f, y = to.at[1] - 0.5f;
    return {x + shift_x(y), y + shift_y(x)};
  }

  // On the CPU a table replaces the map, see host_map().
  struct OnHost;
  OnHost on_host(const int64_t* size) const;
};

// Each row shares one sine and each column one cosine: evaluating both for every pixel took 60 ms for 16 VGA images, ten times as long as sampling them.
struct WaterMap::OnHost {
  WaterMap map;
  std::vector<float> shift_y;  // of every column

  void row(const Point<2>& first, int64_t n, warp::Coordinates<2>& coords) const {
    with_simd([&]() NDD_ALWAYS_INLINE {
      const float x = first.at[0] - 0.5f, y = first.at[1] - 0.5f, right = map.shift_x(y);
      const float* __restrict down = shift_y.data() + static_cast<int64_t>(x);
      float* __restrict xs = coords.at[0], * __restrict ys = coords.at[1];
      const auto count = static_cast<int32_t>(n);
      for (int32_t j = 0; j < count; ++j) {
        xs[j] = x + static_cast<float>(j) + right;
        ys[j] = y + down[j];
      }
    });
  }
};

WaterMap::OnHost WaterMap::on_host(const int64_t* size) const {
  OnHost host{*this, std::vector<float>(size[0])};
  with_simd([&]() NDD_ALWAYS_INLINE {
    const WaterMap map = *this;
    float* __restrict shift = host.shift_y.data();
    const auto width = static_cast<int32_t>(size[0]);
    for (int32_t x = 0; x < width; ++x) shift[x] = map.shift_y(static_cast<float>(x));
  });
  return host;
}

struct WaterMaps {
  using Map = WaterMap;
  Args<float> ampl_x, ampl_y, freq_x, freq_y, phase_x, phase_y;
  Args<int64_t> mask;

  void operator()(WarpItem<2, WaterMap>& item, int64_t i, int64_t) const {
    item.map = {ampl_x(i), ampl_y(i), freq_x(i), freq_y(i), phase_x(i), phase_y(i)};
    // A sample that is masked out is copied.
    if (mask(i) == 0) item.interp = Interp::copy;
  }
};

void water(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& ampl_x, const Tensor& ampl_y, const MaybeTensor& fill_value,
           const Tensor& freq_x, const Tensor& freq_y, int64_t interp_type, const Tensor& mask, const Tensor& phase_x, const Tensor& phase_y,
           int64_t first_spatial, bool frames, const Tensor& output, const MaybeTensor& output_shapes) {
  const WarpImages images("water", {input, input_shapes}, {output, output_shapes}, Border::constant, fill_value, first_spatial, 2, frames);
  const WaterMaps maps{Args<float>(ampl_x),  Args<float>(ampl_y),  Args<float>(freq_x), Args<float>(freq_y),
                       Args<float>(phase_x), Args<float>(phase_y), Args<int64_t>(mask)};
  warp_images<2, false>(images, static_cast<Interp>(interp_type), maps);
}

}  // namespace
}  // namespace ndd::water_kernels
NDD_KERNELS(water, ndd::water_kernels::water)
