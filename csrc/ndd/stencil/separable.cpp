// SPDX-License-Identifier: Apache-2.0
// Convolution with symmetric windows on the CPU, one axis after the other. Every pass is the same sum of shifted rows, `weighted_sum`: along the
// width, the shifts are offsets within a padded row; along the height and depth, they are rows in a ring of finished rows or planes. A single loop
// thus serves every axis, channel count and element type, and each input element is loaded and converted once.
#include "ndd/stencil/cpu.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ndd/dtypes.h"
#include "ndd/elementwise/rows.h"
#include "ndd/simd.h"

namespace ndd {
namespace stencil {

template <>
struct Taps<uint16_t> {
  // Truncation loses half a unit per tap on average; the bias compensates for it. Up to this radius, three passes stay within 0.4 of an output level
  // of the exact sum, so a constant image stays constant and results are within one level of float arithmetic.
  static constexpr int64_t kMaxRadius = 32;
  std::vector<uint16_t> weight;  // Q0.16, summing to exactly one half
  uint16_t bias = 0;

  explicit Taps(const SymmetricWindow& window) : weight(window.half.size()) {
    // The center takes what the other weights leave of one half, so rounding never changes the brightness.
    int32_t rest = 1 << 15;
    for (size_t k = weight.size(); k-- > 1;) {
      weight[k] = static_cast<uint16_t>(std::lround(std::min(window.half[k], 0.5f) * 65536.0f));
      rest -= weight[k];
    }
    weight[0] = static_cast<uint16_t>(rest);
    bias = static_cast<uint16_t>(weight.size() / 2);
  }
  static NDD_HD uint16_t term(uint16_t pair, uint16_t weight) { return static_cast<uint16_t>((uint32_t{pair} * weight) >> 16); }
};

namespace {

// out[i] = (Accumulate ? out[i] : bias) + sum over P pairs of weight[p] * (lo[p][i] + hi[p][i])
template <class S, int P, bool Accumulate>
void sum_pairs(const S* const* lo, const S* const* hi, const S* weight, S bias, int64_t n, S* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const S *a[P], *b[P];
    S w[P];
    for (int p = 0; p < P; ++p) a[p] = lo[p], b[p] = hi[p], w[p] = weight[p];
    S* __restrict dst = out;
    const S start = bias;
    const int64_t count = n;
    // The rows do not overlap `out`, which gcc cannot know of pointers in an array.
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      S sum = Accumulate ? dst[i] : start;
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) sum = static_cast<S>(sum + Taps<S>::term(static_cast<S>(a[p][i] + b[p][i]), w[p]));
      dst[i] = sum;
    }
  });
}

constexpr int kPairs = 8;  // pairs per sweep: 16 row pointers and their offsets still fit in the address registers

template <class S, size_t... P>
constexpr auto first_sweeps(std::index_sequence<P...>) {
  return std::array{&sum_pairs<S, static_cast<int>(P) + 1, false>...};
}

template <class S>
void sum_of_all_pairs(const S* const* lo, const S* const* hi, const Taps<S>& taps, int64_t n, S* out) {
  static constexpr auto first = first_sweeps<S>(std::make_index_sequence<kPairs>{});
  const size_t count = taps.weight.size();
  // The odd-sized sweep comes first, because it also sets the sum; all others add to it eight pairs at a time.
  size_t done = (count - 1) % kPairs + 1;
  first[done - 1](lo, hi, taps.weight.data(), taps.bias, n, out);
  for (; done < count; done += kPairs) sum_pairs<S, kPairs, true>(lo + done, hi + done, taps.weight.data() + done, S{}, n, out);
}

// How rows are converted to S and back.
template <class S>
using Load = void (*)(const void* row, int64_t n, S* staged);
template <class S>
using Store = void (*)(const S* staged, int64_t n, void* row);

void load_fixed(const void* row, int64_t n, uint16_t* staged) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const uint8_t* __restrict src = static_cast<const uint8_t*>(row);
    uint16_t* __restrict dst = staged;
    const int64_t count = n;
    for (int64_t i = 0; i < count; ++i) dst[i] = static_cast<uint16_t>(src[i] << 7);
  });
}

void store_fixed(const uint16_t* staged, int64_t n, void* row) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const uint16_t* __restrict src = staged;
    uint8_t* __restrict dst = static_cast<uint8_t*>(row);
    const int64_t count = n;
    // A sum may exceed 255 by its bias, but never by half a level, so no clamp is needed after rounding.
    for (int64_t i = 0; i < count; ++i) dst[i] = static_cast<uint8_t>((src[i] + 64) >> 7);
  });
}

// Pointers to the rows at distance 0, 1, ..., radius before and after a center.
template <class S>
struct Neighbors {
  std::vector<const S*> lo, hi;

  explicit Neighbors(int64_t radius) : lo(radius + 1), hi(radius + 1) {}
  template <class Row>  // Row: index -> const S*
  void around(int64_t center, int64_t extent, Row row) {
    for (size_t k = 0; k < lo.size(); ++k) {
      lo[k] = row(reflect_101(center - static_cast<int64_t>(k), extent));
      hi[k] = row(reflect_101(center + static_cast<int64_t>(k), extent));
    }
  }
};

template <class S>
class Convolution {
 public:
  Convolution(const Grid& grid, const std::array<SymmetricWindow, 3>& windows, Load<S> load, int64_t in_bytes, Store<S> store, int64_t out_bytes)
      : grid_(grid), load_(load), store_(store), row_(grid.width * grid.inner), in_row_(row_ * in_bytes), out_row_(row_ * out_bytes),
        depth_(windows[0], grid.depth, grid.height * row_), height_(windows[1], grid.height, row_), width_(windows[2], 1, 0),
        padding_(width_.radius * grid.inner), padded_(new S[row_ + 2 * padding_]), result_(new S[row_]) {
    for (int64_t k = 0; k <= width_.radius; ++k) {  // along the width, a shift is an offset into the padded row
      width_.near.lo[k] = padded_.get() + padding_ - k * grid.inner;
      width_.near.hi[k] = padded_.get() + padding_ + k * grid.inner;
    }
  }

  void operator()(const char* in, char* out) {
    const auto store_row = [&](int64_t row, const S* staged) { store_(staged, row_, out + row * out_row_); };
    // Planes are independent: no ring of planes is needed.
    if (depth_.radius == 0) {
      for (int64_t z = 0; z < grid_.depth; ++z)
        plane(in, z, [&](int64_t) { return result_.get(); }, [&](int64_t y, const S* staged) { store_row(z * grid_.height + y, staged); });
      return;
    }
    for (int64_t z = 0, ready = 0; z < grid_.depth; ++z) {
      // Planes are finished as far ahead as the window reaches.
      for (; ready < std::min(z + depth_.radius + 1, grid_.depth); ++ready)
        plane(in, ready, [&](int64_t y) { return depth_.slot(ready) + y * row_; }, [](int64_t, const S*) {});
      for (int64_t y = 0; y < grid_.height; ++y) {
        depth_.near.around(z, grid_.depth, [&](int64_t k) { return depth_.slot(k) + y * row_; });
        sum_of_all_pairs(depth_.near.lo.data(), depth_.near.hi.data(), depth_.taps, row_, result_.get());
        store_row(z * grid_.height + y, result_.get());
      }
    }
  }

 private:
  struct Axis {
    int64_t radius, slots, stride;
    Taps<S> taps;
    Neighbors<S> near;
    std::unique_ptr<S[]> ring;  // the finished rows or planes that later windows still cover

    Axis(const SymmetricWindow& window, int64_t extent, int64_t size)
        : radius(window.radius()), slots(std::min(extent, 2 * radius + 1)), stride(size), taps(window), near(radius),
          ring(radius > 0 ? new S[slots * stride] : nullptr) {}
    S* slot(int64_t index) { return ring.get() + index % slots * stride; }
  };

  // Convolves plane z over height and width. Row y is written to target(y), followed by a call of done(y, row).
  template <class Target, class Done>
  void plane(const char* in, int64_t z, Target target, Done done) {
    for (int64_t y = 0, ready = 0; y < grid_.height; ++y) {
      const char* rows = in + z * grid_.height * in_row_;
      S* row = target(y);
      if (height_.radius == 0) {
        convolve_row(rows + y * in_row_, row);
      } else {
        // Rows likewise.
        for (; ready < std::min(y + height_.radius + 1, grid_.height); ++ready) convolve_row(rows + ready * in_row_, height_.slot(ready));
        height_.near.around(y, grid_.height, [&](int64_t k) { return height_.slot(k); });
        sum_of_all_pairs(height_.near.lo.data(), height_.near.hi.data(), height_.taps, row_, row);
      }
      done(y, row);
    }
  }

  void convolve_row(const char* in, S* out) {
    if (width_.radius == 0) return load_(in, row_, out);
    S* row = padded_.get() + padding_;
    load_(in, row_, row);
    // Mirrored pixels on both sides.
    for (int64_t k = 1; k <= width_.radius; ++k) {
      std::copy_n(row + reflect_101(-k, grid_.width) * grid_.inner, grid_.inner, row - k * grid_.inner);
      std::copy_n(row + reflect_101(grid_.width - 1 + k, grid_.width) * grid_.inner, grid_.inner, row + (grid_.width - 1 + k) * grid_.inner);
    }
    sum_of_all_pairs(width_.near.lo.data(), width_.near.hi.data(), width_.taps, row_, out);
  }

  Grid grid_;
  Load<S> load_;
  Store<S> store_;
  int64_t row_, in_row_, out_row_;  // row_: elements per row; the others: bytes per row
  Axis depth_, height_, width_;
  int64_t padding_;
  std::unique_ptr<S[]> padded_, result_;
};

}  // namespace

void weighted_sum(const float* const* lo, const float* const* hi, const Taps<float>& taps, int64_t n, float* out) {
  sum_of_all_pairs(lo, hi, taps, n, out);
}

}  // namespace stencil

void convolve_separable(const Grid& grid, const std::array<SymmetricWindow, 3>& windows, const void* in, DType in_dtype, void* out, DType out_dtype,
                        bool exact) {
  using namespace stencil;
  if (grid.depth * grid.height * grid.width * grid.inner == 0) return;
  const char* src = static_cast<const char*>(in);
  char* dst = static_cast<char*>(out);
  const int64_t radius = std::max({windows[0].radius(), windows[1].radius(), windows[2].radius()});
  // Fixed point only where its error is bounded, and where the operator accepts one.
  if (in_dtype == DType::uint8 && out_dtype == DType::uint8 && radius <= Taps<uint16_t>::kMaxRadius && !exact) {
    Convolution<uint16_t>(grid, windows, load_fixed, 1, store_fixed, 1)(src, dst);
    return;
  }
  Convolution<float>(grid, windows, row_loader(in_dtype), item_bytes(in_dtype), row_storer(out_dtype), item_bytes(out_dtype))(src, dst);
}

}  // namespace ndd
