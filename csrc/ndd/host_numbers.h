// SPDX-License-Identifier: Apache-2.0
// Tables of one type in host memory that kernels read or write without Args: those of results, and those that a loop walks through.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "ndd/tensor.h"

namespace ndd {

template <class T>
constexpr DType dtype_of() {
  using Number = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Number, bool>) return DType::boolean;
  else if constexpr (std::is_same_v<Number, int32_t>) return DType::int32;
  else if constexpr (std::is_same_v<Number, int64_t>) return DType::int64;
  else if constexpr (std::is_same_v<Number, float>) return DType::float32;
  else {
    static_assert(std::is_same_v<Number, double>);
    return DType::float64;
  }
}

// Throws unless the table has this type and `count` numbers or more, one after the other in host memory. Python passes such tables, but
// torch.ops can call a kernel with others.
void check_table(std::string_view op, const char* name, const Tensor& table, DType dtype, int64_t count);

// The numbers of such a table. Values that are pending may be read only where Args may be, too.
template <class T>
T* host_numbers(std::string_view op, const char* name, const Tensor& table, int64_t count) {
  check_table(op, name, table, dtype_of<T>(), count);
  return static_cast<T*>(table.data_ptr());
}

}  // namespace ndd
