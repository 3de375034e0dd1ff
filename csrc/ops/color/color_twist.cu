// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ndd/color_matrix.h"
#include "ndd/kernel.h"

namespace ndd {
namespace {

struct Matrix3 {
  double m[3][3];
  Matrix3 operator*(const Matrix3& other) const {
    Matrix3 product{};
    for (int i = 0; i < 3; ++i)
      for (int k = 0; k < 3; ++k)
        for (int j = 0; j < 3; ++j) product.m[i][j] += m[i][k] * other.m[k][j];
    return product;
  }
};

// RGB to YIQ as NTSC defines it, with three decimals, and its exact inverse. With these, unlike with more decimals, results equal DALI's.
constexpr Matrix3 kYiqOfRgb{{{0.299, 0.587, 0.114}, {0.596, -0.274, -0.321}, {0.211, -0.523, 0.311}}};

Matrix3 inverse(const Matrix3& a) {
  const auto& m = a.m;
  const auto cofactor = [&](int i, int k) {
    const int r = (i + 1) % 3, s = (i + 2) % 3, p = (k + 1) % 3, q = (k + 2) % 3;
    return m[r][p] * m[s][q] - m[r][q] * m[s][p];
  };
  const double determinant = m[0][0] * cofactor(0, 0) + m[0][1] * cofactor(0, 1) + m[0][2] * cofactor(0, 2);
  Matrix3 result{};
  for (int i = 0; i < 3; ++i)
    for (int k = 0; k < 3; ++k) result.m[i][k] = cofactor(k, i) / determinant;
  return result;
}

// Hue turns and saturation scales the plane of I and Q; then contrast scales about the middle grey and brightness about black.
ColorMatrix twist(double brightness, double contrast, double saturation, double hue, double middle) {
  static const Matrix3 rgb_of_yiq = inverse(kYiqOfRgb);
  const double turn = hue * (M_PI / 180.0), c = saturation * std::cos(turn), s = saturation * std::sin(turn);
  const Matrix3 rgb = rgb_of_yiq * (Matrix3{{{1, 0, 0}, {0, c, s}, {0, -s, c}}} * kYiqOfRgb);
  ColorMatrix matrix;
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < 3; ++k) matrix.m[i][k] = static_cast<float>(brightness * contrast * rgb.m[i][k]);
    matrix.m[i][3] = static_cast<float>(brightness * (1.0 - contrast) * middle);
  }
  return matrix;
}

void color_twist(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& brightness, const Tensor& contrast, const Tensor& hue,
                 const Tensor& saturation, const Tensor& output, const MaybeTensor& output_shapes) {
  const Args<float> b(brightness), c(contrast), h(hue), s(saturation);
  const double middle = is_floating_dtype(dtype_of(input)) ? 0.5 : 128.0;
  color_matrix("color_twist", Samples(input, input_shapes), Samples(output, output_shapes), 3, 3, {&b, &c, &h, &s},
               [=](int64_t i, int64_t f) { return twist(b.of_frame(i, f), c.of_frame(i, f), s.of_frame(i, f), h.of_frame(i, f), middle); });
}

void hsv(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& hue, const Tensor& saturation, const Tensor& value, const Tensor& output,
         const MaybeTensor& output_shapes) {
  const Args<float> h(hue), s(saturation), v(value);
  color_matrix("hsv", Samples(input, input_shapes), Samples(output, output_shapes), 3, 3, {&h, &s, &v},
               [=](int64_t i, int64_t f) { return twist(v.of_frame(i, f), 1.0, s.of_frame(i, f), h.of_frame(i, f), 0.0); });
}

void hue(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& hue, const Tensor& output, const MaybeTensor& output_shapes) {
  const Args<float> h(hue);
  color_matrix("hue", Samples(input, input_shapes), Samples(output, output_shapes), 3, 3, {&h},
               [=](int64_t i, int64_t f) { return twist(1.0, 1.0, 1.0, h.of_frame(i, f), 0.0); });
}

void saturation(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& saturation, const Tensor& output, const MaybeTensor& output_shapes) {
  const Args<float> s(saturation);
  color_matrix("saturation", Samples(input, input_shapes), Samples(output, output_shapes), 3, 3, {&s},
               [=](int64_t i, int64_t f) { return twist(1.0, 1.0, s.of_frame(i, f), 0.0, 0.0); });
}

}  // namespace
}  // namespace ndd
NDD_KERNELS(color_twist, ndd::color_twist)
NDD_KERNELS(hsv, ndd::hsv)
NDD_KERNELS(hue, ndd::hue)
NDD_KERNELS(saturation, ndd::saturation)
