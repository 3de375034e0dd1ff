// SPDX-License-Identifier: Apache-2.0
// The arithmetic of sharpness, also for the policies' kernel, byte_steps.
#pragma once

#include <cmath>

#include "ndd/hd.h"
#include "ops/color/levels.h"

namespace ndd {

// `rest` is 1 - factor, rounded once.
struct Sharpen {
  float rest, white;

  // `sum` of the eight neighbors and four times the middle. The mean of integers is rounded, the result truncated. 6 / 13 rounds the quotient of
  // integers; 0.01 keeps exact quotients above their integer after the inexact multiplication.
  template <bool whole>
  NDD_HD float value(float middle, float sum) const {
    const float all = sum + middle, mean = whole ? floorf((all + 6.0f) * (1.0f / 13.0f) + 0.01f) : all * (1.0f / 13.0f);
    return limit_level<whole>(fmaf(rest, mean - middle, middle), white);
  }
};

}  // namespace ndd
