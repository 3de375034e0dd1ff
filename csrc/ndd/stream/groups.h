// SPDX-License-Identifier: Apache-2.0
// Work that computes several samples together, side by side in vectors, where one sample alone is too small for them.
#pragma once

#include <string_view>

#include "ndd/stream/stream.h"

namespace ndd {

// Like launch_cpu, with work(g) for each of `groups` groups, which reads all samples of its inputs. `nanoseconds` is the cost of a group.
void launch_groups(std::string_view op, int64_t samples, int64_t groups, double nanoseconds, Work work);

}  // namespace ndd
