// SPDX-License-Identifier: Apache-2.0
// Arithmetic in float for any element type: resample_plane uses it whenever the fixed-point path does not apply, and so does the pass over depth.
#pragma once
#include <algorithm>
#include <cstring>

#include "ndd/dtypes.h"
#include "ndd/elementwise/rows.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/resample/plane.h"
#include "ndd/simd.h"

namespace ndd {

// out[j] = sum over k of w[k] * in[k * stride + j]
template <class In>
void mix_to_float(const In* in, int64_t stride, const float* w, int32_t taps, float* out, int64_t n) {
  with_simd([=]() NDD_ALWAYS_INLINE {
    constexpr int64_t kBlock = 2048;  // keeps the block of `out` in the L1 cache over all taps
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t m = std::min(kBlock, n - begin);
      float* __restrict to = out + begin;
      // Two taps per pass over `to`, which halves its loads and stores. The first pass stores, later ones add.
      for (int32_t k = 0; k < taps; k += 2) {
        const In* __restrict a = in + k * stride + begin;
        const float wa = w[k];
        if (k + 1 == taps) {
          if (k == 0)
            for (int64_t j = 0; j < m; ++j) to[j] = wa * static_cast<float>(a[j]);
          else
            for (int64_t j = 0; j < m; ++j) to[j] += wa * static_cast<float>(a[j]);
        } else {
          const In* __restrict b = a + stride;
          const float wb = w[k + 1];
          if (k == 0)
            for (int64_t j = 0; j < m; ++j) to[j] = wa * static_cast<float>(a[j]) + wb * static_cast<float>(b[j]);
          else
            for (int64_t j = 0; j < m; ++j) to[j] += wa * static_cast<float>(a[j]) + wb * static_cast<float>(b[j]);
        }
      }
    }
  });
}

// Transposes out[j][i] = in[i][j] in blocks of 8 x 8. Reads and writes up to the next multiple of 8 of either extent, so the buffers must be padded.
inline void turn(const float* in, int64_t in_stride, int64_t rows, int64_t columns, float* out, int64_t out_stride) {
  with_simd([=]() NDD_ALWAYS_INLINE {
    // Three rounds of exchanges between rows: of single elements, pairs and halves.
    using Eight = float __attribute__((vector_size(32)));
    for (int64_t i = 0; i < rows; i += 8) {
      for (int64_t j = 0; j < columns; j += 8) {
        Eight a[8], b[8];
        for (int r = 0; r < 8; ++r) std::memcpy(&a[r], in + (i + r) * in_stride + j, sizeof(Eight));
        for (int r = 0; r < 8; r += 2) {
          b[r] = __builtin_shufflevector(a[r], a[r + 1], 0, 8, 1, 9, 4, 12, 5, 13);
          b[r + 1] = __builtin_shufflevector(a[r], a[r + 1], 2, 10, 3, 11, 6, 14, 7, 15);
        }
        for (int r = 0; r < 8; r += 4) {
          for (int k = 0; k < 2; ++k) {
            a[r + 2 * k] = __builtin_shufflevector(b[r + k], b[r + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            a[r + 2 * k + 1] = __builtin_shufflevector(b[r + k], b[r + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
          }
        }
        for (int r = 0; r < 4; ++r) {
          b[r] = __builtin_shufflevector(a[r], a[r + 4], 0, 1, 2, 3, 8, 9, 10, 11);
          b[r + 4] = __builtin_shufflevector(a[r], a[r + 4], 4, 5, 6, 7, 12, 13, 14, 15);
        }
        for (int r = 0; r < 8; ++r) std::memcpy(out + (j + r) * out_stride + i, &b[r], sizeof(Eight));
      }
    }
  });
}

// The arithmetic of resample_plane for any element types: everything is float, also between the passes.
struct Floats {
  using Mid = float;
  using Tile = float;
  // Output rows per tile: two vectors of eight; source elements per strip, so that a tile of floats has 24 kB.
  static constexpr int64_t kRows = 16, kStrip = 384;
  DType in_type, out_type;
  int64_t least_row = 1;

  void mix_rows(const void* in, int64_t offset, int64_t stride, const AxisTable& v, int64_t y, float* out, int64_t n) const {
    for_dtype(in_type, [&](auto tag) {
      using In = typename decltype(tag)::type;
      mix_to_float(static_cast<const In*>(in) + offset, stride, v.weights(y), v.count[y], out, n);
    });
  }

  void turn_in(const float* in, int64_t stride, int64_t n, float* out) const { turn(in, stride, kRows, n, out, kRows); }

  void mix_columns(const float* tile, const AxisTable& h, const ColumnStrip& s, int64_t channels, float* out) const {
    with_simd([=, &h]() NDD_ALWAYS_INLINE {
      float* __restrict to = out;
      for (int64_t x = s.begin; x < s.end; ++x) {
        const float* w = h.weights(x);
        const int32_t taps = h.count[x];
        for (int64_t c = 0; c < channels; ++c, to += kRows) {
          const float* __restrict from = tile + ((h.start[x] - s.first) * channels + c) * kRows;
          // One accumulator per row: the loop over r becomes vector operations, with the weight broadcast.
          float sum[kRows] = {};
          for (int32_t k = 0; k < taps; ++k)
            for (int64_t r = 0; r < kRows; ++r) sum[r] += w[k] * from[k * channels * kRows + r];
          for (int64_t r = 0; r < kRows; ++r) to[r] = sum[r];
        }
      }
    });
  }

  void turn_out(const float* tile, int64_t n, int64_t rows, void* out, int64_t offset, int64_t stride) const {
    // Full tiles of float32 go straight to the output, except for the last columns, which turn() would write past the end.
    const int64_t whole = n / 8 * 8, padded = (n + 7) / 8 * 8;
    if (out_type == DType::float32 && rows == kRows) {
      float* dst = static_cast<float*>(out) + offset;
      turn(tile, kRows, whole, kRows, dst, stride);
      for (int64_t j = whole; j < n; ++j)
        for (int64_t r = 0; r < rows; ++r) dst[r * stride + j] = tile[j * kRows + r];
      return;
    }
    // Other types are transposed into rows of floats first, because row_storer converts whole rows.
    float* lines = scratch<float>(3, kRows * padded);
    turn(tile, kRows, n, kRows, lines, padded);
    const StoreRow store = row_storer(out_type);
    for (int64_t r = 0; r < rows; ++r) store(lines + r * padded, n, static_cast<char*>(out) + (offset + r * stride) * item_bytes(out_type));
  }
};

}  // namespace ndd
