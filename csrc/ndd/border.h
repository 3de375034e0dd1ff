// SPDX-License-Identifier: Apache-2.0
// What lies outside of an array, for all operators that read there: the elements beyond both ends of an axis.
#pragma once

#include <cstdint>

#include "ndd/hd.h"
#include "ndd/python_interface.h"

namespace ndd {

// Their names for users are in torch_ndd/ops/_borders.py.
NDD_ENUM("Border", Border, int32_t, constant, clamp, reflect_1001, reflect_101, wrap);

// The element of [0, n) that represents element `i`; -1 for a constant border. With a 32-bit index a GPU divides in a third of the instructions.
template <class Index>
NDD_HD Index border_index_of(Border border, Index i, Index n) {
  if (i >= 0 && i < n) return i;
  if (border == Border::constant) return -1;
  if (border == Border::clamp || n == 1) return i < 0 ? 0 : n - 1;
  // reflect_1001 repeats the border element, so its period is 2 n.
  const Index period = border == Border::wrap ? n : border == Border::reflect_1001 ? 2 * n : 2 * n - 2;
  Index k = i < 0 ? i + period : i - (i < period ? 0 : period);
  if (k < 0 || k >= period) {  // rare: an index within one period of the array needs no division
    k %= period;
    if (k < 0) k += period;
  }
  return k < n ? k : border == Border::reflect_1001 ? period - 1 - k : period - k;
}
NDD_HD int64_t border_index(Border border, int64_t i, int64_t n) { return border_index_of<int64_t>(border, i, n); }
NDD_HD int64_t reflect_101(int64_t i, int64_t n) { return border_index(Border::reflect_101, i, n); }

}  // namespace ndd
