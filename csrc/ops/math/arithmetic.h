// SPDX-License-Identifier: Apache-2.0
// What an operation does to numbers of one type: function<op>(a, b, c), shared by CPU and CUDA. A new operation is a name here
// and a line in function().
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "ndd/dtypes.h"
#include "ndd/hd.h"
#include "ndd/python_interface.h"

namespace ndd {

// `divide` is the float division, `quotient` and `remainder` those of integers in C.
NDD_ENUM("arithmetic.Op", Op, int64_t, add, sub, mul, divide, quotient, remainder, fmod, ipow, fpow, atan2, min, max, bit_and, bit_or, bit_xor,
         shift_left, shift_right, equal, not_equal, less, less_equal, negate, invert, logical_not, copy, abs, clamp, sqrt, rsqrt, cbrt, exp, log,
         log2, log10, floor, ceil, sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, asinh, acosh, atanh,
         // Comparisons of a signed 64-bit integer with an unsigned one, by value; the operands come as their bits. The kernel chooses them itself.
         equal_mixed, not_equal_mixed, less_su, less_us, less_equal_su, less_equal_us);

constexpr bool is_comparison(Op op) { return (op >= Op::equal && op <= Op::less_equal) || op >= Op::equal_mixed; }
constexpr bool is_bitwise(Op op) { return (op >= Op::bit_and && op <= Op::bit_xor) || op == Op::invert || op == Op::copy; }
// Functions of the C library, which take 2 to 20 ns.
constexpr bool is_slow(Op op) {
  return op == Op::fmod || op == Op::fpow || op == Op::atan2 || op == Op::cbrt || (op >= Op::exp && op <= Op::log10) ||
         (op >= Op::sin && op <= Op::atanh);
}
constexpr bool is_float_only(Op op) { return op == Op::divide || is_slow(op) || (op >= Op::sqrt && op <= Op::atanh); }
constexpr bool is_division(Op op) { return op == Op::quotient || op == Op::remainder; }

constexpr int arity(Op op) {
  if (op == Op::clamp) return 3;
  return op >= Op::negate && op < Op::equal_mixed ? 1 : 2;
}

namespace detail {

template <class T, bool = std::is_integral_v<T>>
struct Wrapping {
  using type = T;
};
template <class T>
struct Wrapping<T, true> {
  using type = std::make_unsigned_t<T>;
};

}  // namespace detail

// Integers are added up unsigned, where overflow wraps around; the bits are those of the signed result.
template <class T>
using Wrapping = typename detail::Wrapping<T>::type;

// Toward zero. The smallest integer divided by -1 wraps around; x / 0 is an error on the CPU, which has checked before, and 0 on CUDA.
template <class T>
NDD_HD T quotient(T a, T b) {
#ifndef __CUDA_ARCH__
  if constexpr (sizeof(T) == 4) {  // exact in double, where there is a vector instruction
    return static_cast<T>(static_cast<int64_t>(static_cast<double>(a) / static_cast<double>(b)));
  }
#endif
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return static_cast<T>(Wrapping<T>{0} - static_cast<Wrapping<T>>(a));
  }
  return a / b;
}

// Wraps around; 0 for every negative exponent.
template <class T>
NDD_HD T integer_power(T a, T b) {
  if constexpr (std::is_signed_v<T>) {
    if (b < 0) return 0;
  }
  Wrapping<T> base = static_cast<Wrapping<T>>(a), result = 1;
  // By squaring: `base` is a to the power of 1, 2, 4, 8...
  for (auto rest = static_cast<Wrapping<T>>(b); rest; rest >>= 1) {
    if (rest & 1) result *= base;
    base *= base;
  }
  return static_cast<T>(result);
}

template <Op op, class T>
using ResultOf = std::conditional_t<is_comparison(op), bool, T>;

template <Op op, class T>
NDD_HD ResultOf<op, T> function(T a, [[maybe_unused]] T b = T{}, [[maybe_unused]] T c = T{}) {
  using W = Wrapping<T>;
  if constexpr (op == Op::add) return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
  else if constexpr (op == Op::sub) return static_cast<T>(static_cast<W>(a) - static_cast<W>(b));
  // In 32 bits: a product of narrower types is computed as int, whose overflow is undefined.
  else if constexpr (op == Op::mul && sizeof(T) < 4) return static_cast<T>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));
  else if constexpr (op == Op::mul) return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
  else if constexpr (op == Op::negate && std::is_integral_v<T>) return static_cast<T>(W{0} - static_cast<W>(a));
  else if constexpr (op == Op::negate) return -a;
  else if constexpr (op == Op::logical_not) return static_cast<T>(a == 0);
  else if constexpr (op == Op::copy) return a;
  // A comparison with NaN is false, so NaN on the left gives the right operand; NaN as a limit does not limit. A lower limit above the upper one: the upper.
  else if constexpr (op == Op::min) return a < b ? a : b;
  else if constexpr (op == Op::max) return a > b ? a : b;
  else if constexpr (op == Op::clamp) {
    const T low = a < b ? b : a;
    return low > c ? c : low;
  } else if constexpr (op == Op::equal) return a == b;
  else if constexpr (op == Op::not_equal) return a != b;
  else if constexpr (op == Op::less) return a < b;
  else if constexpr (op == Op::less_equal) return a <= b;
  else if constexpr (op == Op::equal_mixed) return a == b && a >= 0;
  else if constexpr (op == Op::not_equal_mixed) return a != b || a < 0;
  else if constexpr (op == Op::less_su) return a < 0 || static_cast<W>(a) < static_cast<W>(b);
  else if constexpr (op == Op::less_us) return b >= 0 && static_cast<W>(a) < static_cast<W>(b);
  else if constexpr (op == Op::less_equal_su) return a < 0 || static_cast<W>(a) <= static_cast<W>(b);
  else if constexpr (op == Op::less_equal_us) return b >= 0 && static_cast<W>(a) <= static_cast<W>(b);
  else if constexpr (op == Op::abs && std::is_floating_point_v<T>) return std::fabs(a);
  else if constexpr (op == Op::abs && std::is_signed_v<T>) return a < 0 ? static_cast<T>(W{0} - static_cast<W>(a)) : a;
  else if constexpr (op == Op::abs) return a;
  else if constexpr (op == Op::bit_and) return static_cast<T>(a & b);
  else if constexpr (op == Op::bit_or) return static_cast<T>(a | b);
  else if constexpr (op == Op::bit_xor) return static_cast<T>(a ^ b);
  else if constexpr (op == Op::invert) return static_cast<T>(~a);
  // The count is taken modulo 32 or 64, as processors do it.
  else if constexpr (op == Op::shift_left) return static_cast<T>(static_cast<W>(a) << (b & static_cast<T>(8 * sizeof(T) - 1)));
  else if constexpr (op == Op::shift_right) return static_cast<T>(a >> (b & static_cast<T>(8 * sizeof(T) - 1)));
  else if constexpr (op == Op::quotient) return quotient(a, b);
  else if constexpr (op == Op::remainder) return static_cast<T>(static_cast<W>(a) - static_cast<W>(quotient(a, b)) * static_cast<W>(b));
  else if constexpr (op == Op::ipow) return integer_power(a, b);
  else if constexpr (op == Op::divide) return a / b;
  else if constexpr (op == Op::fmod) return std::fmod(a, b);
  else if constexpr (op == Op::fpow) return std::pow(a, b);
  else if constexpr (op == Op::atan2) return std::atan2(a, b);
  else if constexpr (op == Op::sqrt) return std::sqrt(a);
  else if constexpr (op == Op::rsqrt) return T{1} / std::sqrt(a);
  else if constexpr (op == Op::cbrt) return std::cbrt(a);
  else if constexpr (op == Op::exp) return std::exp(a);
  else if constexpr (op == Op::log) return std::log(a);
  else if constexpr (op == Op::log2) return std::log2(a);
  else if constexpr (op == Op::log10) return std::log10(a);
  else if constexpr (op == Op::floor) return std::floor(a);
  else if constexpr (op == Op::ceil) return std::ceil(a);
  else if constexpr (op == Op::sin) return std::sin(a);
  else if constexpr (op == Op::cos) return std::cos(a);
  else if constexpr (op == Op::tan) return std::tan(a);
  else if constexpr (op == Op::asin) return std::asin(a);
  else if constexpr (op == Op::acos) return std::acos(a);
  else if constexpr (op == Op::atan) return std::atan(a);
  else if constexpr (op == Op::sinh) return std::sinh(a);
  else if constexpr (op == Op::cosh) return std::cosh(a);
  else if constexpr (op == Op::tanh) return std::tanh(a);
  else if constexpr (op == Op::asinh) return std::asinh(a);
  else if constexpr (op == Op::acosh) return std::acosh(a);
  else return std::atanh(a);
}

// Whether there is such a function for numbers of type T: bits have no type (function<bit_and, uint64_t> serves all integers), floats no bits.
template <class T>
constexpr bool has_function(Op op) {
  if (is_float_only(op)) return std::is_floating_point_v<T>;
  if (is_bitwise(op) || op == Op::logical_not || op == Op::shift_left || op == Op::shift_right || op == Op::ipow || is_division(op))
    return std::is_integral_v<T>;
  // Both operands come as the bits of an int64.
  if (op >= Op::equal_mixed) return std::is_same_v<T, int64_t>;
  return true;
}

// Calls f(std::integral_constant<Op, op>) for an operation known at run time.
template <class F>
NDD_HD void for_op(Op op, F&& f) {
  switch (op) {
#define NDD_OP(name) \
  case Op::name: return f(std::integral_constant<Op, Op::name>{});
    // clang-format off
    NDD_OP(add) NDD_OP(sub) NDD_OP(mul) NDD_OP(divide) NDD_OP(quotient) NDD_OP(remainder) NDD_OP(fmod) NDD_OP(ipow) NDD_OP(fpow) NDD_OP(atan2)
    NDD_OP(min) NDD_OP(max) NDD_OP(bit_and) NDD_OP(bit_or) NDD_OP(bit_xor) NDD_OP(shift_left) NDD_OP(shift_right)
    NDD_OP(equal) NDD_OP(not_equal) NDD_OP(less) NDD_OP(less_equal)
    NDD_OP(negate) NDD_OP(invert) NDD_OP(logical_not) NDD_OP(copy) NDD_OP(abs) NDD_OP(clamp)
    NDD_OP(sqrt) NDD_OP(rsqrt) NDD_OP(cbrt) NDD_OP(exp) NDD_OP(log) NDD_OP(log2) NDD_OP(log10) NDD_OP(floor) NDD_OP(ceil)
    NDD_OP(sin) NDD_OP(cos) NDD_OP(tan) NDD_OP(asin) NDD_OP(acos) NDD_OP(atan) NDD_OP(sinh) NDD_OP(cosh) NDD_OP(tanh)
    NDD_OP(asinh) NDD_OP(acosh) NDD_OP(atanh)
    NDD_OP(equal_mixed) NDD_OP(not_equal_mixed) NDD_OP(less_su) NDD_OP(less_us) NDD_OP(less_equal_su) NDD_OP(less_equal_us)
    // clang-format on
#undef NDD_OP
  }
}

}  // namespace ndd
