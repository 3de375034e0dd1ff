// SPDX-License-Identifier: Apache-2.0
// Several regions of one image, as multi_crop takes them: what they share is transposed once for all of them (row_lanes.h), while its rows are in the
// caches. Other jobs are resampled one by one.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "ndd/resample/cpu.h"
#include "ndd/resample/row_lanes.h"
#include "ndd/resample/two_passes.h"
#include "ndd/simd.h"

namespace ndd {
#if defined(__x86_64__)
namespace {

// A region between its passes.
struct Region {
  AxisTable v, h;
  row_lanes::PairWeights weights;
  AxisSpan rows, columns;
  const ResampleJob* job = nullptr;
  uint8_t* mixed = nullptr;  // row `rows.first - kMargin` of the width pass
  int64_t done = 0;  // rows of the output

  // Groups of rows begin where the first region does: the first and the last group of another may have rows outside of it, which are computed as well.
  static constexpr int64_t kMargin = row_lanes::kRows - 1;

  int64_t row_bytes() const { return h.axis.out * job->channels; }
  int64_t mixed_bytes() const { return (rows.last - rows.first + 2 * kMargin) * row_bytes(); }

  // The height pass of the next rows of the output that need no row of the width pass from `bottom` on.
  void mix_rows_above(int64_t bottom) {
    const int64_t begin = done, row = row_bytes();
    while (done < v.axis.out && v.start[done] + v.count[done] <= bottom) ++done;
    mix_height(mixed + kMargin * row, rows.first, row, row, v, begin, done, static_cast<uint8_t*>(job->out) + begin * row, row);
  }
};

// Of the rows between the passes, which stay with the thread. A region with more is resampled alone.
constexpr int64_t kMixedBytes = 8 << 20;

bool bytes_in_color(const ResampleJob& job) {
  const Axis &d = job.axes[0], &v = job.axes[1], &h = job.axes[2];
  return cpu_isa() != Isa::base && job.in_type == DType::uint8 && job.out_type == DType::uint8 && h.rule != Rule::dali && job.outer == 1 &&
         d.in == 1 && d.out == 1 && (job.channels == 3 || job.channels == 4) && v.in >= row_lanes::kRows && h.in <= row_lanes::kStrip && v.out > 0 &&
         h.out > 0;
}

// Fills the tables of a region, and whether resample_in_two_passes would pass the width first, and in row lanes.
bool prepare(const ResampleJob& job, Region& region) {
  if (!same_axis(job.axes[1], region.v.axis)) region.v.build(job.axes[1]);
  if (!same_axis(job.axes[2], region.h.axis)) {
    region.h.build(job.axes[2]);
    region.weights.build(region.h);
  }
  region.job = &job;
  region.done = 0;
  region.rows = AxisSpan(region.v);
  region.columns = AxisSpan(region.h);
  return row_lanes::pays(region.rows.last - region.rows.first, region.h) && !height_first(region.v, region.h);
}

// The rows of the image are turned into lanes once, sixteen at a time, for all regions; each then mixes the columns it needs, and rows of its
// output as soon as their last source row is there.
void resample_together(std::vector<Region>& regions, int64_t count) {
  const ResampleJob& job = *regions[0].job;
  const int64_t channels = job.channels, height = job.axes[1].in, in_row = job.axes[2].in * channels;
  const auto* const in = static_cast<const uint8_t*>(job.in);
  int64_t top = height, bottom = 0, left = job.axes[2].in, right = 0, bytes = 0, most = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Region& region = regions[i];
    top = std::min(top, region.rows.first);
    bottom = std::max(bottom, region.rows.last);
    left = std::min(left, region.columns.first & ~int64_t{1});
    right = std::max(right, region.columns.last);
    most = std::max(most, 2 * region.weights.stride);
    bytes += region.mixed_bytes();
  }
  // Of slot 4, as the rows between the passes in two_passes.cpp; turned_rows() has slot 0.
  uint8_t* mixed = scratch<uint8_t>(4, bytes);
  for (int64_t i = 0; i < count; mixed += regions[i++].mixed_bytes()) regions[i].mixed = mixed;
  for (int64_t next = top; next < bottom; next += row_lanes::kRows) {
    const int64_t r = std::min(next, height - row_lanes::kRows);  // the last group of the image overlaps the one before
    const int16_t* const tile = row_lanes::turned_rows(in + r * in_row, in_row, channels, left, right, in + height * in_row, most);
    for (int64_t i = 0; i < count; ++i) {
      Region& region = regions[i];
      if (r + row_lanes::kRows <= region.rows.first || r >= region.rows.last) continue;
      uint8_t* const to = region.mixed + (r - region.rows.first + Region::kMargin) * region.row_bytes();
      row_lanes::mix_turned(tile, channels, left, region.h, region.weights, 0, region.h.axis.out, to, region.row_bytes());
      region.mix_rows_above(r + row_lanes::kRows);
    }
  }
}

}  // namespace

void resample_regions(const ResampleJob* jobs, int64_t count) {
  static thread_local std::vector<Region> regions;  // with the memory of their tables
  int64_t together = 0, bytes = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (together == static_cast<int64_t>(regions.size())) regions.emplace_back();
    if (!bytes_in_color(jobs[i]) || !prepare(jobs[i], regions[together]) || regions[together].mixed_bytes() > kMixedBytes) {
      resample_cpu(jobs[i]);
      continue;
    }
    if (bytes + regions[together].mixed_bytes() > kMixedBytes) {
      resample_together(regions, together);
      // The region that did not fit begins the next group. Its tables are swapped, not copied; those of the old one are overwritten later.
      std::swap(regions[0], regions[together]);
      together = bytes = 0;
    }
    bytes += regions[together++].mixed_bytes();
  }
  if (together > 0) resample_together(regions, together);
}

#else

void resample_regions(const ResampleJob* jobs, int64_t count) {
  for (int64_t i = 0; i < count; ++i) resample_cpu(jobs[i]);
}

#endif

}  // namespace ndd
