// SPDX-License-Identifier: Apache-2.0
#include "ndd/warp/cpu.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "ndd/elementwise/rows.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/simd.h"
#include "ndd/warp/x86.h"

namespace ndd::warp {
namespace {

// Where every point of a block reads: one vectorised pass, so that the samplers below only load. `pixel` is the index of the pixel that holds the
// point, or of the neighbour below it; kFill where only the fill value shows, kBorder where the neighbours must be looked at one by one.
constexpr int32_t kFill = -1, kBorder = -2;
template <int D>
struct Positions {
  int32_t pixel[kBlock];
  float right[D][kBlock];  // distance from the neighbour below
};

// `periodic`: nearest pixels within a period beyond the border are found here, too.
template <int D, Interp interp, bool periodic = false>
void locate(const WarpSource<D>& src, const Coordinates<D>& coords, int64_t n, Positions<D>& positions) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    constexpr int32_t lead = kLead<interp>, trail = kTaps<interp> / 2;
    // A repeated border is the border's own value everywhere beyond it: clamping the point does it, as long as no filter reaches beyond two neighbours.
    const bool clamp = src.border == Border::replicate && kTaps<interp> <= 2, constant = src.border == Border::constant;
    float least[D], most[D];
    int32_t size[D], top[D], highest[D], step[D];
    [[maybe_unused]] int32_t period[D], turned[D];
    for (int d = 0; d < D; ++d) {
      size[d] = static_cast<int32_t>(src.size[d]);
      top[d] = size[d] - 1 - trail;
      least[d] = static_cast<float>(clamp ? 0 : -trail - 1);
      most[d] = static_cast<float>(clamp ? size[d] - 1 : size[d] + lead);
      highest[d] = clamp && top[d] >= 0 ? top[d] : size[d] + lead;
      step[d] = d == 0 ? 1 : step[d - 1] * size[d - 1];
      if constexpr (periodic) {
        constexpr int32_t kFar = 1 << 30;
        least[d] = -kFar;
        most[d] = highest[d] = kFar;
        period[d] = size[d] >= kFar ? 0 : src.border == Border::wrap ? size[d] : src.border == Border::reflect ? 2 * size[d] : 2 * size[d] - 2;
        turned[d] = src.border == Border::reflect ? period[d] - 1 : period[d];
      }
    }
    const float* __restrict at = coords.at[0];
    int32_t* __restrict pixel = positions.pixel;
    float* __restrict right = positions.right[0];
    const int32_t count = static_cast<int32_t>(n);
    for (int32_t j = 0; j < count; ++j) {
      int32_t index = 0;
      bool fill = false, inside = true;
#pragma GCC unroll 3
      for (int d = 0; d < D; ++d) {
        float p = interp != Interp::nearest ? at[d * kBlock + j] - 0.5f : at[d * kBlock + j];
        p = p > least[d] ? p : least[d];  // also what a NaN becomes
        p = p < most[d] ? p : most[d];
        int32_t i = static_cast<int32_t>(p);
        i -= static_cast<float>(i) > p;  // floor without SSE4.1
        i = i < highest[d] ? i : highest[d];
        if (interp != Interp::nearest) right[d * kBlock + j] = p - static_cast<float>(i);
        if constexpr (periodic) {
          const int32_t once = i < 0 ? i + period[d] : i < period[d] ? i : i - period[d];
          i = once < size[d] ? once : turned[d] - once;
        }
        inside = inside & (i >= lead) & (i <= top[d]);
        fill = fill | (i < -trail) | (i >= size[d] + lead);
        index += static_cast<int32_t>(static_cast<uint32_t>(i) * static_cast<uint32_t>(step[d]));  // far outside it wraps around
      }
      pixel[j] = inside ? index : fill & constant ? kFill : kBorder;
    }
  });
}

typedef float Float4 __attribute__((vector_size(16)));

// Narrow integers go through int32, for whose conversion there is an instruction: straight from uint16 gcc converts them one by one, and warping
// 8 images of 321x213 takes 3.8 instead of 2.1 ms.
template <class T>
inline Float4 load4(const T* p) {
  if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
    typedef T Vector __attribute__((vector_size(4 * sizeof(T))));
    typedef int32_t Int4 __attribute__((vector_size(16)));
    Vector v;
    std::memcpy(&v, p, sizeof(v));
    if constexpr (sizeof(T) < 4) return __builtin_convertvector(__builtin_convertvector(v, Int4), Float4);
    else return __builtin_convertvector(v, Float4);
  } else {
    return Float4{static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]), static_cast<float>(p[3])};
  }
}

// Samples the points of one row into pixels of the output type.
template <int D>
class RowSampler {
 public:
  RowSampler(const WarpSource<D>& src, DType in, DType out, Interp interp)
      : src_(src), interp_(interp), in_bytes_(item_bytes(in)), same_dtype_(in == out), store_(row_storer(out)) {
    elements_ = src.stride[D - 1] * src.size[D - 1];
    huge_ = elements_ / std::max<int64_t>(src.channels, 1) >= INT32_MAX - 8;  // positions are int32
    for_dtype(in, [&](auto tag) {
      using T = typename decltype(tag)::type;
      sample_ = interp == Interp::nearest  ? &RowSampler::template nearest_row<T>
                : interp == Interp::linear ? &RowSampler::template linear_row<T>
                : interp == Interp::cubic  ? &RowSampler::template wide_row<T, Interp::cubic>
                                           : &RowSampler::template wide_row<T, Interp::lanczos3>;
    });
    shown_.resize(src.channels + 3);
    for_dtype(out, [&](auto tag) {
      using T = typename decltype(tag)::type;
      fill_.resize(src.channels * sizeof(T) + 1);
      for (int64_t c = 0; c < src.channels; ++c) {
        const T fill = saturate<T>(src.fill_of(c));
        shown_[c] = src.fades ? src.fill_of(c) : static_cast<float>(fill);
        std::memcpy(fill_.data() + c * sizeof(T), &fill, sizeof(T));
      }
    });
    // What is mixed with pixels is a pixel of the input's type.
    if (interp != Interp::nearest && !src.fades)
      for_dtype(in, [&](auto tag) {
        for (float& fill : shown_) fill = static_cast<float>(saturate<typename decltype(tag)::type>(fill));
      });
    staged_.resize(kBlock * src.channels + 3);
    if (D == 2 && in == DType::uint8 && out == DType::uint8 && interp == Interp::linear) {
      u8_ = u8_linear(static_cast<const uint8_t*>(src.data), src.size[0], src.size[1], src.channels, src.border, fill_.data());
      u8_.exact = src.fades;
    }
  }

  int64_t pixel_bytes() const { return static_cast<int64_t>(fill_.size()) - 1; }

  void operator()(const Coordinates<D>& coords, int64_t n, char* out) {
    if (u8_.usable && n >= 8) {
      uint8_t* pixels = reinterpret_cast<uint8_t*>(out);
      return linear_u8(u8_, coords.at[0], coords.at[1], n, pixels, [&](int64_t j) { border_pixels(coords, j, 8, pixels); });
    }
    locate_all(coords, n);
    if (interp_ == Interp::nearest && same_dtype_ && !huge_) {
      switch (pixel_bytes()) {
        case 1: return copy_row<1>(n, out);
        case 3: return copy_row<3>(n, out);
        case 4: return copy_row<4>(n, out);
        case 12: return copy_row<12>(n, out);
        default: return copy_row<0>(n, out);
      }
    }
    if (interp_ == Interp::nearest && same_dtype_) return copy_far(coords, n, out);
    (this->*sample_)(coords, n, staged_.data());
    store_(staged_.data(), n * src_.channels, out);
  }

 private:
  void locate_all(const Coordinates<D>& coords, int64_t n) {
    if (huge_) {
      std::fill_n(positions_.pixel, n, kBorder);
      return;
    }
    if (interp_ == Interp::linear) return locate<D, Interp::linear>(src_, coords, n, positions_);
    if (interp_ == Interp::cubic) return locate<D, Interp::cubic>(src_, coords, n, positions_);
    if (interp_ == Interp::lanczos3) return locate<D, Interp::lanczos3>(src_, coords, n, positions_);
    const bool periodic = src_.border != Border::constant && src_.border != Border::replicate;
    if (!periodic) return locate<D, Interp::nearest>(src_, coords, n, positions_);
    locate<D, Interp::nearest, true>(src_, coords, n, positions_);
    for (int64_t j = 0; j < n; ++j)
      if (positions_.pixel[j] == kBorder) positions_.pixel[j] = static_cast<int32_t>(nearest_tap(src_, coords.point(j)) / src_.channels);
  }

  // Bytes of a pixel, 0 when only known at run time. Three bytes are moved as four, half the instructions, where both pixels have a successor.
  template <int Bytes>
  void copy_row(int64_t n, char* out) const {
    const int64_t bytes = Bytes > 0 ? Bytes : pixel_bytes(), wide = Bytes == 3 ? 4 : bytes, last = elements_ / src_.channels - 1;
    const char *data = static_cast<const char*>(src_.data), *fill = fill_.data();
    const int32_t* __restrict pixels = positions_.pixel;
#pragma GCC unroll 4
    for (int64_t j = 0; j + 1 < n; ++j, out += bytes) {
      const int64_t pixel = pixels[j];
      const char* from = pixel < 0 ? fill : data + pixel * bytes;
      if (Bytes == 3 && pixel == last) std::memcpy(out, from, bytes);
      else std::memcpy(out, from, wide);
    }
    std::memcpy(out, pixels[n - 1] < 0 ? fill : data + pixels[n - 1] * bytes, bytes);
  }

  // More pixels than an int32 can count.
  void copy_far(const Coordinates<D>& coords, int64_t n, char* out) const {
    for (int64_t j = 0; j < n; ++j, out += pixel_bytes()) {
      const int64_t tap = nearest_tap(src_, coords.point(j));
      std::memcpy(out, tap < 0 ? fill_.data() : static_cast<const char*>(src_.data) + tap * in_bytes_, pixel_bytes());
    }
  }

  template <class T>
  void nearest_row(const Coordinates<D>& coords, int64_t n, float* out) const {
    for (int64_t j = 0; j < n; ++j, out += src_.channels) {
      const int32_t pixel = positions_.pixel[j];
      const int64_t offset = pixel == kBorder ? nearest_tap(src_, coords.point(j)) : pixel * src_.channels;
      const T* data = static_cast<const T*>(src_.data) + offset;
      for (int64_t c = 0; c < src_.channels; ++c) out[c] = offset < 0 ? src_.fill_of(c) : static_cast<float>(data[c]);
    }
  }

  // Four channels at a time: a row may write up to three elements past its end.
  template <class T>
  void linear_row(const Coordinates<D>& coords, int64_t n, float* __restrict out) const {
    const T* __restrict data = static_cast<const T*>(src_.data);
    const Positions<D>& positions = positions_;
    int64_t reach[1 << D] = {};  // the neighbours, as element offsets
    for (int t = 0; t < 1 << D; ++t)
      for (int d = 0; d < D; ++d) reach[t] += (t >> d & 1) * src_.stride[d];
    const int64_t channels = src_.channels, safe = elements_ - reach[(1 << D) - 1] - channels - 3;
    for (int64_t j = 0; j < n; ++j, out += channels) {
      const int64_t pixel = positions.pixel[j], offset = pixel * channels;
      if (pixel == kFill) {
        for (int64_t c = 0; c < channels; ++c) out[c] = shown_[c];
        continue;
      }
      if (pixel == kBorder || offset >= safe) {
        border_pixel<T>(linear_taps(src_, coords.point(j)), out);
        continue;
      }
      for (int64_t c = 0; c < channels; c += 4) {
        Float4 v[1 << D];
#pragma GCC unroll 8
        for (int t = 0; t < 1 << D; ++t) v[t] = load4(data + offset + reach[t] + c);
#pragma GCC unroll 3
        for (int d = 0; d < D; ++d) {
#pragma GCC unroll 4
          for (int t = 0; t < 1 << (D - 1 - d); ++t) v[t] = v[2 * t] + (v[2 * t + 1] - v[2 * t]) * positions.right[d][j];
        }
        std::memcpy(out + c, &v[0], sizeof(Float4));
      }
    }
  }

  template <class T, Interp interp>
  void wide_row(const Coordinates<D>& coords, int64_t n, float* __restrict out) const {
    if constexpr (D == 2) {
      constexpr int K = kTaps<interp>;
      const T* __restrict data = static_cast<const T*>(src_.data);
      const int64_t channels = src_.channels, row = src_.stride[1], before = kLead<interp> * (row + channels);
      const int64_t safe = elements_ - K / 2 * (row + channels) - channels - 3;
      for (int64_t j = 0; j < n; ++j, out += channels) {
        const int64_t pixel = positions_.pixel[j], offset = pixel * channels;
        if (pixel == kFill) {
          for (int64_t c = 0; c < channels; ++c) out[c] = shown_[c];
          continue;
        }
        if (pixel == kBorder || offset >= safe) {
          const WideTaps<interp> taps = wide_taps<interp>(src_, coords.point(j));
          for (int64_t c = 0; c < channels; ++c) out[c] = blend(taps, c, shown_[c], [&](int64_t tap) { return static_cast<float>(data[tap]); });
          continue;
        }
        float across[K], down[K];
        wide_weights<interp>(positions_.right[0][j], across);
        wide_weights<interp>(positions_.right[1][j], down);
        for (int64_t c = 0; c < channels; c += 4) {
          Float4 sum{};
          for (int r = 0; r < K; ++r) {
            const T* from = data + offset - before + r * row + c;
            Float4 line{};
#pragma GCC unroll 6
            for (int k = 0; k < K; ++k) line += load4(from + k * channels) * across[k];
            sum += line * down[r];
          }
          std::memcpy(out + c, &sum, sizeof(Float4));
        }
      }
    }
  }

  // blend(), of four channels at a time: up to three elements past the pixel are written, and read where there are any.
  template <class T>
  void border_pixel(const LinearTaps<D>& taps, float* out) const {
    const T* data = static_cast<const T*>(src_.data);
    for (int64_t c = 0; c < src_.channels; c += 4) {
      Float4 sum{};
      float inside = 0.0f;
      for (int t = 0; t < 1 << D; ++t) {
        const int64_t at = taps.offset[t] + c;
        Float4 v;
        inside += taps.offset[t] < 0 ? 0.0f : taps.weight[t];
        if (taps.offset[t] < 0) {
          v = src_.fades ? Float4{} : load4(shown_.data() + c);
        } else if (at + 4 <= elements_) {
          v = load4(data + at);
        } else {
          T last[4] = {};
          std::copy(data + at, data + elements_, last);
          v = load4(last);
        }
        sum += taps.weight[t] * v;
      }
      for (int64_t k = 0; k < 4 && src_.fades; ++k) sum[k] = faded(sum[k], inside, shown_[c + k]);
      std::memcpy(out + c, &sum, sizeof(Float4));
    }
  }

  void border_pixels(const Coordinates<D>& coords, int64_t begin, int64_t n, uint8_t* out) const {
    for (int64_t j = begin; j < begin + n; ++j) {
      float pixel[4];
      border_pixel<uint8_t>(linear_taps(src_, coords.point(j)), pixel);
      for (int64_t c = 0; c < src_.channels; ++c) out[j * src_.channels + c] = saturate<uint8_t>(pixel[c]);
    }
  }

  WarpSource<D> src_;
  Interp interp_;
  int64_t in_bytes_, elements_;
  bool same_dtype_, huge_;
  StoreRow store_;
  void (RowSampler::*sample_)(const Coordinates<D>&, int64_t, float*) const = nullptr;
  std::vector<char> fill_;    // one pixel of the fill value in the output type, and a byte that copy_row may read
  std::vector<float> shown_;  // the fill value of every channel, as it is mixed with pixels, and three more
  std::vector<float> staged_;
  Positions<D> positions_;
  U8Image u8_;
};

// A turned row crosses a cache line every other pixel, in a pattern that no prefetcher follows: reading the source once in order before makes 16 VGA
// images 9.1 instead of 16.7 ms. Prefetching the rows ahead gained nothing, and a source larger than the second-level cache would not stay there.
template <int D>
void touch(const WarpSource<D>& src, int64_t item_bytes) {
  constexpr int64_t kCache = 1 << 20, kLine = 64;
  const int64_t bytes = src.stride[D - 1] * src.size[D - 1] * item_bytes;
  if (bytes > kCache) return;
  const char* data = static_cast<const char*>(src.data);
  for (int64_t i = 0; i < bytes; i += kLine) static_cast<void>(*static_cast<const volatile char*>(data + i));
}

template <int D>
void rows(const WarpSource<D>& src, void* out, const int64_t (&size)[D], DType in_type, DType out_type, Interp interp, const void* map,
          MapBlock<D> block) {
  if (src.channels == 0) return;
  touch(src, item_bytes(in_type));
  RowSampler<D> sample(src, in_type, out_type, interp);
  Coordinates<D> coords;
  char* dst = static_cast<char*>(out);
  int64_t count = 1;
  for (int d = 1; d < D; ++d) count *= size[d];
  for (int64_t row = 0; row < count; ++row) {
    Point<D> first;
    for (int64_t d = 1, rest = row; d < D; rest /= size[d], ++d) first.at[d] = static_cast<float>(rest % size[d]) + 0.5f;
    for (int64_t x = 0; x < size[0]; x += kBlock) {
      const int64_t n = std::min(kBlock, size[0] - x);
      first.at[0] = static_cast<float>(x) + 0.5f;
      block(map, first, n, coords);
      sample(coords, n, dst);
      dst += n * sample.pixel_bytes();
    }
  }
}

}  // namespace

void warp_rows(const WarpSource<2>& src, void* out, const int64_t (&size)[2], DType in_type, DType out_type, Interp interp, const void* map,
               MapBlock<2> block) {
  rows(src, out, size, in_type, out_type, interp, map, block);
}

void warp_rows(const WarpSource<3>& src, void* out, const int64_t (&size)[3], DType in_type, DType out_type, Interp interp, const void* map,
               MapBlock<3> block) {
  rows(src, out, size, in_type, out_type, interp, map, block);
}

}  // namespace ndd::warp
