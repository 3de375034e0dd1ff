// SPDX-License-Identifier: Apache-2.0
// Images of one or three channels as rows of floats, one row per channel, whatever the channel order in memory. For operators that compute on the
// channels of a pixel together.
//
// Use it on the CPU where a function of a pixel's channels is not linear; rows keep each channel in vectors, and order and distance of the
// channels in memory are the driver's business.
#pragma once

#include <cstdint>
#include <string>

#include "ndd/dtypes.h"
#include "ndd/elementwise/rows.h"
#include "ndd/error.h"
#include "ndd/hd.h"
#include "ndd/samples.h"

namespace ndd {

// An image or a frame, with planar or interleaved channels.
struct ColorImage {
  int64_t pixels, channels;
  bool planar;

  NDD_HD int64_t element(int64_t pixel, int64_t channel) const { return planar ? channel * pixels + pixel : pixel * channels + channel; }
  NDD_HD int64_t volume() const { return pixels * channels; }
};

// The images of a batch: HWC or CHW, with or without leading frames.
struct ColorImages {
  bool planar, has_frames;

  int64_t frames(const Samples& in, int64_t i) const { return has_frames ? in.shape(i)[0] : 1; }

  ColorImage image(const std::string& op, const Samples& in, int64_t i) const {
    const int64_t* shape = in.shape(i) + has_frames;
    const int64_t dims = in.ndim() - has_frames, channel = planar ? 0 : dims - 1;
    if (dims < 1) fail(op, ": the image must have 1 or 3 channels, sample ", i, " has no dimensions");
    ColorImage image{1, shape[channel], planar};
    for (int64_t d = 0; d < dims; ++d) image.pixels *= d == channel ? 1 : shape[d];
    if (image.channels != 1 && image.channels != 3) fail(op, ": the image must have 1 or 3 channels, sample ", i, " has ", image.channels);
    return image;
  }
};

// A part of an image that fits in the L1 cache.
struct ColorTile {
  static constexpr int64_t kPixels = 1024;
  alignas(64) float channel[3][kPixels];
};

// Loads and stores tiles on the CPU. Values are stored as saturate() does.
class ColorRows {
 public:
  explicit ColorRows(DType dtype) : load_(row_loader(dtype)), store_(row_storer(dtype)), item_(item_bytes(dtype)) {}

  void load(const ColorImage& image, const void* data, int64_t first, int64_t n, ColorTile& tile) const;
  void store(const ColorImage& image, const ColorTile& tile, int64_t first, int64_t n, void* data) const;

 private:
  LoadRow load_;
  StoreRow store_;
  int64_t item_;
};

}  // namespace ndd
