// SPDX-License-Identifier: Apache-2.0
// sRGB to CIE L*a*b* (white D65) and back, all in 8 bits: L * 255 / 100, a + 128, b + 128.
//
// The forward conversion is in integers: linear light in 2040 levels, the cube root of XYZ in 15 bits, which gives the L of OpenCV and so of DALI exactly,
// and with it the same histograms. The way back is in float and differs from theirs by up to two levels.
#pragma once

#include <cmath>
#include <cstdint>

#include "ndd/hd.h"

namespace ndd {

struct LabTables {
  static constexpr int kLight = 2040, kRoots = kLight + 1, kGamma = 16384;

  uint16_t light[256];  // of a level of R, G or B
  uint16_t root[kRoots];  // f(x / 2040) * 2^15, where f is the cube root, or a line near 0
  uint8_t gamma[kGamma + 1];  // level of R, G or B for light * 16384

  LabTables() {
    for (int v = 0; v < 256; ++v) {
      const double x = v / 255.0;
      light[v] = static_cast<uint16_t>(std::lround(kLight * (x <= 0.04045 ? x / 12.92 : std::pow((x + 0.055) / 1.055, 2.4))));
    }
    for (int k = 0; k < kRoots; ++k) {
      const double x = static_cast<double>(k) / kLight;
      root[k] = static_cast<uint16_t>(std::lround(32768 * (x > 0.008856 ? std::cbrt(x) : 7.787 * x + 16.0 / 116)));
    }
    for (int k = 0; k <= kGamma; ++k) {
      const double x = static_cast<double>(k) / kGamma;
      gamma[k] = static_cast<uint8_t>(std::lround(255 * (x <= 0.0031308 ? 12.92 * x : 1.055 * std::pow(x, 1 / 2.4) - 0.055)));
    }
  }
};

inline const LabTables& lab_tables() {
  static const LabTables tables;
  return tables;
}

namespace lab {

NDD_HD int32_t rounded_shift(int32_t value, int bits) { return (value + (1 << (bits - 1))) >> bits; }

// Linear light to XYZ over that of white, in 2040 levels: rows of the matrix in 12 bits, each of which adds up to 4096.
NDD_HD void xyz(int32_t r, int32_t g, int32_t b, int32_t* out) {
  out[0] = rounded_shift(1777 * r + 1541 * g + 778 * b, 12);
  out[1] = rounded_shift(871 * r + 2929 * g + 296 * b, 12);
  out[2] = rounded_shift(73 * r + 448 * g + 3575 * b, 12);
}

NDD_HD uint8_t level(int32_t value) { return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value); }

// From the roots of X, Y and Z: L = 116 f(Y) - 16, a = 500 (f(X) - f(Y)), b = 200 (f(Y) - f(Z)).
NDD_HD void from_roots(int32_t x, int32_t y, int32_t z, uint8_t* l, uint8_t* a, uint8_t* b) {
  constexpr int32_t kL = (116 * 255 + 50) / 100, kBlack = -((16 * 255 * (1 << 15) + 50) / 100), kGray = 128 << 15;
  *l = level(rounded_shift(kL * y + kBlack, 15));
  *a = level(rounded_shift(500 * (x - y) + kGray, 15));
  *b = level(rounded_shift(200 * (y - z) + kGray, 15));
}

NDD_HD float cube(float f) { return f <= 0.206893f ? (f - 16.0f / 116.0f) * (1.0f / 7.787f) : f * f * f; }

// Linear light of R, G and B as an index of LabTables::gamma.
NDD_HD int32_t index_of(float light) {
  const float scaled = light * LabTables::kGamma + 0.5f;
  return static_cast<int32_t>(scaled < 0.0f ? 0.0f : scaled > LabTables::kGamma ? static_cast<float>(LabTables::kGamma) : scaled);
}

NDD_HD void light_of(uint8_t l, uint8_t a, uint8_t b, int32_t* r, int32_t* g, int32_t* blue) {
  const float lightness = l * (100.0f / 255.0f);
  const bool dark = lightness <= 8.0f;
  float fy = (lightness + 16.0f) * (1.0f / 116.0f);
  const float y = dark ? lightness * (1.0f / 903.3f) : fy * fy * fy;
  fy = dark ? 7.787f * y + 16.0f / 116.0f : fy;
  const float x = cube(fy + (a - 128) * 0.002f) * 0.950456f, z = cube(fy - (b - 128) * 0.005f) * 1.088754f;
  *r = index_of(3.240479f * x - 1.53715f * y - 0.498535f * z);
  *g = index_of(-0.969256f * x + 1.875991f * y + 0.041556f * z);
  *blue = index_of(0.055648f * x - 0.204043f * y + 1.057311f * z);
}

}  // namespace lab
}  // namespace ndd
