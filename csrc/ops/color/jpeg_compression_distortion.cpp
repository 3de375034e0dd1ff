// SPDX-License-Identifier: Apache-2.0
// The artifacts of JPEG on the CPU, without entropy coding: color conversion, transform, quantization and back, band by band of 16 rows, so the
// planes between the steps stay in the caches.
#include "ops/color/jpeg_compression_distortion.h"

#include <cstring>
#include <vector>

#include "ndd/color/interleave.h"
#include "ndd/kernel.h"
#include "ndd/simd.h"
#include "ndd/slice/transpose.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ndd::jpeg {
namespace {

// A VGA image takes 0.9 ms.
constexpr double kNanosecondsPerElement = 1.0;

// Samples are transformed side by side, of four blocks. gcc then takes the widest vectors: with two blocks a block takes 95 ns, with four 79.
constexpr int64_t kLanes = 32;

using Rows = int16_t[8][kLanes];

NDD_ALWAYS_INLINE inline void transpose_blocks(Rows& rows) {
  for (int64_t x = 0; x < kLanes; x += 8) {
    ndd::transpose::Vector<int16_t> block[8];
    for (int k = 0; k < 8; ++k) std::memcpy(&block[k], &rows[k][x], sizeof block[k]);
    ndd::transpose::turn<int16_t>(block);
    for (int k = 0; k < 8; ++k) std::memcpy(&rows[k][x], &block[k], sizeof block[k]);
  }
}

#if defined(__x86_64__)
// The four blocks side by side in the four parts of a register, which these instructions keep apart: a block then takes 55 ns instead of 71.
__attribute__((target("avx512f,avx512bw"))) inline void transpose_wide(Rows& rows) {
  static_assert(sizeof rows[0] == sizeof(__m512i));
  __m512i a[8], b[8];
  for (int k = 0; k < 8; ++k) a[k] = _mm512_load_si512(rows[k]);
  for (int k = 0; k < 4; ++k) b[2 * k] = _mm512_unpacklo_epi16(a[k], a[k + 4]), b[2 * k + 1] = _mm512_unpackhi_epi16(a[k], a[k + 4]);
  for (int k = 0; k < 4; ++k) a[2 * k] = _mm512_unpacklo_epi16(b[k], b[k + 4]), a[2 * k + 1] = _mm512_unpackhi_epi16(b[k], b[k + 4]);
  for (int k = 0; k < 4; ++k) b[2 * k] = _mm512_unpacklo_epi16(a[k], a[k + 4]), b[2 * k + 1] = _mm512_unpackhi_epi16(a[k], a[k + 4]);
  for (int k = 0; k < 8; ++k) _mm512_store_si512(rows[k], b[k]);
}
#endif

// Transposes all blocks.
NDD_ALWAYS_INLINE inline void transpose(Rows& rows, bool wide) {
#if defined(__x86_64__)
  if (wide) return transpose_wide(rows);
#endif
  (void)wide;
  transpose_blocks(rows);
}

// The steps of a table, by row and lane.
struct Lanes {
  int32_t step[8][kLanes];
  float inverse[8][kLanes];

  explicit Lanes(const uint8_t* steps) {
    for (int k = 0; k < 8; ++k)
      for (int64_t x = 0; x < kLanes; ++x) {
        step[k][x] = steps[8 * k + x % 8];
        // The reciprocal, because vectors have no integer division.
        inverse[k][x] = inverse_step(step[k][x]);
      }
  }
};

// f gets the eight numbers of a column of the lanes, and the lane.
template <class F>
NDD_ALWAYS_INLINE inline void every_lane(Rows& rows, F f) {
  for (int64_t x = 0; x < kLanes; ++x) {
    int32_t v[8];
    for (int k = 0; k < 8; ++k) v[k] = rows[k][x];
    f(v, x);
    for (int k = 0; k < 8; ++k) rows[k][x] = static_cast<int16_t>(v[k]);
  }
}

// Eight rows of `width` samples, a multiple of kLanes, through the transform and back. Each direction has the numbers of a vector in one column.
void distort(const int16_t* samples, int64_t width, const Lanes& table, uint8_t* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const Lanes& lanes = table;
    const bool wide = cpu_isa() == Isa::avx512;
    for (int64_t begin = 0; begin < width; begin += kLanes) {
      alignas(64) Rows rows;
      for (int k = 0; k < 8; ++k) std::memcpy(rows[k], samples + k * width + begin, sizeof rows[k]);
      transpose(rows, wide);
      every_lane(rows, [](int32_t* v, int64_t) NDD_ALWAYS_INLINE { forward<0>(v); });
      transpose(rows, wide);
      every_lane(rows, [&](int32_t* v, int64_t x) NDD_ALWAYS_INLINE {
        forward<1>(v);
        for (int k = 0; k < 8; ++k) v[k] = quantize(v[k], lanes.step[k][x], lanes.inverse[k][x]);
        inverse<0>(v);
      });
      transpose(rows, wide);
      every_lane(rows, [](int32_t* v, int64_t) NDD_ALWAYS_INLINE {
        inverse<1>(v);
        for (int k = 0; k < 8; ++k) v[k] = level(v[k] + 128);
      });
      transpose(rows, wide);
      for (int k = 0; k < 8; ++k)
        for (int64_t x = 0; x < kLanes; ++x) out[k * width + begin + x] = static_cast<uint8_t>(rows[k][x]);
    }
  });
}

// Pixels to rows of luma and of chroma at full resolution.
void split(const uint8_t* pixels, int64_t count, int16_t* luma_row, int16_t* blue_row, int16_t* red_row) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const uint8_t* __restrict src = pixels;
    int16_t* __restrict to_luma = luma_row, * __restrict to_blue = blue_row, * __restrict to_red = red_row;
    const int64_t n = count;
#pragma GCC ivdep  // the lambda hides from gcc that the rows are apart
    for (int64_t x = 0; x < n; ++x) {
      const int32_t r = src[3 * x], g = src[3 * x + 1], b = src[3 * x + 2];
      to_luma[x] = static_cast<int16_t>(luma(r, g, b));
      to_blue[x] = static_cast<int16_t>(blue_chroma(r, g, b));
      to_red[x] = static_cast<int16_t>(red_chroma(r, g, b));
    }
  });
}

// Means of two by two chroma samples.
void halve(const int16_t* upper_row, const int16_t* lower_row, int64_t count, int16_t* means) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const int16_t* __restrict upper = upper_row, * __restrict lower = lower_row;
    int16_t* __restrict dst = means;
    const int64_t n = count;
#pragma GCC ivdep
    for (int64_t x = 0; x < n; ++x)
      dst[x] = static_cast<int16_t>(chroma_mean(upper[2 * x] + upper[2 * x + 1] + lower[2 * x] + lower[2 * x + 1], x & 1));
  });
}

// A row of chroma at full resolution from the nearest row at half of it and the next one.
void upsample(const uint8_t* near_row, const uint8_t* far_row, int64_t count, uint8_t* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const uint8_t* __restrict near = near_row, * __restrict far = far_row;
    uint8_t* __restrict dst = out;
    const int64_t last = count - 1;
    const auto column = [=](int64_t x) NDD_ALWAYS_INLINE { return 3 * int32_t{near[x]} + far[x]; };
    const auto pair = [=](int64_t x, int64_t left, int64_t right) NDD_ALWAYS_INLINE {
      dst[2 * x] = static_cast<uint8_t>(upsample_chroma(column(x), column(left), false));
      dst[2 * x + 1] = static_cast<uint8_t>(upsample_chroma(column(x), column(right), true));
    };
    pair(0, 0, std::min<int64_t>(1, last));
#pragma GCC ivdep
    for (int64_t x = 1; x < last; ++x) pair(x, x - 1, x + 1);
    if (last > 0) pair(last, last - 1, last);
  });
}

// Rows of luma and of chroma at full resolution to rows of colors.
void colors(const uint8_t* luma_row, const uint8_t* blue_row, const uint8_t* red_row, int64_t count, uint8_t* const rgb[3]) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const uint8_t* __restrict y = luma_row, * __restrict cb = blue_row, * __restrict cr = red_row;
    uint8_t* __restrict r = rgb[0], * __restrict g = rgb[1], * __restrict b = rgb[2];
    const int64_t n = count;
#pragma GCC ivdep
    for (int64_t x = 0; x < n; ++x) {
      r[x] = static_cast<uint8_t>(to_red(y[x], cr[x]));
      g[x] = static_cast<uint8_t>(to_green(y[x], cb[x], cr[x]));
      b[x] = static_cast<uint8_t>(to_blue(y[x], cb[x]));
    }
  });
}

int64_t up_to(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Images of one size, band by band of 16 rows, so what lies between the steps stays in the cache. Smooth chroma needs the band below: the last
// row of a band is finished with the next one, and kept until then.
class Bands {
 public:
  Bands(int64_t height, int64_t width)
      : height_(height), width_(width), half_(chroma_extent(width)), stride_(up_to(width, kLanes)), half_stride_(up_to(half_, kLanes)),
        rows_(stride_ * 20 + half_stride_ * 16), levels_(stride_ * 22 + half_stride_ * 18) {
    int16_t* next = rows_.data();
    // Of a band: 16 rows of luma, rows of chroma at full resolution, and 8 rows of each chroma at half of it.
    luma_ = next, next += 16 * stride_;
    for (int16_t*& row : full_) row = next, next += stride_;
    for (int16_t*& plane : chroma_) plane = next, next += 8 * half_stride_;
    uint8_t* level = levels_.data();
    // The same after the transforms, with the last row of the band above in front; then three rows of colors.
    luma_out_ = level, level += 17 * stride_;
    for (uint8_t*& plane : chroma_out_) plane = level, level += 9 * half_stride_;
    for (uint8_t*& row : finished_) row = level, level += stride_;
  }

  void distort_image(const uint8_t* src, const Lanes& luma_lanes, const Lanes& chroma_lanes, uint8_t* dst) {
    for (int64_t top = 0; top < height_; top += 16) {
      for (int64_t pair = 0; pair < 8; ++pair) read(src, top, pair);
      for (int64_t half = 0; half < 16; half += 8) distort(luma_ + half * stride_, stride_, luma_lanes, luma_out_ + (1 + half) * stride_);
      for (int k = 0; k < 2; ++k) distort(chroma_[k], half_stride_, chroma_lanes, chroma_out_[k] + half_stride_);
      // The last row of a band needs the chroma of the band below, unless there is none.
      const int64_t end = top + 16 < height_ ? top + 15 : height_;
      for (int64_t y = std::max<int64_t>(0, top - 1); y < end; ++y) write(y, top, dst + 3 * y * width_);
      // Row 0 of the buffers is the one before the next band.
      std::memcpy(luma_out_, luma_out_ + 16 * stride_, stride_);
      for (uint8_t* plane : chroma_out_) std::memcpy(plane, plane + 8 * half_stride_, half_stride_);
    }
  }

 private:
  // Two rows of the band at `top`. Past the right border the last column is repeated, past the lower one the last row of luma and the last of chroma.
  void read(const uint8_t* src, int64_t top, int64_t pair) {
    for (int64_t k = 0; k < 2; ++k) {
      int16_t* const rows[3] = {luma_ + (2 * pair + k) * stride_, full_[k], full_[2 + k]};
      split(src + 3 * width_ * std::min(top + 2 * pair + k, height_ - 1), width_, rows[0], rows[1], rows[2]);
      // The transform takes whole blocks.
      for (int16_t* row : rows) std::fill(row + width_, row + stride_, row[width_ - 1]);
    }
    for (int k = 0; k < 2; ++k) {
      int16_t* row = chroma_[k] + pair * half_stride_;
      if (top + 2 * pair < height_)
        halve(full_[2 * k], full_[2 * k + 1], stride_ / 2, row);  // half_stride_ may be larger: the blocks beyond are not read
      else std::memcpy(row, row - half_stride_, half_stride_ * sizeof(int16_t));
    }
  }

  void write(int64_t y, int64_t top, uint8_t* dst) {
    const int64_t above = top / 2 - 1, last = chroma_extent(height_) - 1;  // the row of chroma before the band
    const int64_t near = y / 2, far = std::clamp<int64_t>(near + (y % 2 ? 1 : -1), 0, last);
    for (int k = 0; k < 2; ++k) {
      const uint8_t* row = chroma_out_[k] + (near - above) * half_stride_;
      if (width_ < kSmoothWidth) {
        for (int64_t x = 0; x < width_; ++x) finished_[k][x] = row[x / 2];
      } else {
        upsample(row, chroma_out_[k] + (far - above) * half_stride_, half_, finished_[k]);
      }
    }
    colors(luma_out_ + (y - top + 1) * stride_, finished_[0], finished_[1], width_, finished_ + 2);
    interleave(finished_[2], finished_[3], finished_[4], width_, dst);
  }

  int64_t height_, width_, half_, stride_, half_stride_;
  std::vector<int16_t> rows_;
  std::vector<uint8_t> levels_;
  int16_t *luma_, *full_[4], *chroma_[2];               // a band before the transform; two rows of both chromas at full resolution
  uint8_t *luma_out_, *chroma_out_[2], *finished_[5];  // after it, with the row before the band; a row of both chromas and of three colors
};

void distortion_cpu(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& quality, const Tensor& output,
                    const MaybeTensor& output_shapes) {
  const Frames frames(input, input_shapes, quality, output, output_shapes);
  launch_cpu("jpeg_compression_distortion", frames.in.size(), kNanosecondsPerElement * frames.in.mean_volume(), {}, [=](int64_t i) {
    frames.check(i);
    const int64_t count = frames.count(i), height = frames.height(i), width = frames.width(i);
    if (count * height * width == 0) return;
    Bands bands(height, width);
    for (int64_t f = 0; f < count; ++f) {
      const Steps steps(frames.quality(i, f));
      bands.distort_image(frames.source(i, f), Lanes(steps.step[0]), Lanes(steps.step[1]), frames.target(i, f));
    }
  });
}

}  // namespace
}  // namespace ndd::jpeg
NDD_KERNEL(jpeg_compression_distortion, CPU, ndd::jpeg::distortion_cpu)
