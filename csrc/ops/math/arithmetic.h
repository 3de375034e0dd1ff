// SPDX-License-Identifier: Apache-2.0
// What + - * / do to two numbers of one type. An operation of part 2 is a number here and a line in apply().
#pragma once

#include <cstdint>
#include <type_traits>

#include "ndd/dtypes.h"
#include "ndd/hd.h"

namespace ndd {

// The numbers are an interface: torch_ndd/ops/arithmetic.py.
enum class Arithmetic : int64_t { add, sub, mul, truediv };

// Integers are computed unsigned, where overflow wraps around; the bits are those of the signed result.
template <Arithmetic operation, class T>
NDD_HD T apply(T a, T b) {
  if constexpr (operation == Arithmetic::add) return static_cast<T>(a + b);
  else if constexpr (operation == Arithmetic::sub) return static_cast<T>(a - b);
  else if constexpr (operation == Arithmetic::mul) return static_cast<T>(a * b);
  else return static_cast<T>(a / b);
}

// The same for an operation known at run time; integers are never divided.
template <class T>
NDD_HD T apply(Arithmetic operation, T a, T b) {
  switch (operation) {
    case Arithmetic::add:
      return apply<Arithmetic::add>(a, b);
    case Arithmetic::sub:
      return apply<Arithmetic::sub>(a, b);
    case Arithmetic::mul:
      return apply<Arithmetic::mul>(a, b);
    case Arithmetic::truediv:
      break;
  }
  if constexpr (std::is_floating_point_v<T>) return apply<Arithmetic::truediv>(a, b);
  else return T{};
}

// The type in which a result of type `out` is computed.
inline DType computed_in(DType out) {
  switch (out) {
    case DType::int8:
    case DType::boolean:
      return DType::uint8;
    case DType::int16:
      return DType::uint16;
    case DType::int32:
      return DType::uint32;
    case DType::int64:
      return DType::uint64;
    case DType::float16:
    case DType::bfloat16:
      return DType::float32;
    default:
      return out;
  }
}

}  // namespace ndd
