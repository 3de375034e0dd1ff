// SPDX-License-Identifier: Apache-2.0
// Three loops, by how signals lie: side by side in few or in many columns (map_few, map_wide), or as rows, which are transposed first.
#include "ops/audio/bands.h"

#include <algorithm>

#include "ndd/simd.h"
#include "ops/audio/lanes.h"
#include "ops/audio/scratch.h"

namespace ndd::audio {
namespace {

// Sums of one row of the map for kMaxLanes columns side by side, which stay in registers.
inline NDD_ALWAYS_INLINE void map_lanes(const BandRow& row, const float* weights, const float* from, int64_t step, float* to) {
  float sums[kMaxLanes];
  for (int c = 0; c < kMaxLanes; ++c) sums[c] = 0.0f;
  for (int32_t k = 0; k < row.count; ++k) {
    const float weight = weights[k];
    const float* __restrict src = from + k * step;
#pragma GCC ivdep
    for (int c = 0; c < kMaxLanes; ++c) sums[c] += weight * src[c];
  }
  for (int c = 0; c < kMaxLanes; ++c) to[c] = sums[c];
}

// The same for many columns: R rows of the input at a time are added to the sums, which stay in the first-level cache. Each row is read from end to end,
// which suits the hardware prefetcher. The `first` rows start the sums: clearing them beforehand makes 128 bands 9 % slower.
template <int R>
inline NDD_ALWAYS_INLINE void add_rows(const float* weights, const float* from, int64_t step, int64_t columns, bool first, float* out) {
  const float* __restrict src = from;
  float* __restrict to = out;
  float weight[R > 0 ? R : 1];
  for (int r = 0; r < R; ++r) weight[r] = weights[r];
#pragma GCC ivdep
  for (int64_t c = 0; c < columns; ++c) {
    float sum = first ? 0.0f : to[c];
    for (int r = 0; r < R; ++r) sum += weight[r] * src[r * step + c];
    to[c] = sum;
  }
}

inline NDD_ALWAYS_INLINE void map_wide(const BandRow& row, const float* weights, const float* from, int64_t step, int64_t columns, float* to) {
  // The remainder first, so all later rounds have four rows.
  int32_t k = row.count % 4;
  if (k == 0) add_rows<0>(weights, from, step, columns, true, to);
  else if (k == 1) add_rows<1>(weights, from, step, columns, true, to);
  else if (k == 2) add_rows<2>(weights, from, step, columns, true, to);
  else add_rows<3>(weights, from, step, columns, true, to);
  for (; k < row.count; k += 4) add_rows<4>(weights + k, from + k * step, step, columns, false, to);
}

inline NDD_ALWAYS_INLINE void map_few(const BandRow& row, const float* weights, const float* from, int64_t step, int64_t columns, float* to) {
  for (int64_t c = 0; c < columns; ++c) {
    float sum = 0.0f;
    for (int32_t k = 0; k < row.count; ++k) sum += weights[k] * from[k * step + c];
    to[c] = sum;
  }
}

constexpr int64_t kWide = 512;  // columns: a row of sums takes 2 KB of the first-level cache

// Maps `columns` adjacent signals; consecutive elements of a signal lie `in_step` and `out_step` apart.
void map_columns(const Bands& bands, const float* in, int64_t in_step, int64_t columns, float* out, int64_t out_step) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    int64_t begin = 0;
    while (begin < columns) {
      // Many columns at a time, 16 with their sums in registers, or the rest one by one.
      const int64_t left = columns - begin, width = left >= 64 ? std::min(left, kWide) : left >= kMaxLanes ? kMaxLanes : left;
      for (size_t m = 0; m < bands.rows.size(); ++m) {
        const BandRow row = bands.rows[m];
        const float* weights = bands.weights.data() + row.offset;
        const float* from = in + row.first * in_step + begin;
        float* to = out + static_cast<int64_t>(m) * out_step + begin;
        if (width >= 64) map_wide(row, weights, from, in_step, width, to);
        else if (width == kMaxLanes) map_lanes(row, weights, from, in_step, to);
        else map_few(row, weights, from, in_step, width, to);
      }
      begin += width;
    }
  });
}

// Maps signals that are rows: kMaxLanes of them are transposed, mapped as columns and transposed back, because a sum along a row does not vectorize without
// changing the order of its additions.
void map_rows(const Bands& bands, const float* in, int64_t count, float* out) {
  static thread_local LineVector<float> tile, mapped;
  const int64_t inputs = bands.inputs, outputs = static_cast<int64_t>(bands.rows.size());
  float* const lanes_in = scratch_of(tile, inputs * kMaxLanes);
  float* const lanes_out = scratch_of(mapped, outputs * kMaxLanes);
  for (int64_t first = 0; first < count; first += kMaxLanes) {
    const int64_t lanes = std::min<int64_t>(kMaxLanes, count - first);
    const float* from[kMaxLanes];
    float* to[kMaxLanes];
    for (int64_t l = 0; l < kMaxLanes; ++l) {
      // Lanes beyond the last row repeat it, and their results are not stored.
      from[l] = in + std::min(first + l, count - 1) * inputs;
      to[l] = out + std::min(first + l, count - 1) * outputs;
    }
    rows_to_lanes(from, kMaxLanes, inputs, lanes_in);
    map_columns(bands, lanes_in, kMaxLanes, kMaxLanes, lanes_out, kMaxLanes);
    lanes_to_rows(lanes_out, kMaxLanes, lanes, outputs, to);
  }
}

void map_sample(const Samples& in, const Samples& out, int64_t i, int64_t axis, const BandsOf& bands_of) {
  if (out.volume(i) == 0) return;
  const AxisShape shape(in, i, axis);
  const BandsPtr bands = bands_of(shape.extent);
  const auto* from = static_cast<const float*>(in.data(i));
  auto* to = static_cast<float*>(out.data(i));
  const int64_t outputs = static_cast<int64_t>(bands->rows.size());
  if (shape.inner == 1) return map_rows(*bands, from, shape.outer, to);
  for (int64_t o = 0; o < shape.outer; ++o)
    map_columns(*bands, from + o * shape.extent * shape.inner, shape.inner, shape.inner, to + o * outputs * shape.inner, shape.inner);
}

}  // namespace

void apply_bands_cpu(const std::string& op, const Samples& in, const Samples& out, int64_t axis, double mean_weights, BandsOf bands_of) {
  launch_cpu(op, in.size(), 0.05 * mean_weights * out.mean_volume() + 0.2 * in.mean_volume(), {},
             [=](int64_t i) { map_sample(in, out, i, axis, bands_of); });
}

}  // namespace ndd::audio
