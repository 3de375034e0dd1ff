// SPDX-License-Identifier: Apache-2.0
// Chooses how to resample a sample on the CPU: copies for nearest neighbors, fixed point for bytes, float for the rest.
#include "ndd/resample/cpu.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "ndd/elementwise/rows.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/resample/table.h"
#include "ndd/resample/two_passes.h"
#include "ndd/resample/u8.h"
#include "ndd/simd.h"

namespace ndd {
namespace {

// --- The two passes ---
//
// Over one plane (rows of `in_width * channels` elements), tile by tile, for any arithmetic:
//   rows of the source --mix_rows--> kRows output rows --turn_in--> [element][kRows] --mix_columns--> [element][kRows] --turn_out--> output.
// Between the turns, the kRows values of an element are adjacent, so the horizontal pass runs straight through memory like the vertical one, whatever
// the number of channels. 640x480x3 uint8 to 224x224 with antialias takes 0.05 ms on one thread with AVX-512 and 0.07 with AVX2; OpenCV without
// antialias takes 0.07, torchvision 0.18, DALI 3.3.
//
// An arithmetic (Floats, u8::Avx2) supplies these four functions. Its buffers are per thread and padded for whole vectors; source and output rows may
// have any alignment.

struct Plane {
  const void* in;
  void* out;
  int64_t channels;
};

template <class Arithmetic>
void resample_plane(const Arithmetic& arith, const Plane& p, const AxisTable& v, const AxisTable& h) {
  using Mid = typename Arithmetic::Mid;
  using Tile = typename Arithmetic::Tile;
  constexpr int64_t kRows = Arithmetic::kRows;
  const int64_t c = p.channels, in_stride = h.axis.in * c, out_stride = h.axis.out * c;
  const int64_t limit = std::max<int64_t>(Arithmetic::kStrip / c, 1), least = (arith.least_row + c - 1) / c;
  for (int64_t x = 0; x < h.axis.out;) {
    const ColumnStrip s = next_strip(h, x, limit, std::min(least, h.axis.in));
    const int64_t n = (s.last - s.first) * c, padded = (n + 31) / 32 * 32, m = (s.end - s.begin) * c;
    Mid* mixed = scratch<Mid>(0, kRows * padded);
    Mid* tile = scratch<Mid>(1, kRows * padded);
    Tile* result = scratch<Tile>(2, kRows * ((m + 31) / 32 * 32));
    // Rows beyond `rows` of the last tile hold old values, which turn_out() does not store.
    for (int64_t y = 0; y < v.axis.out; y += kRows) {
      const int64_t rows = std::min(kRows, v.axis.out - y);
      for (int64_t r = 0; r < rows; ++r) arith.mix_rows(p.in, v.start[y + r] * in_stride + s.first * c, in_stride, v, y + r, mixed + r * padded, n);
      arith.turn_in(mixed, padded, n, tile);
      arith.mix_columns(tile, h, s, c, result);
      arith.turn_out(result, m, rows, p.out, y * out_stride + s.begin * c, out_stride);
    }
    x = s.end;
  }
}

// --- Arithmetic in float ---
//
// For any element type, whenever the fixed-point path does not apply; the pass over depth uses it too.

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
void turn(const float* in, int64_t in_stride, int64_t rows, int64_t columns, float* out, int64_t out_stride) {
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
  // Output rows per tile: two vectors of eight; source elements per strip, so a tile of floats has 24 kB.
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

// --- The paths ---

// Copies `width` pixels of a fixed size: a size known at compile time becomes one load and one store.
template <int64_t kBytes>
void pick(const char* row, const int32_t* at, int64_t width, int64_t bytes, char* out) {
  const int64_t size = kBytes ? kBytes : bytes;
  for (int64_t x = 0; x < width; ++x) std::memcpy(out + x * size, row + at[x] * size, size);
}

// Copies three-byte pixels as overlapping 4-byte words, which halves the instructions. Reads a byte past each pixel, so it must not be used for the
// row that ends the sample.
void pick_rgb(const char* row, const int32_t* at, int64_t width, int64_t, char* out) {
  for (int64_t x = 0; x + 1 < width; ++x) std::memcpy(out + x * 3, row + at[x] * 3, 4);
  std::memcpy(out + (width - 1) * 3, row + at[width - 1] * 3, 3);
}

// Skipped rows break the pattern that the hardware prefetcher would follow.
void prefetch(const char* row, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at);
}

void nearest(const ResampleJob& job, const AxisTable* const* tables) {
  const AxisTable &d = *tables[0], &v = *tables[1], &h = *tables[2];
  const int64_t bytes = job.channels * item_bytes(job.in_type), in_row = h.axis.in * bytes, row = h.axis.out * bytes;
  const auto picker = bytes == 1 ? pick<1> : bytes == 2 ? pick<2> : bytes == 3 ? pick<3> : bytes == 4 ? pick<4> : bytes == 12 ? pick<12> : pick<0>;
  // pick_rgb() must not read beyond the end of the input: the last row of the last plane is copied pixel by pixel.
  char* out = static_cast<char*>(job.out);
  const char* const last_row = static_cast<const char*>(job.in) + (job.outer * d.axis.in * v.axis.in - 1) * in_row;
  for (int64_t o = 0; o < job.outer; ++o) {
    const char* in = static_cast<const char*>(job.in) + o * d.axis.in * v.axis.in * in_row;
    for (int64_t z = 0; z < d.axis.out; ++z) {
      for (int64_t y = 0; y < v.axis.out; ++y, out += row) {
        const char* from = in + (d.start[z] * v.axis.in + v.start[y]) * in_row;
        if (y + 1 < v.axis.out) prefetch(in + (d.start[z] * v.axis.in + v.start[y + 1]) * in_row, in_row);
        // An enlarged image repeats rows: copying the one above is cheaper than picking again.
        if (y > 0 && v.start[y] == v.start[y - 1]) std::memcpy(out, out - row, row);
        else (bytes == 3 && from != last_row ? pick_rgb : picker)(from, h.start.data(), h.axis.out, bytes, out);
      }
    }
  }
}

// Resamples `count` dense images, one after the other.
template <class Arithmetic>
void planes(const Arithmetic& arith, const ResampleJob& job, int64_t count, const AxisTable& v, const AxisTable& h) {
  const int64_t in_plane = v.axis.in * h.axis.in * job.channels * item_bytes(job.in_type);
  const int64_t out_plane = v.axis.out * h.axis.out * job.channels * item_bytes(job.out_type);
  for (int64_t i = 0; i < count; ++i)
    resample_plane(arith, {static_cast<const char*>(job.in) + i * in_plane, static_cast<char*>(job.out) + i * out_plane, job.channels}, v, h);
}

// Whether to resample columns before rows. Rows first is a single tiled pass without an intermediate image, but it is wasteful if a wide, low source
// becomes a narrow, high output.
bool columns_first_pays(const AxisTable& v, const AxisTable& h) {
  const double in_height = static_cast<double>(v.axis.in), in_width = static_cast<double>(h.axis.in);
  const double out_height = static_cast<double>(v.axis.out), out_width = static_cast<double>(h.axis.out);
  // Multiplications of both orders. Rows first is preferred unless it takes six times as many.
  const double rows_first = out_height * (in_width * v.most + out_width * h.most),
               columns_first = out_width * (in_height * h.most + out_height * v.most);
  return rows_first > 6 * columns_first;
}

void columns_first(const ResampleJob& job, const AxisTable& v, const AxisTable& h) {
  ResampleJob first = job, second = job;
  first.out = scratch<float>(4, job.outer * v.axis.in * h.axis.out * job.channels);
  first.out_type = second.in_type = DType::float32;
  second.in = first.out;
  planes(Floats{job.in_type, DType::float32}, first, job.outer, axis_table(3, unchanged_axis(v.axis.in)), h);
  planes(Floats{DType::float32, job.out_type}, second, job.outer, v, axis_table(4, unchanged_axis(h.axis.out)));
}

// Resamples volumes: each output plane is first mixed from input planes, into a float plane of the source's size.
void volumes(const ResampleJob& job, const AxisTable& d, const AxisTable& v, const AxisTable& h) {
  const int64_t plane = v.axis.in * h.axis.in * job.channels, out_plane = v.axis.out * h.axis.out * job.channels * item_bytes(job.out_type);
  float* mixed = scratch<float>(4, plane);
  char* out = static_cast<char*>(job.out);
  for (int64_t o = 0; o < job.outer; ++o) {
    for (int64_t z = 0; z < d.axis.out; ++z, out += out_plane) {
      for_dtype(job.in_type, [&](auto tag) {
        using In = typename decltype(tag)::type;
        const In* in = static_cast<const In*>(job.in) + (o * d.axis.in + d.start[z]) * plane;
        mix_to_float(in, plane, d.weights(z), d.count[z], mixed, plane);
      });
      resample_plane(Floats{DType::float32, job.out_type}, {mixed, out, job.channels}, v, h);
    }
  }
}

// Whether resampling along an axis copies each element. Zero weights beside it do not matter.
bool keeps_all(const AxisTable& table) {
  if (table.axis.in != table.axis.out) return false;
  for (int64_t x = 0; x < table.axis.out; ++x)
    for (int32_t k = 0; k < table.count[x]; ++k)
      if (table.weights(x)[k] != (table.start[x] + k == x ? 1.0f : 0.0f)) return false;
  return true;
}

// The width does not change, as when features are stretched in time: each row of the output is mixed from rows of the input, without a plane between.
void rows_only(const ResampleJob& job, const AxisTable& v, int64_t width) {
  const int64_t row = width * job.channels;
  float* out = static_cast<float*>(job.out);
  for_dtype(job.in_type, [&](auto tag) {
    const auto* in = static_cast<const typename decltype(tag)::type*>(job.in);
    for (int64_t o = 0; o < job.outer; ++o, in += v.axis.in * row)
      for (int64_t y = 0; y < v.axis.out; ++y, out += row) mix_to_float(in + v.start[y] * row, row, v.weights(y), v.count[y], out, row);
  });
}

// Elements of a row below which rows are joined, see below.
constexpr int64_t kNarrow = 256;

}  // namespace

void resample_cpu(const ResampleJob& job) {
  AxisTable* tables[3];
  // The paths below, from the most special to the general one, all compute the same within rounding.
  int64_t in_volume = job.outer * job.channels, out_volume = in_volume;
  bool all_nearest = job.in_type == job.out_type;
  for (const Axis& a : job.axes) in_volume *= a.in, out_volume *= a.out;
  if (out_volume == 0) return;
  // An output without a source is black.
  if (in_volume == 0) {
    std::memset(job.out, 0, out_volume * item_bytes(job.out_type));
    return;
  }
  for (int i = 0; i < 3; ++i) {
    tables[i] = &axis_table(i, job.axes[i]);
    all_nearest = all_nearest && job.axes[i].filter == Filter::nearest;
  }
  const AxisTable& only = *tables[2];
  const auto single = [](const AxisTable& table) { return table.axis.in == 1 && table.axis.out == 1; };
  if (job.outer > 1 && single(*tables[0]) && single(*tables[1]) && only.axis.in * job.channels < kNarrow &&
      job.outer < std::numeric_limits<int32_t>::max()) {
    // Rows of a few elements, as when channels are resampled, are treated as the rows of one image: with an image for each, 8 images of 321x213 took
    // 2.4 times as long.
    ResampleJob rows = job;
    rows.axes[1] = unchanged_axis(job.outer);
    rows.axes[1].rule = only.axis.rule;
    rows.outer = 1;
    return resample_cpu(rows);
  }
  AxisTable &d = *tables[0], &v = *tables[1], &h = *tables[2];
  if (all_nearest) return nearest(job, tables);
  if (d.axis.in != 1 || d.axis.out != 1) return volumes(job, d, v, h);
  // torch and Pillow round to bytes between the passes; for floats all rules are the same.
  if (h.axis.rule != Rule::dali && job.in_type == DType::uint8 && job.out_type == DType::uint8) return resample_in_two_passes(job, v, h);
  if (job.out_type == DType::float32 && keeps_all(h)) return rows_only(job, v, h.axis.out);
  if (columns_first_pays(v, h)) return columns_first(job, v, h);
#if defined(__x86_64__)
  const int64_t row = h.axis.in * job.channels;
  // Fixed point with 14-bit weights. Vectors need rows of 32 or 64 bytes, and the error, which grows with the taps, is bounded for kMaxTaps.
  if (job.in_type == DType::uint8 && job.out_type == DType::uint8 && cpu_isa() != Isa::base && row >= 32 &&
      std::max(v.most, h.most) <= u8::kMaxTaps) {
    v.build_weights14();
    h.build_weights14();
    if (u8::resample_up(job, v, h)) return;
    if (cpu_isa() == Isa::avx512 && row >= 64) return planes(u8::Avx512{}, job, job.outer, v, h);
    return planes(u8::Avx2{}, job, job.outer, v, h);
  }
#endif
  planes(Floats{job.in_type, job.out_type}, job, job.outer, v, h);
}

}  // namespace ndd
