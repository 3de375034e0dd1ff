// SPDX-License-Identifier: Apache-2.0
// Bytes resampled as torch and Pillow do it: along the width, rounded to bytes, then along the height, rounded again; or the other way round where
// height_first says so. In whole numbers.
#pragma once
#include <cstdint>

#include "ndd/hd.h"
#include "ndd/resample/cpu.h"
#include "ndd/resample/table.h"

namespace ndd {

// The byte that a sum of products with whole weights, and half a level, stands for.
NDD_HD uint8_t rounded_level(int32_t sum, int32_t precision) {
  const int32_t level = sum >> precision;
  return static_cast<uint8_t>(level < 0 ? 0 : level > 255 ? 255 : level);
}

// Two-dimensional samples, whose tables are of torch's rule or Pillow's.
void resample_in_two_passes(const ResampleJob& job, const AxisTable& v, const AxisTable& h);

}  // namespace ndd
