// SPDX-License-Identifier: Apache-2.0
// Stencil driver: separable convolution of one sample with a symmetric window per spatial axis and reflect-101 borders.
// This header holds what both backends share; stencil_cpu.h and stencil.cuh hold their loops.
#pragma once

#include <cstdint>
#include <vector>

#include "ndd/hd.h"

namespace ndd {

// Index `i` mirrored into [0, n) without repeating the border element: ... 2 1 | 0 1 2 ... n-1 | n-2 ...
NDD_HD int64_t reflect_101(int64_t i, int64_t n) {
  if (i >= 0 && i < n) return i;
  if (n == 1) return 0;
  const int64_t period = 2 * n - 2;
  i %= period;
  if (i < 0) i += period;
  return i < n ? i : period - i;
}

// A symmetric window of 2 * radius() + 1 taps: half[k] weighs the two elements at distance k, half[0] the centre.
struct Window {
  std::vector<float> half{1.0f};
  int64_t radius() const { return static_cast<int64_t>(half.size()) - 1; }
};

// A sample as the driver sees it: fewer spatial axes have extent 1, `inner` is the interleaved channels.
struct Grid {
  int64_t depth = 1, height = 1, width = 1, inner = 1;
};

}  // namespace ndd
