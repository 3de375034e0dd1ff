// SPDX-License-Identifier: Apache-2.0
// jitter: each pixel is read from a random point up to half of nDegree away, in x and in y.
#include <algorithm>

#include "ndd/kernel.h"
#include "ndd/random/random.h"
#include "ndd/warp/driver.h"

namespace ndd::jitter_kernels {
namespace {

// Pixel k has words 2k and 2k + 1.
struct JitterMap {
  Philox stream{0u, 0u};
  float degree = 0.0f;
  int64_t width = 0;

  // The word as a number from -1/2 to 1/2, times the degree.
  NDD_HD float moved(float at, uint32_t word) const {
    return mul_then_add((static_cast<float>(static_cast<int32_t>(word)) + 0.5f) * 0x1p-32f, degree, at);
  }

  NDD_HD Point<2> operator()(const Point<2>& to) const {
    const int64_t pixel = static_cast<int64_t>(to.at[1]) * width + static_cast<int64_t>(to.at[0]);
    uint32_t words[4];
    stream.compute(static_cast<uint32_t>(pixel / 2), words);
    const uint32_t* w = words + pixel % 2 * 2;
    return {moved(to.at[0], w[0]), moved(to.at[1], w[1])};
  }

  // Of an image with fewer than 2^31 pixels; something for pixels outside of it.
  NDD_HD Point<2> at_pixel(int32_t x, int32_t y) const {
    const uint32_t pixel = static_cast<uint32_t>(y) * static_cast<uint32_t>(width) + static_cast<uint32_t>(x);
    uint32_t words[4];
    stream.compute(pixel / 2, words);
    const bool odd = pixel % 2 != 0;
    return {moved(static_cast<float>(x) + 0.5f, odd ? words[2] : words[0]), moved(static_cast<float>(y) + 0.5f, odd ? words[3] : words[1])};
  }

  // The words of a whole row at a time: 8 pixels in the time that one takes.
  void row(const Point<2>& first, int64_t n, warp::Coordinates<2>& coords) const {
    alignas(64) uint32_t words[2 * warp::kBlock + 32];
    const int64_t pixel = static_cast<int64_t>(first.at[1]) * width + static_cast<int64_t>(first.at[0]);
    // Two pixels a block of four words, from that of the first pixel on; blocks are computed by 8.
    stream.fill(static_cast<uint32_t>(pixel / 2), (n + 2 + 15) / 16 * 8, words);
    with_simd([&]() NDD_ALWAYS_INLINE {
      // A row may begin in the middle of a block.
      const uint32_t* __restrict w = words + pixel % 2 * 2;
      float* __restrict x = coords.at[0], * __restrict y = coords.at[1];
      const JitterMap map = *this;
      const Point<2> start = first;
      const int32_t count = static_cast<int32_t>(n);
      for (int32_t j = 0; j < count; ++j) {
        x[j] = map.moved(start.at[0] + static_cast<float>(j), w[2 * j]);
        y[j] = map.moved(start.at[1], w[2 * j + 1]);
      }
    });
  }
};

struct JitterMaps {
  using Map = JitterMap;
  Tensor words;  // kept alive
  const int64_t* drawn;
  float degree;
  Args<int64_t> mask;

  void operator()(WarpItem<2, JitterMap>& item, int64_t i, int64_t) const {
    item.map = JitterMap{Philox(drawn, i), degree, item.size[0]};
    // A sample that is masked out is copied.
    if (mask(i) == 0) item.interp = Interp::copy;
  }
};

void jitter(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& fill_value, int64_t interp_type, const Tensor& mask, int64_t degree,
            const Tensor& words, const Tensor& output, const MaybeTensor& output_shapes) {
  const WarpImages images("jitter", {input, input_shapes}, {output, output_shapes}, Border::constant, fill_value, 0, 2, false);
  check_same("jitter", images.out(), images.in());  // samples that are masked out are copied
  const JitterMaps maps{words, drawn_words("jitter", words), static_cast<float>(degree), Args<int64_t>(mask)};
  warp_images<2, false>(images, static_cast<Interp>(interp_type), maps);
}

}  // namespace
}  // namespace ndd::jitter_kernels
NDD_KERNELS(jitter, ndd::jitter_kernels::jitter)
