// SPDX-License-Identifier: Apache-2.0
// Colors from a Bayer mosaic: what CPU and CUDA share. A row of the mosaic holds green and one other color, its own; `other` is the third one.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "ndd/args.h"
#include "ndd/hd.h"
#include "ndd/python_interface.h"
#include "ndd/samples.h"
#include "ndd/simd.h"

namespace ndd::debayer {

NDD_PLAIN_ENUM("debayer.Algorithm", Algorithm, int64_t, bilinear, edge_aware, vng, gray);

struct Pixel {
  int32_t own, green, other;
};

// The type for sums of a few pixels of type T. Bytes are summed in 16 bits: a register holds twice as many as of 32.
template <class T>
using Sum = std::conditional_t<sizeof(T) == 1, uint16_t, uint32_t>;

// at(dy, dx) is a neighbor of the pixel, of type T; `green` is true if the pixel itself is green. Means are rounded half up.
template <class T, class Load>
NDD_HD Pixel bilinear_pixel(Load at, bool green, bool edge_aware) {
  const auto sum = [](uint32_t a, uint32_t b) NDD_ALWAYS_INLINE { return static_cast<Sum<T>>(a + b); };
  const auto half = [](Sum<T> a) NDD_ALWAYS_INLINE { return static_cast<T>(static_cast<Sum<T>>(a + 1) >> 1); };
  const auto quarter = [](Sum<T> a) NDD_ALWAYS_INLINE { return static_cast<T>(static_cast<Sum<T>>(a + 2) >> 2); };
  const T up = at(-1, 0), down = at(1, 0), left = at(0, -1), right = at(0, 1), center = at(0, 0);
  const Sum<T> sides = sum(left, right), ends = sum(up, down);
  const T across = half(sides), along = half(ends), diagonal = quarter(sum(sum(at(-1, -1), at(-1, 1)), sum(at(1, -1), at(1, 1))));
  T cross = quarter(sum(sides, ends));
  if (edge_aware) {  // along the edge
    const T far = left > right ? static_cast<T>(left - right) : static_cast<T>(right - left);
    const T high = up > down ? static_cast<T>(up - down) : static_cast<T>(down - up);
    cross = far > high ? along : across;
  }
  return {green ? across : center, green ? center : cross, green ? along : diagonal};
}

// The luma of the means before they are rounded, with weights in 14 bits.
template <class Load>
NDD_HD int32_t gray_pixel(Load at, bool green, bool blue_row) {
  const uint32_t sides = at(0, -1) + at(0, 1), ends = at(-1, 0) + at(1, 0), center = at(0, 0);
  const uint32_t corners = at(-1, -1) + at(-1, 1) + at(1, -1) + at(1, 1);
  const uint32_t own = green ? 2 * sides : 4 * center, other = green ? 2 * ends : corners, mid = green ? 4 * center : sides + ends;
  const uint32_t red = blue_row ? other : own, blue = blue_row ? own : other;
  return static_cast<int32_t>((4899 * red + 9617 * mid + 1868 * blue + (1 << 15)) >> 16);
}

// VNG's sums of bytes need 13 bits, so 16-bit lanes suffice: a register holds twice as many as of 32. The functions below are for a Short, or for the two of
// them in a register of a GPU (Pair in debayer.cu).
using Short = int16_t;

NDD_HD Short short_of(int32_t value) { return static_cast<Short>(value); }

NDD_HD Short distance_of(Short a, Short b) { return a > b ? short_of(a - b) : short_of(b - a); }
NDD_HD Short smaller(Short a, Short b) { return a < b ? a : b; }
NDD_HD Short larger(Short a, Short b) { return a > b ? a : b; }
NDD_HD bool is_below(Short a, Short b) { return a < b; }
NDD_HD Short kept(bool keep, Short value) { return keep ? value : short_of(0); }

// One of eight directions, by the step to the next pixel. Templates, because only straight code becomes vectors.
template <int y, int x>
struct Direction {
  static constexpr bool straight = y == 0 || x == 0;
  static constexpr int p = x != 0, q = y != 0;  // across a straight one

  // Doubled.
  template <class Load>
  static NDD_HD auto gradient(Load load, bool green) {
    const auto apart = [&](int y0, int x0, int y1, int x1) NDD_ALWAYS_INLINE { return distance_of(short_of(load(y0, x0)), short_of(load(y1, x1))); };
    const auto along = short_of(2 * short_of(apart(y, x, -y, -x) + apart(2 * y, 2 * x, 0, 0)));
    if constexpr (straight) {
      const auto near = short_of(apart(y + p, x + q, p - y, q - x) + apart(y - p, x - q, -y - p, -x - q));
      const auto far = short_of(apart(2 * y + p, 2 * x + q, p, q) + apart(2 * y - p, 2 * x - q, -p, -q));
      return short_of(along + short_of(near + far));
    } else {
      const auto near = short_of(short_of(apart(y, 0, 0, -x) + apart(0, x, -y, 0)) + short_of(apart(2 * y, x, y, 0) + apart(y, 2 * x, 0, x)));
      const auto far = short_of(2 * short_of(apart(2 * y, x, 0, -x) + apart(y, 2 * x, -y, 0)));
      return short_of(along + (green ? far : near));
    }
  }
};

// Sums of doubled colors over the smooth directions: that of the pixel, and two others. Of a green pixel these are the row's own and the other one,
// else green and the other one.
template <class V>
struct Smooth {
  V count{}, same{}, first{}, second{};

  template <int y, int x, class Load>
  NDD_HD void add(Load at, bool green, V gradient, V threshold) {
    using D = Direction<y, x>;
    V s = short_of(at(0, 0) + at(2 * y, 2 * x)), f{}, o{};
    if constexpr (D::straight) {
      const V ahead = short_of(2 * at(y, x)), beside = short_of(at(2 * y + D::p, 2 * x + D::q) + at(2 * y - D::p, 2 * x - D::q));
      const V corners = short_of(at(y + D::p, x + D::q) + at(y - D::p, x - D::q));
      f = x != 0 ? ahead : green ? beside : ahead;
      o = green ? (x != 0 ? beside : ahead) : corners;
    } else {
      const V around = short_of((at(y, 0) + at(0, x) + at(2 * y, x) + at(y, 2 * x)) >> 1);
      s = green ? short_of(2 * at(y, x)) : s;
      f = green ? short_of(at(0, x) + at(2 * y, x)) : around;
      o = green ? short_of(at(y, 0) + at(y, 2 * x)) : short_of(2 * at(y, x));
    }
    const auto smooth = is_below(gradient, threshold);
    count = short_of(count + kept(smooth, V(1)));
    same = short_of(same + kept(smooth, s));
    first = short_of(first + kept(smooth, f));
    second = short_of(second + kept(smooth, o));
  }
};

NDD_HD int32_t level(float value) { return static_cast<int32_t>(value < 0.0f ? 0.0f : value > 255.0f ? 255.0f : value); }

// Half to even by adding and taking away a number whose last bit is 1: rintf is not a vector instruction on every processor, and a slow one on a GPU.
NDD_HD float to_whole(float value) {
  constexpr float kOnes = 12582912.0f;  // 1.5 * 2^23
#ifdef __CUDA_ARCH__
  return __fadd_rn(value, kOnes) - kOnes;  // never contracted with the product that is rounded
#else
  return (value + kOnes) - kOnes;
#endif
}

// Variable number of gradients (Chang, Cheung, Pang: "Color filter array recovery using a threshold-based variable number of gradients", 1999), with
// OpenCV's choices: gradients are doubled integers, the threshold is the smallest one and half of the largest, and of the color beside a green
// pixel only the far samples count.
template <class V, class Load>
NDD_HD Smooth<V> sum_smooth(Load at, bool green) {
  const V n = Direction<-1, 0>::gradient(at, green), s = Direction<1, 0>::gradient(at, green), w = Direction<0, -1>::gradient(at, green),
          e = Direction<0, 1>::gradient(at, green), ne = Direction<-1, 1>::gradient(at, green), nw = Direction<-1, -1>::gradient(at, green),
          se = Direction<1, 1>::gradient(at, green), sw = Direction<1, -1>::gradient(at, green);
  const V least = smaller(smaller(smaller(n, s), smaller(w, e)), smaller(smaller(ne, nw), smaller(se, sw)));
  const V most = larger(larger(larger(n, s), larger(w, e)), larger(larger(ne, nw), larger(se, sw)));
  const V threshold = short_of(least + larger(short_of(most >> 1), V(2)));
  Smooth<V> sums;
  sums.template add<-1, 0>(at, green, n, threshold);
  sums.template add<1, 0>(at, green, s, threshold);
  sums.template add<0, -1>(at, green, w, threshold);
  sums.template add<0, 1>(at, green, e, threshold);
  sums.template add<-1, 1>(at, green, ne, threshold);
  sums.template add<-1, -1>(at, green, nw, threshold);
  sums.template add<1, 1>(at, green, se, threshold);
  sums.template add<1, -1>(at, green, sw, threshold);
  return sums;
}

NDD_HD Pixel smooth_pixel(const Smooth<Short>& sums, int32_t center, bool green) {
  const float scale = 1.0f / static_cast<float>(2 * sums.count), base = static_cast<float>(center);
  const int32_t first = level(base + to_whole(static_cast<float>(sums.first - sums.same) * scale));
  const int32_t second = level(base + to_whole(static_cast<float>(sums.second - sums.same) * scale));
  return {green ? first : center, green ? center : first, second};
}

template <class Load>
NDD_HD Pixel vng_pixel(Load at, bool green) {
  return smooth_pixel(sum_smooth<Short>(at, green), at(0, 0), green);
}

// VNG reads two pixels past the border, which are reflected. Smaller images are bilinear.
constexpr int64_t kMinVngExtent = 7;

NDD_HD int64_t mirror_index(int64_t i, int64_t n) { return i < 0 ? -i : i < n ? i : 2 * n - 2 - i; }

// The mosaics of a call: images or frames of one channel.
struct Mosaics {
  Samples in, out;
  Args<int64_t> blue;
  Algorithm algorithm;
  int64_t first;  // 1 for sequences

  Mosaics(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& blue_position, int64_t algorithm, int64_t first, const Tensor& output,
          const MaybeTensor& output_shapes)
      : in(input, input_shapes), out(output, output_shapes), blue(blue_position), algorithm(static_cast<Algorithm>(algorithm)), first(first) {
    if ((first != 0 && first != 1) || (in.ndim() != first + 2 && in.ndim() != first + 3))
      fail(Error::Value, "debayer: a mosaic has height and width");
    if ((in.dtype() != DType::uint8 && in.dtype() != DType::uint16) || out.dtype() != in.dtype())
      fail(Error::Type, "debayer: mosaics must be uint8 or uint16, and the output must have their type");
    check_outputs("debayer", out, in.size(), [&](int64_t i) { return in.volume(i) * channels(); });
  }

  int64_t frames(int64_t i) const { return first ? in.shape(i)[0] : 1; }
  int64_t height(int64_t i) const { return in.shape(i)[first]; }
  int64_t width(int64_t i) const { return in.shape(i)[first + 1]; }
  int64_t channels() const { return algorithm == gray ? 1 : 3; }
  Algorithm algorithm_of(int64_t i) const { return algorithm == vng && std::min(height(i), width(i)) < kMinVngExtent ? bilinear : algorithm; }

  void check(int64_t i) const {
    const std::string sample = "debayer: sample " + std::to_string(i);
    if (in.ndim() == first + 3 && in.shape(i)[first + 2] != 1) fail(sample, " must have one channel");
    if (height(i) % 2 || width(i) % 2) fail(sample, " must have an even height and width, got ", height(i), " x ", width(i));
    if (blue.cols() > 2 && blue.cols() != 2 * frames(i)) fail(sample, " has ", frames(i), " frames, blue_position is for ", blue.cols() / 2);
  }

  // Parity of the row (d = 0) or column (d = 1) with blue pixels. The argument counts from the second row and column.
  int64_t blue_parity(int64_t i, int64_t frame, int64_t d) const {
    const int64_t position = blue(i, blue.cols() > 2 ? 2 * frame + d : d);
    if (position != 0 && position != 1) fail("debayer: blue_position must be 0 or 1 in both directions, sample ", i, " has ", position);
    return 1 - position;
  }
};

}  // namespace ndd::debayer
