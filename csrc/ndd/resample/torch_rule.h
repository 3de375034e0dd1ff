// SPDX-License-Identifier: Apache-2.0
// Resampling by torch's or Pillow's rule on a GPU. The tables of the axes are computed on the host, so that results equal those of the CPU.
#pragma once
#include <cstdint>
#include <vector>

#include "ndd/resample/cpu.h"

namespace ndd {

// All jobs have the same types; their data is in device memory.
void launch_by_torch_rule(const char* op, const std::vector<ResampleJob>& jobs);

}  // namespace ndd
