// SPDX-License-Identifier: Apache-2.0
// One pixel at a time, with formulas in double: such files are rare. Palettes and inks, which are exact in integers, stay in integers.
#include "decoders/tiff/colors.h"

#include "decoders/headers/file_header.h"
#include "decoders/pixel_colors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

namespace ndd {
namespace {

// 3x3, row by row.
using Matrix = std::array<double, 9>;

// Bradford's chromatic adaptation and its inverse, and XYZ (D65) to linear sRGB (IEC 61966-2-1).
constexpr Matrix kBradford{0.8951, 0.2664, -0.1614, -0.7502, 1.7135, 0.0367, 0.0389, -0.0685, 1.0296};
constexpr Matrix kFromBradford{0.9869929, -0.1470543, 0.1599627, 0.4323053, 0.5183603, 0.0492912, -0.0085287, 0.0400428, 0.9684867};
constexpr Matrix kLinearOfXyz{3.2404542, -1.5371385, -0.4985314, -0.9692660, 1.8760108, 0.0415560, 0.0556434, -0.2040259, 1.0572252};
// X, Y, Z of the white of sRGB.
constexpr std::array<double, 3> kD65{0.95047, 1, 1.08883};

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c{};
  for (size_t i = 0; i < 9; ++i) {
    for (size_t k = 0; k < 3; ++k) c[i] += a[i / 3 * 3 + k] * b[k * 3 + i % 3];
  }
  return c;
}

std::array<double, 3> product(const Matrix& a, const std::array<double, 3>& b) {
  std::array<double, 3> c{};
  for (size_t i = 0; i < 9; ++i) c[i / 3] += a[i] * b[i % 3];
  return c;
}

// The transfer function of sRGB.
double of_srgb_curve(double linear) {
  if (linear <= 0.0031308) return std::max(linear, 0.0) * 12.92;
  return 1.055 * std::pow(std::min(linear, 1.0), 1 / 2.4) - 0.055;
}

// The inverse of the function in the definition of L*a*b*: a cube root with a linear segment near zero.
double of_lab_curve(double value) { return value > 6.0 / 29 ? value * value * value : 3 * 36.0 / 841 * (value - 4.0 / 29); }

// Fractions of the full range of a type, rounded to nearest, and back. Floats are fractions already.
template <class T>
T of_unit(double fraction) {
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(fraction);
  return static_cast<T>(std::clamp(fraction, 0.0, 1.0) * static_cast<double>(std::numeric_limits<T>::max()) + 0.5);
}

template <class T>
double to_unit(T value) {
  if constexpr (std::is_floating_point_v<T>) return static_cast<double>(value);
  return static_cast<double>(value) / static_cast<double>(std::numeric_limits<T>::max());
}

// Returns the light that a colored ink and black transmit.
template <class T>
T light_of_inks(T ink, T black) {
  if constexpr (std::is_integral_v<T>) {
    // In integers where they are exact: (1 - ink)(1 - black), rounded. 32-bit samples do not overflow 64 bits.
    constexpr uint64_t full = std::numeric_limits<T>::max();
    return static_cast<T>(((full - ink) * (full - black) + full / 2) / full);
  }
  return static_cast<T>((1 - to_unit(ink)) * (1 - to_unit(black)));
}

}  // namespace

TiffColorConverter::TiffColorConverter(const TiffImage& image, bool keep_extra)
    : colors_(image.colors), dtype_(image.dtype()), inks_(image.colors == TiffColors::inks && keep_extra) {
  // The conversion, not the tag, decides how many samples a pixel has: palettes have one, CMYK four, the others as many as colors.
  const bool from_codec = colors_ == TiffColors::ycbcr && image.compression == 7;  // JPEG: libjpeg delivers RGB
  const bool colored = colors_ == TiffColors::palette || colors_ == TiffColors::inks || colors_ == TiffColors::ycbcr ||
                       colors_ == TiffColors::cielab || colors_ == TiffColors::icclab;
  color_channels_ = inks_ ? 4 : image.color_channels();
  color_samples_ = colors_ == TiffColors::palette ? 1 : colors_ == TiffColors::inks ? 4 : color_channels_;
  const int64_t extra = keep_extra ? image.samples - color_samples_ : 0;
  samples_ = color_samples_ + extra;
  channels_ = color_channels_ + extra;
  needed_ = (colored && !from_codec && !inks_) || colors_ == TiffColors::white_is_zero;
  if (colors_ == TiffColors::palette) read_palette(image);
  if (colors_ == TiffColors::ycbcr) read_luma(image);
  if (colors_ == TiffColors::cielab || colors_ == TiffColors::icclab) read_white(image);
}

void TiffColorConverter::read_palette(const TiffImage& image) {
  const TiffValues values = *image.tags.numbers(kTiffPalette);
  const size_t colors = static_cast<size_t>(1) << image.bits;
  largest_index_ = static_cast<int64_t>(colors) - 1;
  palette_.resize(3 * colors);
  // A color map stores all reds, then all greens, then all blues, of 16 bits each (TIFF 6.0, section 5).
  for (size_t i = 0; i < 3 * colors; ++i) palette_[i % colors * 3 + i / colors] = static_cast<uint16_t>(image.tags.number_at(values, i));
  // Some old writers store bytes, which libtiff accepts too: a palette without any value above 255.
  if (*std::max_element(palette_.begin(), palette_.end()) < 256) {
    for (uint16_t& value : palette_) value = static_cast<uint16_t>(value * 257);
  }
}

void TiffColorConverter::read_luma(const TiffImage& image) {
  const auto weights = image.tags.reals(kTiffLuma, {0.299, 0.587, 0.114});
  // YCbCrCoefficients and ReferenceBlackWhite (TIFF 6.0, sections 20 and 21); full-range BT.601 by default.
  const double full = std::ldexp(1.0, static_cast<int>(image.bits)) - 1, middle = std::ldexp(1.0, static_cast<int>(image.bits) - 1);
  const auto codes = image.tags.reals(kTiffBlackWhite, {0, full, middle, full, middle, full});
  std::copy(weights.begin(), weights.end(), luma_.begin());
  for (size_t i = 0; i < 6; ++i) black_white_[i] = codes[i] / full;
  // Both are divided by below.
  for (const double weight : luma_) {
    if (!(weight > 0.001 && weight < 1)) TiffDirectory::reject(kTiffLuma, "is not three weights between 0 and 1");
  }
  for (size_t i = 0; i < 6; i += 2) {
    const double range = std::abs(black_white_[i + 1] - black_white_[i]);
    if (!(range > 1e-6 && std::isfinite(range))) TiffDirectory::reject(kTiffBlackWhite, "has equal codes for black and white");
  }
}

// Adapts colors to the white of sRGB: Bradford's transform maps the white point of the file, D50 by default, to D65.
void TiffColorConverter::read_white(const TiffImage& image) {
  const auto xy = image.tags.reals(kTiffWhitePoint, {0.345702915, 0.358538597});
  // xy chromaticities of a real light; written so that NaN fails, too.
  if (!(xy[0] > 0.05 && xy[1] > 0.05 && xy[0] + xy[1] < 1)) TiffDirectory::reject(kTiffWhitePoint, "is not a plausible white point");
  const std::array<double, 3> white{xy[0] / xy[1], 1, (1 - xy[0] - xy[1]) / xy[1]};
  const auto from = product(kBradford, white), to = product(kBradford, kD65);
  // Scale the responses of the cones from one white to the other, between the transforms to cone responses and back.
  const Matrix scale{to[0] / from[0], 0, 0, 0, to[1] / from[1], 0, 0, 0, to[2] / from[2]};
  const Matrix relative{white[0], 0, 0, 0, white[1], 0, 0, 0, white[2]};
  to_linear_ = product(kLinearOfXyz, product(kFromBradford, product(scale, product(kBradford, relative))));
  // The constants above are rounded. Normalizing the rows maps white exactly to white, and so gray to gray.
  for (size_t row = 0; row < 9; row += 3) {
    const double sum = to_linear_[row] + to_linear_[row + 1] + to_linear_[row + 2];
    for (size_t i = row; i < row + 3; ++i) to_linear_[i] /= sum;
  }
}

template <class T>
void TiffColorConverter::convert_ycbcr(const T* in, T* out) const {
  double codes[3];
  for (size_t i = 0; i < 3; ++i) {
    const double black = black_white_[2 * i], white = black_white_[2 * i + 1];
    // Chroma ranges from -0.5 to 0.5, stored as -127 to 127 of 255.
    codes[i] = (to_unit(in[i]) - black) / (white - black) * (i == 0 ? 1 : 127.0 / 255);
  }
  // TIFF 6.0, section 21: R = Y + Cr (2 - 2 LumaRed), B likewise, and G from the definition of Y.
  // The inverse of Y = r R + g G + b B, Cb = (B - Y) / (2 - 2 b), Cr = (R - Y) / (2 - 2 r), with the weights r, g, b of the file.
  const double red = codes[0] + codes[2] * (2 - 2 * luma_[0]), blue = codes[0] + codes[1] * (2 - 2 * luma_[2]);
  out[0] = of_unit<T>(red);
  out[1] = of_unit<T>((codes[0] - luma_[0] * red - luma_[2] * blue) / luma_[1]);
  out[2] = of_unit<T>(blue);
}

template <class T>
void TiffColorConverter::convert_lab(const T* in, T* out) const {
  if constexpr (std::is_integral_v<T> && sizeof(T) <= 2) {
    constexpr double unit = sizeof(T) == 1 ? 1 : 256, full = std::numeric_limits<T>::max();
    const bool icc = colors_ == TiffColors::icclab;
    // CIELAB stores a* and b* as signed numbers, ICCLAB with an offset of 128; 16-bit samples have 8 fraction bits. In 16-bit ICCLAB, L* = 100 is
    // 0xff00; in CIELAB it is the full range (TIFF 6.0, section 23; Adobe TIFF Technical Note 4).
    const auto chroma = [&](T value) {
      return icc ? static_cast<double>(value) / unit - 128 : static_cast<double>(static_cast<std::make_signed_t<T>>(value)) / unit;
    };
    const double lightness = static_cast<double>(in[0]) * 100 / (icc && sizeof(T) == 2 ? 65280 : full);
    // CIE 15: f(Y) = (L* + 16) / 116, f(X) = f(Y) + a* / 500, f(Z) = f(Y) - b* / 200.
    const double y = (lightness + 16) / 116;
    const std::array<double, 3> xyz{of_lab_curve(y + chroma(in[1]) / 500), of_lab_curve(y), of_lab_curve(y - chroma(in[2]) / 200)};
    const auto linear = product(to_linear_, xyz);
    for (size_t i = 0; i < 3; ++i) out[i] = of_unit<T>(of_srgb_curve(linear[i]));
  }
}

template <class T>
void TiffColorConverter::convert_color(const T* in, T* out) const {
  switch (colors_) {
    case TiffColors::white_is_zero:
      if constexpr (std::is_integral_v<T>) out[0] = static_cast<T>(std::numeric_limits<T>::max() - in[0]);
      return;
    case TiffColors::palette:
      if constexpr (std::is_same_v<T, uint16_t>) std::copy_n(&palette_[3 * static_cast<size_t>(in[0])], 3, out);
      return;
    case TiffColors::inks:
      for (size_t i = 0; i < 3; ++i) out[i] = light_of_inks(in[i], in[3]);
      return;
    case TiffColors::ycbcr: return convert_ycbcr(in, out);
    default: return convert_lab(in, out);
  }
}

template <class T>
void TiffColorConverter::convert_pixels(const T* in, int64_t stride, int64_t pixels, T* out) const {
  for (int64_t i = 0; i < pixels; ++i, in += stride, out += channels_) {
    if (needed_) convert_color(in, out);
    else std::copy_n(in, color_channels_, out);
    for (int64_t s = color_samples_; s < samples_; ++s) {
      T value = in[s];
      if constexpr (std::is_same_v<T, uint16_t>) {
        // A palette image has 16-bit colors; its alpha has the bits of the indices and is scaled up.
        if (largest_index_) value = static_cast<T>((value * 65535 + largest_index_ / 2) / largest_index_);
      }
      out[color_channels_ + s - color_samples_] = value;
    }
  }
}

void TiffColorConverter::convert(const void* in, int64_t stride, int64_t pixels, void* out) const {
  switch (dtype_) {
    case DType::uint8: return convert_pixels(static_cast<const uint8_t*>(in), stride, pixels, static_cast<uint8_t*>(out));
    case DType::uint16: return convert_pixels(static_cast<const uint16_t*>(in), stride, pixels, static_cast<uint16_t*>(out));
    case DType::uint32: return convert_pixels(static_cast<const uint32_t*>(in), stride, pixels, static_cast<uint32_t*>(out));
    default: return convert_pixels(static_cast<const float*>(in), stride, pixels, static_cast<float*>(out));
  }
}

}  // namespace ndd
