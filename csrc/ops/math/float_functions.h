// SPDX-License-Identifier: Apache-2.0
// Functions of float32 that CPU loops vectorize: computed in double without branches and rounded once, so they are at least as exact as the C library's,
// and the same on every processor. A call of expf or sinf costs 5 to 20 ns, these 0.5 to 1.5.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "ndd/same_bits.h"
#include "ops/math/arithmetic.h"

namespace ndd::float_functions {

// Selects between two numbers that are both computed. For `?:` gcc may branch around an operand that it considers expensive, and then does not vectorize.
template <class T>
NDD_HD T select(bool condition, T yes, T no) {
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  const Bits mask = condition ? ~Bits{0} : 0;
  return same_bits<T>((same_bits<Bits>(yes) & mask) | (same_bits<Bits>(no) & ~mask));
}

// e to the power of x, which is cut off where a float is 0 or infinite anyway. Relative error 1e-13.
NDD_HD double exp_of(double x) {
  const double below = select(x > 120.0, 120.0, x), limited = select(below < -120.0, -120.0, below);  // NaN stays
  // x = k ln 2 + r with a whole k. Adding 1.5 * 2^52 leaves no bits for a fraction, so the sum is rounded to an integer, k, which
  // lies in its lowest bits; subtracting the same number again gives k as a double.
  const double shifted = limited * 1.4426950408889634 + 6755399441055744.0;  // 1.5 * 2^52: the lowest bits are the rounded quotient
  const double r = limited - (shifted - 6755399441055744.0) * 0.6931471805599453;
  // Taylor's series, |r| < 0.35.
  double sum = 1.0 / 3628800;
  sum = sum * r + 1.0 / 362880;
  sum = sum * r + 1.0 / 40320;
  sum = sum * r + 1.0 / 5040;
  sum = sum * r + 1.0 / 720;
  sum = sum * r + 1.0 / 120;
  sum = sum * r + 1.0 / 24;
  sum = sum * r + 1.0 / 6;
  sum = sum * r + 0.5;
  sum = sum * r + 1.0;
  sum = sum * r + 1.0;
  // e^r times 2^k: k plus the bias, moved into the bits of the exponent. The higher bits of `shifted` are shifted out.
  return sum * same_bits<double>((same_bits<uint64_t>(shifted) + 1023) << 52);
}

// The natural logarithm of a float. Error 1e-15 beside the result.
// x = m * 2^k with m from sqrt(1/2) to sqrt(2), where the series converges fastest. A float is never so small that it is subnormal as a double.
NDD_HD double log_of(double x) {
  const uint64_t bits = same_bits<uint64_t>(x);
  // The exponent's bits below those of the number 2^52 are 2^52 + exponent, as a double: no conversion of 64-bit integers, which AVX2 lacks.
  double exponent = same_bits<double>((bits >> 52) | 0x4330000000000000) - 4503599627371519.0;  // 2^52 + 1023
  // The fraction with the exponent of 1: from 1 to 2.
  double m = same_bits<double>((bits & 0x000fffffffffffff) | 0x3ff0000000000000);
  const bool upper = m > 1.4142135623730951;
  m = select(upper, 0.5 * m, m);
  exponent = select(upper, exponent + 1.0, exponent);
  const double f = (m - 1.0) / (m + 1.0), s = f * f;  // log m = 2 artanh f, s < 0.03
  double sum = 1.0 / 19;
  sum = sum * s + 1.0 / 17;
  sum = sum * s + 1.0 / 15;
  sum = sum * s + 1.0 / 13;
  sum = sum * s + 1.0 / 11;
  sum = sum * s + 1.0 / 9;
  sum = sum * s + 1.0 / 7;
  sum = sum * s + 1.0 / 5;
  sum = sum * s + 1.0 / 3;
  const double regular = exponent * 0.6931471805599453 + (2.0 * f + 2.0 * f * s * sum);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  // Zero, and what has no logarithm.
  const double negative = select(x == 0.0, -kInfinity, std::numeric_limits<double>::quiet_NaN());
  return select(x > 0.0, select(x < kInfinity, regular, kInfinity), negative);
}

// x to the power of y, for x above 0 and finite and y not negative. In floats alone, which takes a third of the time: the relative error is
// 2e-7 (1 + |log2 of the result|), so values up to 1 are exact to 1e-7.
NDD_HD float power_of(float x, float y) {
  // Subnormal numbers have no exponent to read: 2^24 times the number has one.
  const bool tiny = x < 1.17549435e-38f;
  const auto bits = same_bits<int32_t>(select(tiny, x * 16777216.0f, x));
  // 0x3f3504f3 are the bits of sqrt(1/2). The shift rounds down, also for negative differences.
  const int32_t exponent = (bits - 0x3f3504f3) >> 23;  // with the rest from sqrt(1/2) to sqrt(2)
  const float m = same_bits<float>(static_cast<uint32_t>(bits) - (static_cast<uint32_t>(exponent) << 23));
  const float f = (m - 1.0f) / (m + 1.0f), s = f * f;  // log m = 2 artanh f, s < 0.03
  float sum = 1.0f / 9;
  sum = sum * s + 1.0f / 7;
  sum = sum * s + 1.0f / 5;
  sum = sum * s + 1.0f / 3;
  sum = sum * s;
  // 2 / ln 2, which makes it a binary logarithm.
  const float of_rest = (f * sum + f) * 2.88539008f;
  const float logarithm = static_cast<float>(exponent) + select(tiny, -24.0f, 0.0f) + of_rest;
  // x^y = 2^(y log2 x), cut off where the result is infinite or 0 anyway.
  const float product = y * logarithm, below = select(product > 129.0f, 129.0f, product), limited = select(below < -151.0f, -151.0f, below);
  const float shifted = limited + 12582912.0f;  // 1.5 * 2^23: the lowest bits are the rounded exponent
  const float r = (limited - (shifted - 12582912.0f)) * 0.693147181f;
  float power = 1.0f / 5040;  // Taylor's series, |r| < 0.35
  power = power * r + 1.0f / 720;
  power = power * r + 1.0f / 120;
  power = power * r + 1.0f / 24;
  power = power * r + 1.0f / 6;
  power = power * r + 0.5f;
  power = power * r + 1.0f;
  power = power * r + 1.0f;
  const int32_t all = same_bits<int32_t>(shifted) - 0x4b400000, half = all >> 1;  // in two steps, which reach all floats
  const float first = same_bits<float>(static_cast<uint32_t>(half + 127) << 23);
  const float second = same_bits<float>(static_cast<uint32_t>(all - half + 127) << 23);
  return power * first * second;
}

// sin(x + quarter * pi / 2) for quarter 0 or 1 and |x| below 1e6. Error 7e-12.
template <int quarter>
NDD_HD double sin_of(double x) {
  constexpr double kShift = 6755399441055744.0;  // as in exp_of()
  const double shifted = (x * 0.3183098861837907 - 0.5 * quarter) + kShift;
  const double turns = shifted - kShift + 0.5 * quarter;  // half turns, the nearest ones at which the result is 0
  // pi in two parts; the first has 33 bits, so its product is exact.
  const double r = (x - turns * 3.1415926534682512) - turns * 1.2154201013012384e-10;
  const double s = r * r;
  // Taylor's series, |r| < 1.58.
  double sum = -1.0 / 1307674368000.0;
  sum = sum * s + 1.0 / 6227020800.0;
  sum = sum * s - 1.0 / 39916800;
  sum = sum * s + 1.0 / 362880;
  sum = sum * s - 1.0 / 5040;
  sum = sum * s + 1.0 / 120;
  sum = sum * s - 1.0 / 6;
  const double sine = r * (1.0 + s * sum);
  // The sine changes its sign with each half turn: for an odd number of them, which is the lowest bit of `shifted`.
  const uint64_t sign = (same_bits<uint64_t>(shifted) ^ quarter) << 63;
  return same_bits<double>(same_bits<uint64_t>(sine) ^ sign);
}

// The angle of the point (x, y), of floats that are finite. Relative error 3e-14.
NDD_HD double angle_of(double y, double x) {
  const double ax = std::fabs(x), ay = std::fabs(y);
  const bool steep = ay > ax;
  const double low = select(steep, ax, ay), high = select(steep, ay, ax);
  // atan(low / high), above pi / 8 as that of (low - high) / (low + high) and pi / 4 more.
  const bool far = low > 0.41421356237309503 * high;
  const double quotient = select(far, low - high, low) / select(far, low + high, high);
  const double t = select(high == 0.0, 0.0, quotient), s = t * t;
  double sum = 0.030702803452749249;  // of atan(t) / t for s up to 0.1716, from its values at Chebyshev's nodes
  sum = sum * s - 0.058772735826949078;
  sum = sum * s + 0.07564474832235675;
  sum = sum * s - 0.090785040024486161;
  sum = sum * s + 0.11110394045955641;
  sum = sum * s - 0.1428569081679141;
  sum = sum * s + 0.1999999961331366;
  sum = sum * s - 0.33333333330872084;
  sum = sum * s + 0.99999999999997469;
  // Put back what was taken away: pi / 4, the reflection at the diagonal, that at the y axis, and the sign of y.
  const double octant = t * sum + select(far, 0.7853981633974483, 0.0);
  const double quarter = select(steep, 1.5707963267948966 - octant, octant);
  return std::copysign(select(same_bits<uint64_t>(x) >> 63, 3.141592653589793 - quarter, quarter), y);
}

// Which operations there are.
constexpr bool has_fast(Op op) {
  return op == Op::exp || op == Op::log || op == Op::log2 || op == Op::log10 || op == Op::sin || op == Op::cos || op == Op::sinh || op == Op::cosh ||
         op == Op::tanh || op == Op::fpow || op == Op::fmod || op == Op::atan || op == Op::atan2 || op == Op::cbrt;
}

// Whether fast<op> holds for these operands; the C library has the rest.
template <Op op>
NDD_HD bool is_ordinary([[maybe_unused]] float a, [[maybe_unused]] float b) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  // Beyond that the product of the half turns with the first part of pi is no longer exact.
  if constexpr (op == Op::sin || op == Op::cos) return std::fabs(a) < 1e6f;
  else if constexpr (op == Op::fpow) {
    // Its bits are not negative for what is positive, or 0 without a sign.
    return (same_bits<int32_t>(a) >= 0) & (a <= kLargest) & (std::fabs(b) <= kLargest);
  } else if constexpr (op == Op::fmod) {
    return (std::fabs(b) <= kLargest) & (std::fabs(a) < std::fabs(b) * 268435456.0f);  // the quotient times b is exact in double
  } else if constexpr (op == Op::atan2 || op == Op::atan) {
    return (std::fabs(a) <= kLargest) & (std::fabs(b) <= kLargest);
  } else return true;
}

template <Op op>
NDD_HD float fast(float a, [[maybe_unused]] float b) {
  const double x = a;
  if constexpr (op == Op::exp) return static_cast<float>(exp_of(x));
  else if constexpr (op == Op::log) return static_cast<float>(log_of(x));
  else if constexpr (op == Op::log2) return static_cast<float>(log_of(x) * 1.4426950408889634);
  else if constexpr (op == Op::log10) return static_cast<float>(log_of(x) * 0.4342944819032518);
  else if constexpr (op == Op::sin) return static_cast<float>(sin_of<0>(x));
  else if constexpr (op == Op::cos) return static_cast<float>(sin_of<1>(x));
  else if constexpr (op == Op::atan) return static_cast<float>(angle_of(x, 1.0));
  else if constexpr (op == Op::atan2) return static_cast<float>(angle_of(x, static_cast<double>(b)));
  else if constexpr (op == Op::cbrt) return std::copysign(static_cast<float>(exp_of(log_of(std::fabs(x)) * 0.3333333333333333)), a);
  else if constexpr (op == Op::cosh) {
    const double e = exp_of(x);
    return static_cast<float>(0.5 * (e + 1.0 / e));
  } else if constexpr (op == Op::sinh || op == Op::tanh) {
    // Near 0 the difference would lose digits.
    const double e = exp_of(x), inverse = 1.0 / e;
    const double far = op == Op::sinh ? 0.5 * (e - inverse) : (e - inverse) / (e + inverse);
    const double near = op == Op::sinh ? x + x * x * x * (1.0 / 6) : x - x * x * x * (1.0 / 3);
    return static_cast<float>(select(x * x < 1e-6, near, far));
  } else if constexpr (op == Op::fpow) {
    // The logarithm of 0 is -infinity, and 0 times that is NaN: both zeros are treated on their own.
    const double power = exp_of(log_of(x) * static_cast<double>(b));
    const double of_zero = select(b > 0.0f, 0.0, std::numeric_limits<double>::infinity());
    return static_cast<float>(select(b == 0.0f, 1.0, select(a == 0.0f, of_zero, power)));
  } else {  // fmod
    const double y = b, quotient = x / y;
    // Truncated; the quotient of two floats may have been rounded up to an integer.
    const double magnitude = std::fabs(quotient) + 4503599627370496.0 - 4503599627370496.0;
    const double whole = select(magnitude > std::fabs(quotient), magnitude - 1.0, magnitude);
    const double rest = std::fabs(x) - whole * std::fabs(y);
    const double exact = select(rest < 0.0, rest + std::fabs(y), rest);
    return std::copysign(static_cast<float>(exact), a);
  }
}

}  // namespace ndd::float_functions
