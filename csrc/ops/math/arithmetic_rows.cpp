// SPDX-License-Identifier: Apache-2.0
// The loops of arithmetic on the CPU: one for each operation and type of computation, and the conversions between types.
#include "ops/math/arithmetic_rows.h"

#include <cstring>
#include <type_traits>

#include "ndd/elementwise/saturate.h"
#include "ndd/simd.h"
#include "ops/math/float_functions.h"

namespace ndd::arithmetic_detail {
namespace {

template <class In, class Out>
void convert_row(const void* from, int64_t n, void* to) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const In* __restrict src = static_cast<const In*>(from);
    Out* __restrict dst = static_cast<Out*>(to);
    const int64_t count = n;
    for (int64_t i = 0; i < count; ++i) dst[i] = static_cast<Out>(src[i]);
  });
}

// One loop for operations of one, two and three operands; those that do not exist are null and not read.
template <Op op, class T>
NDD_HD void apply_each(const void* const* operands, int64_t n, void* out) {
  const T* __restrict a = static_cast<const T*>(operands[0]);
  const T* __restrict b = static_cast<const T*>(operands[1]);
  const T* __restrict c = static_cast<const T*>(operands[2]);
  ResultOf<op, T>* __restrict dst = static_cast<ResultOf<op, T>*>(out);
  const int64_t count = n;
  if constexpr (arity(op) == 1) {
    for (int64_t i = 0; i < count; ++i) dst[i] = function<op>(a[i]);
  } else if constexpr (arity(op) == 2) {
    for (int64_t i = 0; i < count; ++i) dst[i] = function<op>(a[i], b[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) dst[i] = function<op>(a[i], b[i], c[i]);
  }
}

// The vectorized functions of float32, for rows whose operands are all ordinary; false otherwise. One unusual operand sends only its row to the C library.
template <Op op>
bool apply_fast(const void* const operands[kOperands], int64_t n, void* out) {
  bool ordinary = false;
  with_simd([&]() NDD_ALWAYS_INLINE {
    const float* __restrict a = static_cast<const float*>(operands[0]);
    const float* __restrict b = static_cast<const float*>(arity(op) == 2 ? operands[1] : operands[0]);
    float* __restrict dst = static_cast<float*>(out);
    const int64_t count = n;
    int32_t strange = 0;
    for (int64_t i = 0; i < count; ++i) strange |= !float_functions::is_ordinary<op>(a[i], b[i]);
    ordinary = strange == 0;
    if (!ordinary) return;
    for (int64_t i = 0; i < count; ++i) dst[i] = float_functions::fast<op>(a[i], b[i]);
  });
  return ordinary;
}

template <Op op, class T>
void apply_row(const void* const operands[kOperands], int64_t n, void* out) {
  if constexpr (std::is_same_v<T, float> && float_functions::has_fast(op)) {
    for (int64_t begin = 0; begin < n; begin += kRow) {  // what is not ordinary slows down a row
      const int64_t count = std::min(kRow, n - begin);
      const auto at = [&](const void* row) { return row ? static_cast<const float*>(row) + begin : nullptr; };
      const void* const part[kOperands] = {at(operands[0]), at(operands[1]), nullptr};
      float* to = static_cast<float*>(out) + begin;
      if (!apply_fast<op>(part, count, to)) apply_each<op, T>(part, count, to);
    }
  } else if constexpr (is_slow(op)) apply_each<op, T>(operands, n, out);  // calls functions: no vectors
  else with_simd([&]() NDD_ALWAYS_INLINE { apply_each<op, T>(operands, n, out); });
}

// The most common power is the square: x * x is the same number, also rounded once.
template <Op op, class T>
void power_row(const void* const operands[kOperands], int64_t n, void* out) {
  const T* exponents = static_cast<const T*>(operands[1]);
  if (!std::all_of(exponents, exponents + n, [](T e) { return e == T{2}; })) return apply_row<op, T>(operands, n, out);
  const void* const squared[kOperands] = {operands[0], operands[0], nullptr};
  apply_row<Op::mul, T>(squared, n, out);
}

// Bitwise operations do not depend on the type: rows are treated as bytes.
template <Op op, int bytes>
void bits_row(const void* const operands[kOperands], int64_t n, void* out) {
  apply_row<op, uint8_t>(operands, n * bytes, out);
}

// For the types in which an operation is computed: computed_in() below.
template <Op op>
ApplyRow row_of(DType computed, int64_t bytes) {
  if constexpr (is_bitwise(op)) return bytes == 1 ? bits_row<op, 1> : bytes == 2 ? bits_row<op, 2> : bytes == 4 ? bits_row<op, 4> : bits_row<op, 8>;
  ApplyRow result = nullptr;
  for_dtype(computed, [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr bool kWraps = op == Op::add || op == Op::sub || op == Op::mul || op == Op::negate;
    // Operations that wrap around are computed unsigned in their own width, all others in at least 32 bits.
    constexpr bool kComputed = std::is_integral_v<T> && kWraps ? std::is_unsigned_v<T> && !std::is_same_v<T, bool>
                               : op == Op::logical_not         ? std::is_same_v<T, uint8_t>
                                                               : sizeof(T) >= 4;
    if constexpr (kComputed && !is_half<T> && !is_bitwise(op) && has_function<T>(op)) {
      if constexpr (op == Op::fpow || op == Op::ipow) result = power_row<op, T>;
      else result = apply_row<op, T>;
    }
  });
  return result;
}

// The unsigned integer type of the same size.
DType bits_of(DType type) {
  switch (item_bytes(type)) {
    case 1: return DType::uint8;
    case 2: return DType::uint16;
    case 4: return DType::uint32;
    default: return DType::uint64;
  }
}

bool is_signed_integer(DType type) { return type == DType::int8 || type == DType::int16 || type == DType::int32 || type == DType::int64; }

// Comparisons of an integer that has a sign with uint64: no common integer type holds both, so the sign is tested first.
Op mixed(Op op, DType left, DType right) {
  const bool signed_left = is_signed_integer(left) && right == DType::uint64, signed_right = left == DType::uint64 && is_signed_integer(right);
  if (!signed_left && !signed_right) return op;
  switch (op) {
    case Op::equal: return Op::equal_mixed;
    case Op::not_equal: return Op::not_equal_mixed;
    case Op::less: return signed_left ? Op::less_su : Op::less_us;
    case Op::less_equal: return signed_left ? Op::less_equal_su : Op::less_equal_us;
    default: return op;
  }
}

}  // namespace

// The operation that a request means for these types.
Op specific(Op op, DType type, DType left, DType right) {
  if (type == DType::boolean && op == Op::shift_left) return Op::copy;  // true << true is not false
  if (type == DType::boolean && op == Op::invert) return Op::logical_not;
  return mixed(op, left, right);
}

// The type of computation. It differs from the type of the result where 16 bits are too few, or where wrapping around needs unsigned numbers.
DType computed_in(Op op, DType type, DType left, DType right) {
  // Rounding a wide integer to float32 changes its remainder completely.
  const auto is_wide = [](DType dtype) { return !is_floating_dtype(dtype) && item_bytes(dtype) >= 4; };
  if (op == Op::fmod && type == DType::float32 && (is_wide(left) || is_wide(right))) return DType::float64;
  if (type == DType::float16 || type == DType::bfloat16) return DType::float32;
  if (is_floating_dtype(type)) return type;
  if (is_bitwise(op) || op == Op::add || op == Op::sub || op == Op::mul || op == Op::negate || op == Op::logical_not) return bits_of(type);
  return item_bytes(type) < 4 ? DType::int32 : type;
}

Recipe recipe(Op requested, DType type, DType left, DType right, DType out) {
  const Op op = specific(requested, type, left, right);
  const DType computed = computed_in(op, type, left, right), result_type = is_comparison(op) ? DType::boolean : computed;
  // A row is converted to `computed`, the operation applied, and the result stored as `out`, each by a function found once for the call.
  Recipe result{op, computed, result_type, out, nullptr, nullptr};
  for_op(op, [&](auto constant) { result.apply = row_of<decltype(constant)::value>(computed, item_bytes(computed)); });
  if (!result.apply) fail(Error::Type, "arithmetic: this element type does not support the operation");
  // Stored with another type only where the bits differ: narrower integers keep their lowest bytes.
  if (out == DType::float16) result.store = convert_row<float, Half>;
  else if (out == DType::bfloat16) result.store = convert_row<float, BFloat16>;
  else if (result_type == DType::float64 && out == DType::float32) result.store = convert_row<double, float>;
  else if (item_bytes(out) < item_bytes(result_type))
    result.store = item_bytes(out) == 1 ? convert_row<uint32_t, uint8_t> : convert_row<uint32_t, uint16_t>;
  return result;
}

// Null if the elements need no conversion: the bits are the same, or the type is not one that is computed in.
ConvertRow row_converter(DType from, DType to) {
  if (from == to) return nullptr;
  const DType target = is_floating_dtype(to) ? to : bits_of(to);
  ConvertRow convert = nullptr;
  for_dtype(from, [&](auto tag) {
    using In = typename decltype(tag)::type;
    // Integers widen as C++ does, by their sign; the target is unsigned only by name.
    if constexpr (!is_floating<In>) {
      if constexpr (sizeof(In) < 2) {
        if (target == DType::uint16) convert = convert_row<In, uint16_t>;
      }
      if constexpr (sizeof(In) < 4) {
        if (target == DType::uint32) convert = convert_row<In, uint32_t>;
      }
      if constexpr (sizeof(In) < 8) {
        if (target == DType::uint64) convert = convert_row<In, uint64_t>;
      }
    }
    if constexpr (!std::is_same_v<In, double>) {
      if constexpr (!std::is_same_v<In, float>) {
        if (target == DType::float32) convert = convert_row<In, float>;
      }
      if (target == DType::float64) convert = convert_row<In, double>;
    }
  });
  return convert;
}

// For integer divisors: zero is an error.
bool has_zero(const void* row, DType type, int64_t n) {
  bool result = false;
  for_dtype(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T> && sizeof(T) >= 4) {
      with_simd([&]() NDD_ALWAYS_INLINE {
        const T* __restrict src = static_cast<const T*>(row);
        const int64_t count = n;
        // Without a branch, so the loop vectorizes.
        T any = 0;
        for (int64_t i = 0; i < count; ++i) any |= static_cast<T>(src[i] == 0);
        result = any != 0;
      });
    }
  });
  return result;
}

}  // namespace ndd::arithmetic_detail
