// SPDX-License-Identifier: Apache-2.0
// Resampling by torch's rule or Pillow's on a GPU: the tables of the axes come from the host, so that results are those of the CPU.
#pragma once
#include <cstdint>
#include <vector>

#include "ndd/resample/cpu.h"

namespace ndd {

// All jobs have these types; their data is in device memory.
void launch_by_torch_rule(const char* op, const std::vector<ResampleJob>& jobs);

}  // namespace ndd
