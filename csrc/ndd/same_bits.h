// SPDX-License-Identifier: Apache-2.0
// The bits of a number as those of another type. memcpy is the way to see them that C++17 allows; it costs no instruction.
#pragma once

#include <cstring>

#include "ndd/hd.h"

namespace ndd {

template <class To, class From>
NDD_HD To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

}  // namespace ndd
