// SPDX-License-Identifier: Apache-2.0
// Element types: torch's dtype numbers, and the switch from a run-time type to a C++ type.
#pragma once

#include <cstdint>

#include "ndd/error.h"
#include "ndd/half.h"
#include "ndd/hd.h"
#include "ndd/python_interface.h"

namespace ndd {

// The numbers are those of torch::headeronly::ScalarType, so they need no conversion in either direction.
NDD_ENUM("DType", DType, int, uint8 = 0, int8 = 1, int16 = 2, int32 = 3, int64 = 4, float16 = 5, float32 = 6, float64 = 7, boolean = 11,
         bfloat16 = 15, uint16 = 27, uint32 = 28, uint64 = 29);

// Carries a type as a value, so a generic lambda can receive it.
template <class T>
struct TypeTag {
  using type = T;
};

[[noreturn]] NDD_HD void unsupported_dtype() {
#ifdef __CUDA_ARCH__
  // Device code cannot throw; the host has checked the type before the launch.
  __trap();
#else
  fail(Error::Type, "this element type is not supported");
#endif
}

// Calls f(TypeTag<T>{}), where T is the C++ type of `dtype`. This instantiates f for all 13 types: keep f small, or convert through rows of float
// (elementwise/rows.h), since the library's size and compile time grow with every such call.
template <class F>
NDD_HD void for_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::uint8: return f(TypeTag<uint8_t>{});
    case DType::int8: return f(TypeTag<int8_t>{});
    case DType::int16: return f(TypeTag<int16_t>{});
    case DType::int32: return f(TypeTag<int32_t>{});
    case DType::int64: return f(TypeTag<int64_t>{});
    case DType::float16: return f(TypeTag<Half>{});
    case DType::float32: return f(TypeTag<float>{});
    case DType::float64: return f(TypeTag<double>{});
    case DType::boolean: return f(TypeTag<bool>{});
    case DType::bfloat16: return f(TypeTag<BFloat16>{});
    case DType::uint16: return f(TypeTag<uint16_t>{});
    case DType::uint32: return f(TypeTag<uint32_t>{});
    case DType::uint64: return f(TypeTag<uint64_t>{});
  }
  unsupported_dtype();
}

// Calls f(TypeTag<T>{}), where T is the unsigned integer of this size: for elements that are moved, or compared by their bits.
template <class F>
NDD_HD void for_bytes(int64_t bytes, F&& f) {
  if (bytes == 1) f(TypeTag<uint8_t>{});
  else if (bytes == 2) f(TypeTag<uint16_t>{});
  else if (bytes == 4) f(TypeTag<uint32_t>{});
  else f(TypeTag<uint64_t>{});
}

NDD_HD int64_t item_bytes(DType dtype) {
  switch (dtype) {
    case DType::uint8:
    case DType::int8:
    case DType::boolean: return 1;
    case DType::int16:
    case DType::uint16:
    case DType::float16:
    case DType::bfloat16: return 2;
    case DType::int32:
    case DType::uint32:
    case DType::float32: return 4;
    case DType::int64:
    case DType::uint64:
    case DType::float64: return 8;
  }
  unsupported_dtype();
}

inline bool is_floating_dtype(DType dtype) {
  return dtype == DType::float16 || dtype == DType::float32 || dtype == DType::float64 || dtype == DType::bfloat16;
}

// The value that represents full brightness: 1 for floating-point types, the maximum for integers.
inline float value_range(DType dtype) {
  switch (dtype) {
    case DType::uint8: return 255.0f;
    case DType::int8: return 127.0f;
    case DType::int16: return 32767.0f;
    case DType::uint16: return 65535.0f;
    case DType::int32: return 2147483647.0f;
    case DType::uint32: return 4294967295.0f;
    case DType::int64: return 9223372036854775807.0f;
    case DType::uint64: return 18446744073709551615.0f;
    default: return 1.0f;
  }
}

}  // namespace ndd
