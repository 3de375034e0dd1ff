// SPDX-License-Identifier: Apache-2.0
// The matrix of color_twist, hue, saturation and hsv.
#pragma once

#include <cmath>

#include "ndd/color/matrix.h"

namespace ndd::color {

// In double: products of several matrices are rounded to float once.
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
inline constexpr Matrix3 kYiqOfRgb{{{0.299, 0.587, 0.114}, {0.596, -0.274, -0.321}, {0.211, -0.523, 0.311}}};

inline Matrix3 inverse(const Matrix3& a) {
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
inline ColorMatrix twist(double brightness, double contrast, double saturation, double hue, double middle) {
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

}  // namespace ndd::color
