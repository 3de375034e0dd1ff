// SPDX-License-Identifier: Apache-2.0
// Mosaics of a camera to colors on the CPU, a row at a time. Every pixel of a row is computed as if it were green and as if it were not, and one
// result is selected: a branch for each pixel would keep gcc from vectorizing the loop.
#include "ops/color/debayer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "ndd/color/interleave.h"
#include "ndd/kernel.h"
#include "ndd/simd.h"

namespace ndd::debayer {
namespace {

// A VGA image takes 0.06 ms, 0.6 ms with gradients.
constexpr double kNanosecondsPerElement = 0.3;

// An image in 16 bits with a reflected border of two pixels on every side: VNG then needs no border checks.
struct Bordered {
  std::vector<Short> pixels;
  int64_t stride;

  Bordered(const uint8_t* image, int64_t height, int64_t width) : pixels((height + 4) * (width + 4)), stride(width + 4) {
    for (int64_t y = -2; y < height + 2; ++y) {
      Short* to = pixels.data() + (y + 2) * stride + 2;
      const uint8_t* from = image + mirror_index(y, height) * width;
      for (int64_t x = 0; x < width; ++x) to[x] = from[x];
      for (int64_t x : {int64_t{-2}, int64_t{-1}, width, width + 1}) to[x] = from[mirror_index(x, width)];
    }
  }
  const Short* row(int64_t y) const { return pixels.data() + (y + 2) * stride + 2; }
};

constexpr int64_t kRow = 512;
// The last pixels of a row are computed once more together with those before them: 64 bytes fill a register, and the pixels that are left over, one by
// one, take as long as all others (a VGA image 110 instead of 60 us).
constexpr int64_t kWhole = 64;

// 0, 1, 0, 1...: which pixels are green, in the element width of the pixels. From the parity of a 64-bit counter gcc does not generate byte vectors.
template <class T>
const T* alternating_ones() {
  static const auto row = [] {
    std::array<T, kRow + 1> values;
    for (int64_t k = 0; k <= kRow; ++k) values[k] = static_cast<T>(k % 2);
    return values;
  }();
  return row.data();
}

// Pixels `begin` to `end` of a row whose pixels of parity `green` are green: own color, green and the other one, or gray, in rows of their own.
template <Algorithm algorithm, class S, class T>
void color_run(const S* center, int64_t stride, int64_t begin, int64_t end, int64_t green, bool blue_row, T* const rows[3]) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const S* __restrict row = center + begin;
    T* __restrict own = rows[0], * __restrict middle = rows[1], * __restrict other = rows[2];
    const S* __restrict greens = alternating_ones<S>() + ((green ^ begin ^ 1) & 1);
    const int64_t step = stride, count = end - begin;
    const bool blue = blue_row;
#pragma GCC ivdep  // the lambda hides from gcc that the rows are apart
    for (int64_t x = 0; x < count; ++x) {
      const auto at = [=](int64_t dy, int64_t dx) NDD_ALWAYS_INLINE { return static_cast<int32_t>(row[dy * step + x + dx]); };
      const auto element = [=](int64_t dy, int64_t dx) NDD_ALWAYS_INLINE { return static_cast<T>(row[dy * step + x + dx]); };
      const bool is_green = greens[x] != 0;
      if constexpr (algorithm == gray) {
        own[x] = static_cast<T>(gray_pixel(at, is_green, blue));
      } else {
        const Pixel p = algorithm == vng ? vng_pixel(at, is_green) : bilinear_pixel<T>(element, is_green, algorithm == edge_aware);
        own[x] = static_cast<T>(p.own);
        middle[x] = static_cast<T>(p.green);
        other[x] = static_cast<T>(p.other);
      }
    }
  });
}

template <Algorithm algorithm, class S, class T>
void color_row(const S* center, int64_t stride, int64_t begin, int64_t end, int64_t green, bool blue_row, T* target) {
  alignas(64) T own[kRow], middle[kRow], other[kRow];
  const int64_t first = begin;
  for (int64_t n; begin < end; begin += n) {
    n = std::min(kRow, end - begin);
    if (n % kWhole != 0 && end - first >= kWhole) {
      // The last run goes back so far that it is whole; others are shortened to whole registers.
      if (n < kWhole) begin = end - kWhole, n = kWhole;
      else n -= n % kWhole;
    }
    if constexpr (algorithm == gray) {
      T* const rows[3] = {target + begin, middle, other};
      color_run<algorithm>(center, stride, begin, begin + n, green, blue_row, rows);
    } else {
      T* const rows[3] = {own, middle, other};
      color_run<algorithm>(center, stride, begin, begin + n, green, blue_row, rows);
      interleave(blue_row ? other : own, middle, blue_row ? own : other, n, target + 3 * begin);
    }
  }
}

template <Algorithm algorithm, class T>
void color_image(const T* src, int64_t height, int64_t width, int64_t blue_y, int64_t blue_x, T* dst) {
  constexpr int64_t kChannels = algorithm == gray ? 1 : 3;
  const int64_t bytes = width * kChannels * static_cast<int64_t>(sizeof(T));
  const auto green_of = [&](int64_t y) { return y % 2 == blue_y ? 1 - blue_x : blue_x; };
  if constexpr (algorithm == vng) {
    const Bordered image(src, height, width);
    for (int64_t y = 0; y < height; ++y)
      color_row<algorithm>(image.row(y), image.stride, 0, width, green_of(y), y % 2 == blue_y, dst + y * width * kChannels);
    return;
  }
  if (height < 4 || width < 4) {  // no pixel has all its neighbors
    std::memset(dst, 0, height * bytes);
    return;
  }
  // Border pixels copy their neighbor, as in OpenCV.
  for (int64_t y = 1; y < height - 1; ++y) {
    T* row = dst + y * width * kChannels;
    color_row<algorithm>(src + y * width, width, 1, width - 1, green_of(y), y % 2 == blue_y, row);
    for (int64_t c = 0; c < kChannels; ++c) {
      row[c] = row[kChannels + c];
      row[(width - 1) * kChannels + c] = row[(width - 2) * kChannels + c];
    }
  }
  // The first and the last row copy their neighbors, borders included.
  std::memcpy(dst, dst + width * kChannels, bytes);
  std::memcpy(dst + (height - 1) * width * kChannels, dst + (height - 2) * width * kChannels, bytes);
}

template <class T>
void color_sample(const Mosaics& mosaics, int64_t i) {
  const int64_t height = mosaics.height(i), width = mosaics.width(i);
  const T* src = static_cast<const T*>(mosaics.in.data(i));
  T* dst = static_cast<T*>(mosaics.out.data(i));
  for (int64_t f = 0; f < mosaics.frames(i); ++f, src += height * width, dst += height * width * mosaics.channels()) {
    const int64_t y = mosaics.blue_parity(i, f, 0), x = mosaics.blue_parity(i, f, 1);
    if (height == 0 || width == 0) continue;
    switch (mosaics.algorithm_of(i)) {
      case bilinear: color_image<bilinear>(src, height, width, y, x, dst); break;
      case edge_aware: color_image<edge_aware>(src, height, width, y, x, dst); break;
      case gray: color_image<gray>(src, height, width, y, x, dst); break;
      case vng:
        if constexpr (sizeof(T) == 1) color_image<vng>(src, height, width, y, x, dst);
    }
  }
}

void debayer_cpu(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& blue_position, int64_t algorithm, int64_t first,
                 const Tensor& output, const MaybeTensor& output_shapes) {
  const Mosaics mosaics(input, input_shapes, blue_position, algorithm, first, output, output_shapes);
  launch_cpu("debayer", mosaics.in.size(), kNanosecondsPerElement * mosaics.in.mean_volume(), {}, [=](int64_t i) {
    mosaics.check(i);
    if (mosaics.in.dtype() == DType::uint8) color_sample<uint8_t>(mosaics, i);
    else color_sample<uint16_t>(mosaics, i);
  });
}

}  // namespace
}  // namespace ndd::debayer
NDD_KERNEL(debayer, CPU, ndd::debayer::debayer_cpu)
