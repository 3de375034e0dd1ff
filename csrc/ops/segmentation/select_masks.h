// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ndd {

// A selected polygon: its mask as the output has it, its vertices in the output, where they come from.
struct SelectedPolygon {
  int64_t mask, begin, end, source;
};

}  // namespace ndd
