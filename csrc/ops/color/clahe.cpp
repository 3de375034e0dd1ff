// SPDX-License-Identifier: Apache-2.0
// CLAHE on the CPU, a task for each image: first the tables of all tiles, then every pixel mixed from the four tables around it. Images of three
// channels go through Lab (lab.h), so the lightness alone is equalized.
#include "ops/color/clahe.h"

#include <memory>

#include "ndd/elementwise/lut_x86.h"
#include "ndd/kernel.h"
#include "ndd/simd.h"
#include "ops/color/lab.h"

namespace ndd::clahe {
namespace {

// A VGA image of one channel takes 0.2 ms, of three with their lightness alone 1.7 ms.
constexpr double kNanosecondsPerElement = 1.5;

// The tables of all tiles. A row of the image adds to the histograms of the tiles that it crosses, so memory is read in order; pixels beyond the right
// border come from a reflected copy of the row.
std::vector<uint8_t> tables_of(const Tiling& t, const uint8_t* image) {
  std::vector<uint8_t> tables(t.tiles() * kLevels);
  // Tiles are equally large, so the last ones may go beyond the image, which is reflected there.
  const int64_t outside = std::max<int64_t>(0, t.tiles_x * t.tile_width - t.width);
  std::vector<uint8_t> reflection(outside);
  for (int64_t ty = 0; ty < t.tiles_y; ++ty) {
    std::vector<LevelCounter> counters(t.tiles_x);
    for (int64_t y = ty * t.tile_height; y < (ty + 1) * t.tile_height; ++y) {
      const uint8_t* row = image + reflect_index(y, t.height) * t.width;
      for (int64_t k = 0; k < outside; ++k) reflection[k] = row[reflect_index(t.width + k, t.width)];
      for (int64_t tx = 0; tx < t.tiles_x; ++tx) {
        const int64_t begin = tx * t.tile_width, end = begin + t.tile_width, inside = std::clamp(t.width, begin, end);
        counters[tx].add(row + begin, inside - begin);
        if (inside < end) counters[tx].add(reflection.data() + (inside - t.width), end - inside);
      }
    }
    for (int64_t tx = 0; tx < t.tiles_x; ++tx) {
      uint32_t counts[kLevels] = {};
      counters[tx].add_to(counts);
      make_clipped_table(counts, t.limit, t.area(), tables.data() + (ty * t.tiles_x + tx) * kLevels);
    }
  }
  return tables;
}

#if defined(__x86_64__)
// Pixels of a row between the same tile centers share four tables, which fit in registers for VBMI's lookups; the arithmetic of `blend_tables`.
NDD_VBMI void blend_run(const uint8_t* const tables[4], const float* weights, float row_weight, int64_t n, const uint8_t* src, uint8_t* dst) {
  TableRegisters table[4];
  for (int k = 0; k < 4; ++k) table[k] = table_in_registers(tables[k]);
  const __m512 one = _mm512_set1_ps(1.0f), lower = _mm512_set1_ps(row_weight), upper = _mm512_set1_ps(1.0f - row_weight);
  for (int64_t i = 0; i < n; i += 64) {
    const __m512i levels = _mm512_maskz_loadu_epi8(first_bytes(n - i), src + i);
    alignas(64) uint8_t mapped[4][64];
    for (int k = 0; k < 4; ++k) _mm512_store_si512(mapped[k], look_up(table[k], levels));
    for (int64_t q = 0; q < 64 && i + q < n; q += 16) {
      const __mmask16 present = static_cast<__mmask16>(first_bytes(n - i - q));
      __m512 v[4];
      for (int k = 0; k < 4; ++k)
        v[k] = _mm512_maskz_cvtepi32_ps(0xffff, _mm512_maskz_cvtepu8_epi32(0xffff, _mm_load_si128(reinterpret_cast<const __m128i*>(mapped[k] + q))));
      const __m512 x = _mm512_maskz_loadu_ps(present, weights + i + q), x1 = _mm512_sub_ps(one, x);
      const __m512 above = _mm512_add_ps(_mm512_mul_ps(v[0], x1), _mm512_mul_ps(v[1], x));
      const __m512 below = _mm512_add_ps(_mm512_mul_ps(v[2], x1), _mm512_mul_ps(v[3], x));
      const __m512 value = _mm512_add_ps(_mm512_mul_ps(above, upper), _mm512_mul_ps(below, lower));
      _mm_mask_storeu_epi8(dst + i + q, present, _mm512_maskz_cvtusepi32_epi8(0xffff, _mm512_maskz_cvtps_epi32(0xffff, value)));
    }
  }
}
#endif

// Equalizes an image of one channel; dst may be src.
void equalize(const Tiling& t, const uint8_t* src, uint8_t* dst) {
  const std::vector<uint8_t> tables = tables_of(t, src);
  std::vector<Neighbors> columns(t.width);
  // Of columns, the same in every row: computed once.
  std::vector<float> weights(t.width);
  for (int64_t x = 0; x < t.width; ++x) {
    columns[x] = neighbors(x, t.tile_width, t.tiles_x);
    weights[x] = columns[x].weight;
  }
  for (int64_t y = 0; y < t.height; ++y, src += t.width, dst += t.width) {
    const Neighbors row = neighbors(y, t.tile_height, t.tiles_y);
    const uint8_t* upper = tables.data() + row.first * t.tiles_x * kLevels;
    const uint8_t* lower = tables.data() + row.second * t.tiles_x * kLevels;
#if defined(__x86_64__)
    if (has_vbmi() && t.tile_width >= 8) {  // for narrower tiles loading four tables per run takes longer than the lookups
      for (int64_t x = 0, end; x < t.width; x = end) {
        const int64_t a = columns[x].first, b = columns[x].second;
        // The columns between the same two centers, whose four tables stay in registers.
        for (end = x + 1; end < t.width && columns[end].first == a && columns[end].second == b;) ++end;
        const uint8_t* const around[4] = {upper + a * kLevels, upper + b * kLevels, lower + a * kLevels, lower + b * kLevels};
        blend_run(around, weights.data() + x, row.weight, end - x, src + x, dst + x);
      }
      continue;
    }
#endif
    for (int64_t x = 0; x < t.width; ++x) dst[x] = blend_tables(upper, lower, columns[x], row.weight, src[x]);
  }
}

// Pixels converted at a time: three planes of int32 take 6 KB and stay in the first-level cache between the steps.
constexpr int64_t kRow = 512;

void to_lab(const uint8_t* rgb, int64_t pixels, uint8_t* l, uint8_t* a, uint8_t* b) {
  const LabTables& tables = lab_tables();
  int32_t plane[3][kRow];
  for (int64_t begin = 0; begin < pixels; begin += kRow, rgb += 3 * kRow) {
    const int64_t n = std::min(kRow, pixels - begin);
    for (int64_t i = 0; i < n; ++i)
      for (int c = 0; c < 3; ++c) plane[c][i] = tables.light[rgb[3 * i + c]];
    with_simd([&]() NDD_ALWAYS_INLINE {
      int32_t* __restrict x = plane[0], * __restrict y = plane[1], * __restrict z = plane[2];
      const int64_t count = n;
      for (int64_t i = 0; i < count; ++i) {
        int32_t out[3];
        lab::xyz(x[i], y[i], z[i], out);
        x[i] = out[0], y[i] = out[1], z[i] = out[2];
      }
    });
    for (int c = 0; c < 3; ++c)
      for (int64_t i = 0; i < n; ++i) plane[c][i] = tables.root[plane[c][i]];
    with_simd([&]() NDD_ALWAYS_INLINE {
      const int32_t* __restrict x = plane[0], * __restrict y = plane[1], * __restrict z = plane[2];
      uint8_t* __restrict to_l = l + begin, * __restrict to_a = a + begin, * __restrict to_b = b + begin;
      const int64_t count = n;
      for (int64_t i = 0; i < count; ++i) lab::from_roots(x[i], y[i], z[i], to_l + i, to_a + i, to_b + i);
    });
  }
}

void to_rgb(const uint8_t* l, const uint8_t* a, const uint8_t* b, int64_t pixels, uint8_t* rgb) {
  const LabTables& tables = lab_tables();
  int32_t plane[3][kRow];
  for (int64_t begin = 0; begin < pixels; begin += kRow, rgb += 3 * kRow) {
    const int64_t n = std::min(kRow, pixels - begin);
    with_simd([&]() NDD_ALWAYS_INLINE {
      int32_t* __restrict red = plane[0], * __restrict green = plane[1], * __restrict blue = plane[2];
      const uint8_t* __restrict from_l = l + begin, * __restrict from_a = a + begin, * __restrict from_b = b + begin;
      const int64_t count = n;
      for (int64_t i = 0; i < count; ++i) lab::light_of(from_l[i], from_a[i], from_b[i], red + i, green + i, blue + i);
    });
    for (int64_t i = 0; i < n; ++i)
      for (int c = 0; c < 3; ++c) rgb[3 * i + c] = tables.gamma[plane[c][i]];
  }
}

void clahe_sample(const Tiling& t, int64_t channels, bool luma_only, const uint8_t* src, uint8_t* dst) {
  const int64_t pixels = t.height * t.width;
  if (pixels == 0) return;
  if (channels == 1) return equalize(t, src, dst);
  // Uninitialized, unlike a vector: every byte is written.
  const auto planes = std::make_unique<uint8_t[]>(3 * pixels);
  uint8_t *first = planes.get(), *second = first + pixels, *third = second + pixels;
  if (luma_only) {
    to_lab(src, pixels, first, second, third);
    equalize(t, first, first);
    return to_rgb(first, second, third, pixels, dst);
  }
  // Channels are equalized independently, each as a plane.
  for (int64_t i = 0; i < pixels; ++i) first[i] = src[3 * i], second[i] = src[3 * i + 1], third[i] = src[3 * i + 2];
  for (uint8_t* plane : {first, second, third}) equalize(t, plane, plane);
  for (int64_t i = 0; i < pixels; ++i) dst[3 * i] = first[i], dst[3 * i + 1] = second[i], dst[3 * i + 2] = third[i];
}

void clahe_cpu(const Tensor& input, const MaybeTensor& input_shapes, double clip_limit, bool luma_only, int64_t tiles_x, int64_t tiles_y,
               const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  check_arguments(in, out, tiles_y, tiles_x);
  launch_cpu("clahe", in.size(), kNanosecondsPerElement * in.mean_volume(), {}, [=](int64_t i) {
    const int64_t* shape = in.shape(i);
    if (shape[2] != 1 && shape[2] != 3) fail(Error::Value, "clahe: images have 1 or 3 channels, sample ", i, " has ", shape[2]);
    clahe_sample(Tiling(shape[0], shape[1], tiles_y, tiles_x, clip_limit), shape[2], luma_only, static_cast<const uint8_t*>(in.data(i)),
                 static_cast<uint8_t*>(out.data(i)));
  });
}

}  // namespace
}  // namespace ndd::clahe
NDD_KERNEL(clahe, CPU, ndd::clahe::clahe_cpu)
