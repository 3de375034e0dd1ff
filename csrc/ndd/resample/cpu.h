// SPDX-License-Identifier: Apache-2.0
// Resampling one sample on the CPU, by the calling thread.
#pragma once
#include "ndd/dtypes.h"
#include "ndd/resample/resample.h"

namespace ndd {

// A sample seen as [outer][depth][height][width][channels]; depth is an axis of extent 1 in two dimensions. The axes hold both extents.
struct ResampleJob {
  const void* in;
  void* out;
  DType in_type, out_type;
  int64_t outer, channels;
  Axis axes[3];
};

void resample_cpu(const ResampleJob& job);

}  // namespace ndd
