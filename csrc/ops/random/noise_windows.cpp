// SPDX-License-Identifier: Apache-2.0
// Overwrites a window of each float32 image with normal noise, in place: random erasing of images that no other value shares.
#include <algorithm>
#include <cstring>

#include "ndd/args.h"
#include "ndd/kernel.h"
#include "ndd/random/normal.h"
#include "ndd/random/random.h"

namespace ndd {
namespace {

struct Standard {
  using Value = float;
  NDD_HD float operator()(uint32_t word) const { return normal_of(word); }
};

// `windows` has rows of top, left, height, width and the place of the window's first number among those of all windows, within the images; a window without
// area changes nothing. A window's numbers are in the order of channels, rows and columns: those that random.normal draws for one sample.
void noise_windows(const Tensor& images, const MaybeTensor& image_shapes, const Tensor& windows, const Tensor& words, bool planar) {
  const Samples in(images, image_shapes);
  if (in.dtype() != DType::float32 || in.ndim() != 3) fail(Error::Type, "noise_windows: images must be float32, with rows, columns and channels");
  const Args<int64_t> rows(windows);
  const int64_t* const drawn = drawn_words("noise_windows", words);
  double numbers = 0;
  for (int64_t i = 0; i < in.size(); ++i) numbers += static_cast<double>(rows(i, 2)) * static_cast<double>(rows(i, 3)) * 3;
  const double mean = numbers / static_cast<double>(std::max<int64_t>(in.size(), 1));
  launch_cpu("noise_windows", in.size(), 1.5 * mean, {words}, [=](int64_t i) {
    using namespace random_detail;
    const int64_t top = rows(i, 0), left = rows(i, 1), height = rows(i, 2), width = rows(i, 3), first = rows(i, 4), *shape = in.shape(i);
    if (height == 0 || width == 0) return;
    const int64_t channels = shape[planar ? 0 : 2], all_rows = shape[planar ? 1 : 0], row = shape[planar ? 2 : 1];
    if (top < 0 || left < 0 || height < 0 || width < 0 || top > all_rows - height || left > row - width)
      fail("noise_windows: sample ", i, ": the window is not within the image");
    const Philox stream(drawn, 0);
    alignas(64) uint32_t bits[4 * kBlocks];
    alignas(64) float values[4 * kBlocks];
    const int64_t count = channels * height * width;
    if (first < 0 || first > INT64_MAX / 2 - count) fail("noise_windows: sample ", i, ": there is no number ", first);
    float* const data = static_cast<float*>(in.data(i));
    // Where the next number goes; the numbers arrive in blocks, a row of the window may end within one.
    int64_t c = 0, y = 0, x = 0;
    for (int64_t at = first / 4 * 4; at < first + count; at += 4 * kBlocks) {  // whole blocks of the stream
      const int64_t n = std::min(4 * kBlocks, first + count - at);
      stream.fill(static_cast<uint32_t>(at / 4), blocks_for(n, 4), bits);
      map_row<Standard, float>({}, bits, n, values);
      // The first block may begin with numbers of the window before.
      for (int64_t k = std::max<int64_t>(first - at, 0); k < n;) {
        const int64_t run = std::min(n - k, width - x), pixel = (top + y) * row + left + x;
        if (planar) std::memcpy(data + c * all_rows * row + pixel, values + k, run * sizeof(float));
        else
          for (int64_t j = 0; j < run; ++j) data[(pixel + j) * channels + c] = values[k + j];
        k += run;
        x += run;
        if (x < width) continue;
        x = 0;
        if (++y < height) continue;
        y = 0;
        ++c;
      }
    }
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(noise_windows, CPU, ndd::noise_windows)
