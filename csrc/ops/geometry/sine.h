// SPDX-License-Identifier: Apache-2.0
// Sine and cosine that CPU loops vectorize and both backends agree about: sinf is a call, many times as slow.
#pragma once

#include <cstdint>

#include "ndd/hd.h"

namespace ndd {

// sin(x + quarters * pi / 2) for |x| up to 1e8, correctly rounded to float except for a few arguments in a million; some value from -1 to 1 for any other x.
// In double: at multiples of pi / 2 the result must be exact, because a point there lies on the border of two pixels.
NDD_HD float sine_shifted(float x, double quarters) {
  const double turns = static_cast<double>(x) * 0.31830988618379067 + 0.5 * quarters;  // in half turns
  const double limited = turns > -1e9 ? turns < 1e9 ? turns : 1e9 : -1e9;              // what an int32 holds
  const int32_t whole = static_cast<int32_t>(limited + (limited < 0 ? -0.5 : 0.5));
  double r = (turns - whole) * 3.141592653589793;
  r = r > -1.5707963267948966 ? r < 1.5707963267948966 ? r : 1.5707963267948966 : -1.5707963267948966;  // bounds whatever was limited above
  const double s = r * r;
  // Taylor's series up to r^15: the next term is below 7e-12.
  const double series =
      s * (-1.0 / 6 + s * (1.0 / 120 +
                           s * (-1.0 / 5040 + s * (1.0 / 362880 + s * (-1.0 / 39916800 + s * (1.0 / 6227020800.0 + s * (-1.0 / 1307674368000.0)))))));
  const float sine = static_cast<float>(r + r * series);
  return whole & 1 ? -sine : sine;
}

NDD_HD float sine(float x) { return sine_shifted(x, 0.0); }
NDD_HD float cosine(float x) { return sine_shifted(x, 1.0); }

}  // namespace ndd
