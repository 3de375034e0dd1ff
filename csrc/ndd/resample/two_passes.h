// SPDX-License-Identifier: Apache-2.0
// Resamples bytes like torch and Pillow, in integers: along the width, rounded to bytes, then along the height, rounded again; or in the opposite
// order if height_first says so.
#pragma once
#include <algorithm>
#include <cstdint>

#include "ndd/hd.h"
#include "ndd/resample/cpu.h"
#include "ndd/resample/table.h"

namespace ndd {

// Rounds a sum of products with integer weights, which already includes half a level, to a byte.
NDD_HD uint8_t rounded_level(int32_t sum, int32_t precision) {
  const int32_t level = sum >> precision;
  return static_cast<uint8_t>(level < 0 ? 0 : level > 255 ? 255 : level);
}

// The elements of an axis that its output reads.
struct AxisSpan {
  AxisSpan() = default;
  explicit AxisSpan(const AxisTable& table) : first(table.axis.in) {
    for (int64_t i = 0; i < table.axis.out; ++i) {
      first = std::min<int64_t>(first, table.start[i]);
      last = std::max<int64_t>(last, table.start[i] + table.count[i]);
    }
  }

  int64_t first = 0, last = 0;
};

// The height pass over rows of `row` bytes, for the rows [begin, end) of the output; `in` points to row `first` of the source, `out` to row `begin`.
void mix_height(const uint8_t* in, int64_t first, int64_t in_row, int64_t row, const AxisTable& v, int64_t begin, int64_t end, uint8_t* out,
                int64_t out_row);

// For two-dimensional samples whose tables follow torch's or Pillow's rule.
void resample_in_two_passes(const ResampleJob& job, const AxisTable& v, const AxisTable& h);

}  // namespace ndd
