// SPDX-License-Identifier: Apache-2.0
// Conversion of TIFF samples to gray or RGB.
#pragma once

#include "decoders/tiff/tiff_image.h"

#include <array>
#include <cstdint>
#include <vector>

namespace ndd {

// Reads the tags on which a conversion depends once, and then converts any number of pixels. convert() is const and thread-safe.
class TiffColorConverter {
 public:
  // `keep_extra`: keep the samples that are not colors, such as alpha, after the colors, and keep inks as they are.
  TiffColorConverter(const TiffImage& image, bool keep_extra);

  bool is_needed() const { return needed_; }
  // Number of samples that `convert` reads of each pixel: the first ones.
  int64_t samples() const { return samples_; }
  // Number of channels that `convert` writes.
  int64_t channels() const { return channels_; }

  // `in` has pixels of `stride` samples of `image.dtype()`, as RowUnpacker delivers them; palette colors are indices.
  void convert(const void* in, int64_t stride, int64_t pixels, void* out) const;

 private:
  template <class T>
  void convert_pixels(const T* in, int64_t stride, int64_t pixels, T* out) const;
  template <class T>
  void convert_color(const T* in, T* out) const;
  template <class T>
  void convert_ycbcr(const T* in, T* out) const;
  template <class T>
  void convert_lab(const T* in, T* out) const;
  void read_palette(const TiffImage& image);
  void read_luma(const TiffImage& image);
  void read_white(const TiffImage& image);

  const TiffColors colors_;
  const DType dtype_;
  // Whether inks are delivered as four channels, without a conversion.
  const bool inks_;
  // False if convert() would only select channels.
  bool needed_;
  int64_t samples_, channels_;
  // Of these, without alpha and other extra samples.
  int64_t color_samples_, color_channels_;
  std::vector<uint16_t> palette_;        // red, green, blue of each index
  int64_t largest_index_ = 0;            // of the palette; alpha next to it has the same range
  std::array<double, 3> luma_{};         // weights of red, green and blue
  std::array<double, 6> black_white_{};  // codes of black and white for Y, Cb and Cr, as fractions
  std::array<double, 9> to_linear_{};    // from X, Y, Z relative to white, to linear sRGB
};

}  // namespace ndd
