// SPDX-License-Identifier: Apache-2.0
// Correlation of an image with an arbitrary window of weights, on the CPU.
#include "ndd/stencil/cpu.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "ndd/dtypes.h"
#include "ndd/elementwise/rows.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/simd.h"
#include "ndd/stencil/rows.h"

namespace ndd {
namespace stencil {
namespace {

// Rows are staged as S: float for any element type, or int16_t for uint8 -> uint8 with small integer weights (Laplacian, sharpening, Sobel), whose
// sums are exact as well and take half the time.

// out[i] = (Accumulate ? out[i] : 0) + sum over P taps of weight[p] * rows[p][i]
template <class S, int P, bool Accumulate>
void sum_taps(const S* const* rows, const S* weight, int64_t n, S* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const S* tap[P];
    S w[P];
    // Local arrays of constant size become registers.
    for (int p = 0; p < P; ++p) tap[p] = rows[p], w[p] = weight[p];
    S* __restrict dst = out;
    const int64_t count = n;
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      S sum = Accumulate ? dst[i] : S{};
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p) sum = static_cast<S>(sum + static_cast<S>(w[p] * tap[p][i]));
      dst[i] = sum;
    }
  });
}

constexpr int kMaxTaps = 16;  // taps per sweep: their row pointers stay in registers, and a 3x3 window needs only one sweep

template <class S, size_t... P>
constexpr auto first_taps(std::index_sequence<P...>) {
  return std::array{&sum_taps<S, static_cast<int>(P) + 1, false>...};
}

// The sum of `count` weighted rows.
template <class S>
void weighted_taps(const S* const* rows, const S* weight, int64_t count, int64_t n, S* out) {
  static constexpr auto first = first_taps<S>(std::make_index_sequence<kMaxTaps>{});
  if (count == 0) return static_cast<void>(std::fill_n(out, n, S{}));
  // The first sweep takes the remainder, so all later ones are full.
  int64_t done = (count - 1) % kMaxTaps + 1;
  first[done - 1](rows, weight, n, out);
  for (; done < count; done += kMaxTaps) sum_taps<S, kMaxTaps, true>(rows + done, weight + done, n, out);
}

void load_int16(const void* row, int64_t n, int16_t* staged) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const uint8_t* __restrict src = static_cast<const uint8_t*>(row);
    int16_t* __restrict dst = staged;
    const int64_t count = n;
    for (int64_t i = 0; i < count; ++i) dst[i] = src[i];
  });
}

void store_int16(const int16_t* staged, int64_t n, void* row) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const int16_t* __restrict src = staged;
    uint8_t* __restrict dst = static_cast<uint8_t*>(row);
    const int64_t count = n;
    for (int64_t i = 0; i < count; ++i) dst[i] = static_cast<uint8_t>(std::clamp<int16_t>(src[i], 0, 255));
  });
}

// Whether sums of bytes with these weights are integers that fit in 16 bits.
bool whole_and_small(const std::vector<float>& weights) {
  float sum = 0.0f;
  for (const float w : weights) {
    if (!(std::fabs(w) <= 128.0f) || w != std::nearbyint(w)) return false;
    sum += std::fabs(w);
  }
  // 128 * 255 = 32640, just below 2^15.
  return sum <= 128.0f;
}

struct Tap {
  int64_t row, shift;  // the row within the window, and the shift along it in elements
};

// How rows are converted to S and back.
template <class S>
struct RowTypes {
  void (*load)(const void* row, int64_t n, S* staged);
  int64_t in_bytes;
  void (*store)(const S* staged, int64_t n, void* row);
  int64_t out_bytes;
};

template <class S>
void correlate_as(const Grid& in_grid, const Grid& out_grid, const std::array<Reach, 3>& reach, const std::vector<Tap>& taps,
                  const std::vector<S>& weights, Border border, S fill, const void* in, void* out, RowTypes<S> types) {
  const auto& [depth, height, width] = reach;
  const int64_t before = width.before, inner = in_grid.inner, in_row = in_grid.row(), out_row = out_grid.row();
  const int64_t after = out_grid.width + width.size - 1 - before - in_grid.width;  // 0 if the outputs stay clear of the border
  const int64_t length = in_row + (before + after) * inner;
  const Buffer<S> result(out_row);
  std::vector<const S*> tap_rows(taps.size());
  for_rows<S>(
      in_grid, out_grid, depth, height, border, length,
      [&](int64_t k, S* staged) {
        // A row outside the image, with a constant border.
        if (k < 0) return static_cast<void>(std::fill_n(staged, length, fill));
        const char* source = static_cast<const char*>(in) + k * in_row * types.in_bytes;
        // Two rows ahead of the one being loaded.
        prefetch_row(source + 2 * in_row * types.in_bytes, in_row * types.in_bytes);
        types.load(source, in_row, staged + before * inner);
        pad_row(staged + before * inner, in_grid.width, inner, before, after, border, fill);
      },
      [&](const S* const* rows, int64_t k) {
        for (size_t t = 0; t < taps.size(); ++t) tap_rows[t] = rows[taps[t].row] + taps[t].shift;
        weighted_taps(tap_rows.data(), weights.data(), static_cast<int64_t>(taps.size()), out_row, result.get());
        types.store(result.get(), out_row, static_cast<char*>(out) + k * out_row * types.out_bytes);
      });
}

}  // namespace
}  // namespace stencil

void correlate(const Grid& in_grid, const Grid& out_grid, const TapWindow& window, Border border, float fill, const void* in, DType in_dtype,
               void* out, DType out_dtype) {
  if (out_grid.volume() == 0) return;
  const int64_t columns = window.reach[2].size;
  std::vector<stencil::Tap> taps;
  std::vector<float> weights;
  for (int64_t k = 0; k < static_cast<int64_t>(window.weight.size()); ++k) {
    // Zero weights cost nothing: a Laplacian of 3x3 has five taps.
    if (window.weight[k] == 0.0f) continue;
    taps.push_back({k / columns, k % columns * in_grid.inner});
    weights.push_back(window.weight[k]);
  }
  // The border's value must be a byte as well.
  const bool whole = in_dtype == DType::uint8 && out_dtype == DType::uint8 && (border != Border::constant || saturate<uint8_t>(fill) == fill);
  if (whole && stencil::whole_and_small(weights)) {
    const std::vector<int16_t> small(weights.begin(), weights.end());
    stencil::correlate_as<int16_t>(in_grid, out_grid, window.reach, taps, small, border, saturate<uint8_t>(fill), in, out,
                                   {stencil::load_int16, 1, stencil::store_int16, 1});
    return;
  }
  stencil::correlate_as<float>(in_grid, out_grid, window.reach, taps, weights, border, fill, in, out,
                               {row_loader(in_dtype), item_bytes(in_dtype), row_storer(out_dtype), item_bytes(out_dtype)});
}

}  // namespace ndd
