// SPDX-License-Identifier: Apache-2.0
// saturate<Out>(value): DALI's conversion, the only one that drivers use. Floats are rounded half away from zero, out-of-range values are clamped,
// and a bool says whether the rounded value is nonzero. Written without branches, so loops vectorize.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "ndd/dtypes.h"
#include "ndd/hd.h"

namespace ndd {

template <class T>
inline constexpr bool is_half = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

template <class T>
inline constexpr bool is_floating = std::is_floating_point_v<T> || is_half<T>;

namespace detail {

// Rounds half away from zero, before truncation. The constant is the largest float below 0.5: adding 0.5 itself would round 0.49999997f up.
NDD_HD float away_from_zero(float v) { return v + (v < 0.0f ? -0.49999997f : 0.49999997f); }
NDD_HD double away_from_zero(double v) { return v + (v < 0.0 ? -0.49999999999999994 : 0.49999999999999994); }

template <class Out, class F>
NDD_HD Out float_to_integer(F value) {
  using Limits = std::numeric_limits<Out>;
  // The largest value of F that does not exceed the largest value of Out.
  constexpr int kBits = Limits::digits, kMantissa = std::numeric_limits<F>::digits;
  constexpr Out kMax =
      kBits > kMantissa ? static_cast<Out>(Limits::max() & ~((Out{1} << (kBits > kMantissa ? kBits - kMantissa : 0)) - 1)) : Limits::max();
  constexpr F lo = static_cast<F>(Limits::min()), hi = static_cast<F>(kMax);
  if constexpr (std::is_unsigned_v<Out> && sizeof(Out) < 4) {
    // Negative values become 0 however they are rounded, so they need no rounding of their own. The lower limit is applied to the integer, where it
    // is a single instruction: gcc turns two floating-point limits into masks (a VGA image takes 200 us instead of 67). Values outside int32, and
    // NaN, convert to a negative number on x86 and to 0 on some other processors: 0 in both cases.
    const F v = value + (sizeof(F) == 4 ? F(0.49999997f) : F(0.49999999999999994));
    const int32_t whole = static_cast<int32_t>(v > hi ? hi : v);
    return static_cast<Out>(whole > 0 ? whole : 0);
  }
  F v = away_from_zero(value);
  const bool above = v > hi;
  v = v > lo ? v : lo;  // also maps NaN to the smallest value
  v = v < hi ? v : hi;
  if constexpr (sizeof(Out) < 4) return static_cast<Out>(static_cast<int32_t>(v));  // only conversions to int32 have vector instructions
  else return above ? Limits::max() : static_cast<Out>(v);
}

template <class Out, class In>
NDD_HD Out integer_to_integer(In value) {
  using Limits = std::numeric_limits<Out>;
  if constexpr (std::is_signed_v<In>) {
    if constexpr (std::is_unsigned_v<Out>) {
      if (value < 0) return 0;
    } else if constexpr (sizeof(In) > sizeof(Out)) {
      if (value < static_cast<In>(Limits::min())) return Limits::min();
    }
  }
  if constexpr (std::numeric_limits<In>::digits > Limits::digits) {
    if (value > static_cast<In>(Limits::max())) return Limits::max();
  }
  return static_cast<Out>(value);
}

}  // namespace detail

template <class Out, class In>
NDD_HD Out saturate(In value) {
  if constexpr (std::is_same_v<Out, In>) {
    return value;
  } else if constexpr (is_half<In>) {
    return saturate<Out>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<Out, bool>) {
    if constexpr (std::is_floating_point_v<In>) return !(value < In(0.5) && value > In(-0.5));
    else return value != 0;
  } else if constexpr (is_floating<Out>) {
    if constexpr (is_half<Out>) return static_cast<Out>(static_cast<float>(value));
    else return static_cast<Out>(value);
  } else if constexpr (std::is_floating_point_v<In>) {
    return detail::float_to_integer<Out>(value);
  } else if constexpr (std::is_same_v<In, bool>) {
    return static_cast<Out>(value);
  } else {
    return detail::integer_to_integer<Out>(value);
  }
}

}  // namespace ndd
