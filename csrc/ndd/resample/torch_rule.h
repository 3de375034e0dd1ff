// SPDX-License-Identifier: Apache-2.0
// Resampling by torch's or Pillow's rule on a GPU. The tables of the axes are computed on the host, so results equal those of the CPU.
#pragma once
#include <cstdint>
#include <vector>

#include "ndd/resample/cpu.h"

namespace ndd {

namespace resample_gpu {
struct Normalization;
}

// All jobs have the same types; their data is in device memory.
void launch_by_torch_rule(const char* op, const std::vector<ResampleJob>& jobs);

// The same for images of bytes that a tile of shared memory holds, one launch for all with equally many channels; returns the numbers of the others.
// With `normalizations`, one for each job, the results are normalized to elements of `type`.
std::vector<size_t> launch_byte_tiles(const char* op, const std::vector<ResampleJob>& jobs, const resample_gpu::Normalization* normalizations,
                                      DType type);

}  // namespace ndd
