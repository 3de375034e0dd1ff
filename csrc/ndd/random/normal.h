// SPDX-License-Identifier: Apache-2.0
// Elementary functions for random operators: log, exp and the quantile of the normal distribution. They have no branches, so loops vectorize,
// and return the same bits on every processor. For that they use only + - * / and sqrt, and ops/random and ops/noise are compiled without contraction
// to fused multiply-adds (CMakeLists.txt).
#pragma once

#include <cmath>
#include <cstdint>

#include "ndd/hd.h"
#include "ndd/same_bits.h"

namespace ndd {

// c[0] + c[1] x + c[2] x^2 + ...
template <class T, int N>
NDD_HD T polynomial(T x, const T (&c)[N]) {
  T y = c[N - 1];
  for (int k = N - 2; k >= 0; --k) y = y * x + c[k];
  return y;
}

// For positive normal numbers, with an absolute error of 5e-8 (1 + |log x|).
NDD_HD float log_of(float x) {
  constexpr float kSqrtHalf = 0.70710678f;
  // Minimax polynomial of log(1 + f) / f between sqrt(1/2) and sqrt(2).
  constexpr float c[] = {0.9999998139f, -0.5000066739f, 0.3333618203f, -0.2495934387f, 0.1987304623f, -0.1733346461f, 0.1641999113f, -0.1010224017f};
  // Splits x into f + 1 between sqrt(1/2) and sqrt(2), and a power of two: the exponent is counted from sqrt(1/2), not from 1.
  const int32_t bits = same_bits<int32_t>(x), exponent = (bits - same_bits<int32_t>(kSqrtHalf)) >> 23;
  const float f = same_bits<float>(bits - exponent * (1 << 23)) - 1.0f;
  return f * polynomial(f, c) + static_cast<float>(exponent) * 0.69314718f;
}

// For positive normal numbers, with an absolute error of 2e-16 (1 + |log x|).
NDD_HD double log_of(double x) {
  constexpr double kSqrtHalf = 0.70710678118654752;
  // log m = 2 artanh s with s = (m - 1) / (m + 1), at most 0.172.
  constexpr double c[] = {2.0, 2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
  const int64_t bits = same_bits<int64_t>(x);
  // In 32 bits: AVX2 has neither an arithmetic shift of 64-bit integers nor their conversion to double.
  const int32_t exponent = (static_cast<int32_t>(bits >> 32) - static_cast<int32_t>(same_bits<int64_t>(kSqrtHalf) >> 32)) >> 20;
  const double m = same_bits<double>(bits - exponent * (int64_t{1} << 52));
  const double s = (m - 1.0) / (m + 1.0);
  return s * polynomial(s * s, c) + static_cast<double>(exponent) * 0.69314718055994531;
}

// 2^n for n from -126 to 127.
NDD_HD float power_of_two(float, int32_t n) { return same_bits<float>((n + 127) << 23); }
NDD_HD double power_of_two(double, int32_t n) { return same_bits<double>(static_cast<int64_t>(n + 1023) << 52); }

// exp(x): 0 below the range of normal numbers, at most exp(87), or exp(700) for double. The relative error is 1e-7 (1 + |x| / 10), or 1e-15 for
// double.
template <class T>
NDD_HD T exp_of(T x) {
  constexpr T c[] = {T(1),        T(1),         T(1) / 2,      T(1) / 6,       T(1) / 24,       T(1) / 120,      T(1) / 720,
                     T(1) / 5040, T(1) / 40320, T(1) / 362880, T(1) / 3628800, T(1) / 39916800, T(1) / 479001600};
  // Taylor's series: seven terms suffice for float, thirteen for double, where |f| is at most half of ln 2.
  constexpr T few[] = {c[0], c[1], c[2], c[3], c[4], c[5], c[6]};
  const T high = sizeof(T) == 4 ? T(87) : T(700), low = -high;
  const T above = x < low ? low : x, y = above > high ? high : above;
  // Adding and subtracting this number rounds to an integer.
  constexpr T kRound = sizeof(T) == 4 ? T(12582912) : T(6755399441055744);
  const T turns = (y * T(1.4426950408889634) + kRound) - kRound;
  // ln 2 in two parts, so the product with the first is exact.
  const T f = y - turns * T(0.693145751953125) - turns * T(1.42860682030941723e-6);
  const T e = (sizeof(T) == 4 ? polynomial(f, few) : polynomial(f, c)) * power_of_two(T(), static_cast<int32_t>(turns));
  return x < low ? T(0) : e;
}

// Uniform in (0, 1) and symmetric, with 32 bits near 0.
// The half unit keeps it off 0 and 1, where quantiles are infinite.
NDD_HD float open_uniform(uint32_t word) { return static_cast<float>(word) * 0x1p-32f + 0x1p-33f; }
NDD_HD double open_uniform(uint32_t high, uint32_t low) {
  return (static_cast<double>(high) + (static_cast<double>(static_cast<int32_t>(low >> 11)) + 0.5) * 0x1p-21) * 0x1p-32;
}

// A standard normal number from one word, up to 6.2 in both directions: the quantile of a uniform number, with a relative error of 5e-7. Following
// Giles ("Approximating the erfinv function", 2010) it is x P(w), w = -log(1 - x^2), for a uniform x between -1 and 1; P is a minimax polynomial of w
// or, beyond 2.93 standard deviations, of its square root.
NDD_HD float normal_of(uint32_t word) {
  // `size` is the magnitude: the bits of a negative number, inverted.
  const int32_t signed_word = static_cast<int32_t>(word), size = signed_word ^ (signed_word >> 31);
  const float x = (static_cast<float>(signed_word) + 0.5f) * 0x1p-31f;
  const float rest = (static_cast<float>(0x7FFFFFFF - size) + 0.5f) * 0x1p-31f;  // 1 - |x| without cancellation
  const float w = -log_of(rest * (2.0f - rest));
  // Both polynomials have the same degree, so selecting coefficients replaces a branch.
  const bool tail = w >= 5.0f;
#ifdef __CUDA_ARCH__
  // The same operations, with a branch: one of 290 numbers is in the tail, and selecting every coefficient takes as long as the polynomial.
  constexpr float kInner[] = {2.123313224f,     0.3488036424f,    -0.005906121861f, -0.001774316865f,
                              0.0003073595701f, -5.790068204e-6f, -4.505520566e-6f, 4.463724978e-7f};
  constexpr float kTail[] = {4.717087585f,    1.424626288f,     0.004669332371f,  -0.002849841429f,
                             0.001411822206f, -0.001096622787f, 0.0007984446187f, -0.0002395587391f};
  const float p = tail ? polynomial(sqrtf(w) - 3.5f, kTail) : polynomial(w - 2.5f, kInner);
#else
  const float y = tail ? sqrtf(w) - 3.5f : w - 2.5f;
  float p = tail ? -0.0002395587391f : 4.463724978e-7f;
  p = p * y + (tail ? 0.0007984446187f : -4.505520566e-6f);
  p = p * y + (tail ? -0.001096622787f : -5.790068204e-6f);
  p = p * y + (tail ? 0.001411822206f : 0.0003073595701f);
  p = p * y + (tail ? -0.002849841429f : -0.001774316865f);
  p = p * y + (tail ? 0.004669332371f : -0.005906121861f);
  p = p * y + (tail ? 1.424626288f : 0.3488036424f);
  p = p * y + (tail ? 4.717087585f : 2.123313224f);
#endif
  return x * p;
}

// The same from two words, up to 8.2 and with an error of 1e-15: algorithm AS 241 (Wichura, Applied Statistics 37, 1988).
NDD_HD double normal_of(uint32_t high, uint32_t low) {
  const double q =
      (static_cast<double>(static_cast<int32_t>(high)) + (static_cast<double>(static_cast<int32_t>(low >> 11)) + 0.5) * 0x1p-21) * 0x1p-32;
  const double size = q < 0.0 ? -q : q;
  const double root = sqrt(-log_of(0.5 - size));
  // The three regions of AS 241: the center, and the tails up to and beyond root 5.
  const bool center = size <= 0.425, near = root <= 5.0;
  const double inner = 0.180625 - q * q, middle = root - 1.6, outer = root - 5.0;  // selected without branches
  const double tail = near ? middle : outer, r = center ? inner : tail;
  const auto pick = [=](double a, double b, double c) {
    const double tails = near ? b : c;
    return center ? a : tails;
  };
  double n = pick(2509.0809287301226727, 7.7454501427834140764e-4, 2.01033439929228813265e-7);
  n = n * r + pick(33430.575583588128105, 2.27238449892691845833e-2, 2.71155556874348757815e-5);
  n = n * r + pick(67265.770927008700853, 2.41780725177450611770e-1, 1.24266094738807843860e-3);
  n = n * r + pick(45921.953931549871457, 1.27045825245236838258, 2.65321895265761230930e-2);
  n = n * r + pick(13731.693765509461125, 3.64784832476320460504, 2.96560571828504891230e-1);
  n = n * r + pick(1971.5909503065514427, 5.76949722146069140550, 1.78482653991729133580);
  n = n * r + pick(133.14166789178437745, 4.63033784615654529590, 5.46378491116411436990);
  n = n * r + pick(3.3871328727963666080, 1.42343711074968357734, 6.65790464350110377720);
  double d = pick(5226.4952788528545610, 1.05075007164441684324e-9, 2.04426310338993978564e-15);
  d = d * r + pick(28729.085735721942674, 5.47593808499534494600e-4, 1.42151175831644588870e-7);
  d = d * r + pick(39307.895800092710610, 1.51986665636164571966e-2, 1.84631831751005468180e-5);
  d = d * r + pick(21213.794301586595867, 1.48103976427480074590e-1, 7.86869131145613259100e-4);
  d = d * r + pick(5394.1960214247511077, 6.89767334985100004550e-1, 1.48753612908506148525e-2);
  d = d * r + pick(687.18700749205790830, 1.67638483018380384940, 1.36929880927358053310e-1);
  d = d * r + pick(42.313330701600911252, 2.05319162663775882187, 5.99832206555887937690e-1);
  d = d * r + 1.0;
  const double z = n / d, mirrored = -z, inside = z * q, outside = q < 0.0 ? mirrored : z;
  return center ? inside : outside;
}

}  // namespace ndd
