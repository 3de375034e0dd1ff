// SPDX-License-Identifier: Apache-2.0
// Resamples one sample on the CPU, on the calling thread. Any element types and alignment; reads nothing outside the sample.
#pragma once
#include "ndd/dtypes.h"
#include "ndd/resample/resample.h"

namespace ndd {

// A sample viewed as [outer][depth][height][width][channels], where depth has extent 1 for images. The axes hold both extents.
struct ResampleJob {
  const void* in;
  void* out;
  DType in_type, out_type;
  int64_t outer, channels;
  Axis axes[3];
};

void resample_cpu(const ResampleJob& job);

// The same for several jobs that read one image, whose results are those of resample_cpu.
void resample_regions(const ResampleJob* jobs, int64_t count);

}  // namespace ndd
