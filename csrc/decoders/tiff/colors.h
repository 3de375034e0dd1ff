// SPDX-License-Identifier: Apache-2.0
// From the samples of a TIFF file to gray or RGB.
#pragma once

#include "decoders/tiff/tiff_image.h"

#include <array>
#include <cstdint>
#include <vector>

namespace ndd {

class TiffColorConverter {
 public:
  // `keep_extra`: samples that are no colors, such as alpha, follow the colors, and inks stay inks.
  TiffColorConverter(const TiffImage& image, bool keep_extra);

  bool is_needed() const { return needed_; }
  // Samples of a pixel that `convert` reads: the first ones.
  int64_t samples() const { return samples_; }
  // Channels that it writes.
  int64_t channels() const { return channels_; }

  // `in` has pixels of `held` samples of `image.dtype()`, as `RowUnpacker` gives them, palettes as indices.
  void convert(const void* in, int64_t held, int64_t pixels, void* out) const;

 private:
  template <class T>
  void convert_pixels(const T* in, int64_t held, int64_t pixels, T* out) const;
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
  const bool inks_;
  bool needed_;
  int64_t samples_, channels_;
  int64_t color_samples_, color_channels_;
  std::vector<uint16_t> palette_;        // red, green, blue of each index
  int64_t largest_index_ = 0;            // also of alpha beside it
  std::array<double, 3> luma_{};         // weights of red, green and blue
  std::array<double, 6> black_white_{};  // codes that stand for black and white, of Y, Cb and Cr, as fractions
  std::array<double, 9> to_linear_{};    // from X, Y, Z, each relative to white, to linear sRGB
};

}  // namespace ndd
