// SPDX-License-Identifier: Apache-2.0
// Overwrites a window of each image in place: random erasing of images that no other value shares.
#include <cstring>
#include <vector>

#include "ndd/args.h"
#include "ndd/elementwise/rows.h"
#include "ndd/kernel.h"
#include "ndd/slice/rows.h"
#include "ndd/stream/stream.h"

namespace ndd {
namespace {

constexpr double kNanosecondsPerElement = 0.02;

// `windows` has rows of top, left, height and width, within the images; a window without area changes nothing. `fill_value` is one number or one for each
// channel.
void fill_windows(const Tensor& images, const MaybeTensor& image_shapes, const Tensor& windows, const Tensor& fill_value, bool planar) {
  const Samples in(images, image_shapes);
  if (in.ndim() != 3) fail(Error::Value, "fill_windows: images must have rows, columns and channels");
  const Args<int64_t> rows(windows);
  const Args<float> fills(fill_value);
  launch_cpu("fill_windows", in.size(), kNanosecondsPerElement * in.mean_volume(), {}, [=](int64_t i) {
    const int64_t top = rows(i, 0), left = rows(i, 1), height = rows(i, 2), width = rows(i, 3), *shape = in.shape(i);
    if (height == 0 || width == 0) return;
    // Channels first, or last.
    const int64_t channels = shape[planar ? 0 : 2], all_rows = shape[planar ? 1 : 0], row = shape[planar ? 2 : 1];
    if (top < 0 || left < 0 || height < 0 || width < 0 || top > all_rows - height || left > row - width)
      fail("fill_windows: sample ", i, ": the window is not within the image");
    if (fills.rows() != 1 && fills.rows() != channels)
      fail("fill_windows: sample ", i, " has ", channels, " channels, but ", fills.rows(), " values");
    const int64_t item = in.item_bytes();
    std::vector<float> values(channels);
    for (int64_t c = 0; c < channels; ++c) values[c] = fills(fills.rows() == 1 ? 0 : c);
    std::vector<char> pixel(channels * item);
    // The fill value as a pixel of the images' type, which is repeated along rows.
    row_storer(in.dtype())(values.data(), channels, pixel.data());
    char* const data = static_cast<char*>(in.data(i));
    for (int64_t c = 0; c < (planar ? channels : 1); ++c)
      for (int64_t y = top; y < top + height; ++y) {
        if (planar) slice::repeat_item(pixel.data() + c * item, data + ((c * all_rows + y) * row + left) * item, width, item);
        else slice::repeat_item(pixel.data(), data + (y * row + left) * channels * item, width, channels * item);
      }
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(fill_windows, CPU, ndd::fill_windows)
