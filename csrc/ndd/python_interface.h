// SPDX-License-Identifier: Apache-2.0
// What Python knows of this library besides its operators: C functions, called through ctypes, and enumerations. Their types and numbers are written
// only here, in C++; the macros record them, and torch_ndd/_core/native.py reads the records at import. A prototype copied by hand could drift from
// the function, and a wrong one corrupts memory silently.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

struct _object;

namespace ndd {

using PythonObject = ::_object;  // PyObject, without Python's headers

// ctypes keeps the GIL during a short call, because releasing it costs more than the call; a call that may block releases it.
enum class Gil { keep, release };

namespace detail {

// The letter that records a C type, as in Python's `struct` module; additionally 'P' for pointers, 'z' for C strings, 'O' for Python objects, and 'v'
// for void.
template <class T>
constexpr char type_letter() {
  if constexpr (std::is_void_v<T>) return 'v';
  else if constexpr (std::is_same_v<T, bool>) return '?';
  else if constexpr (std::is_same_v<T, double>) return 'd';
  else if constexpr (std::is_same_v<T, const char*>) return 'z';
  else if constexpr (std::is_same_v<T, PythonObject*>) return 'O';
  else if constexpr (std::is_pointer_v<T>) return 'P';
  else {
    static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "ctypes cannot pass this type: add a letter here and in native.py");
    return sizeof(T) == 4 ? (std::is_signed_v<T> ? 'i' : 'I') : (std::is_signed_v<T> ? 'q' : 'Q');
  }
}

void record_function(const char* name, Gil gil, std::string types);
void record_enumeration(const char* name, const char* enumerators);

// Static objects whose constructors record a function or an enumeration when the library is loaded.
struct FunctionRecord {
  template <class Result, class... A>
  FunctionRecord(const char* name, Gil gil, Result (*)(A...)) {
    record_function(name, gil, {type_letter<Result>(), type_letter<A>()...});
  }
};

struct EnumerationRecord {
  EnumerationRecord(const char* name, const char* enumerators) { record_enumeration(name, enumerators); }
};

}  // namespace detail
}  // namespace ndd

#define NDD_EXTERN extern "C" __attribute__((visibility("default")))

// Begins the definition of a C function for Python: NDD_EXPORT(keep, int64_t, ndd_scan_size, (void* scan)) { ... }
// The function is declared first, so the record can take its type from it.
#define NDD_EXPORT(gil, Result, name, parameters)                                          \
  NDD_EXTERN Result name parameters;                                                       \
  static const ::ndd::detail::FunctionRecord name##_record(#name, ::ndd::Gil::gil, &name); \
  NDD_EXTERN Result name parameters

// Defines an enumeration whose numbers Python reads under the given name: native.numbers("resize.Rule").
#define NDD_ENUM(known_as, name, type, ...) \
  enum class name : type { __VA_ARGS__ };   \
  inline const ::ndd::detail::EnumerationRecord name##_record(known_as, #__VA_ARGS__)

// The same for an unscoped enumeration, within a class or a namespace.
#define NDD_PLAIN_ENUM(known_as, name, type, ...) \
  enum name : type { __VA_ARGS__ };               \
  inline static const ::ndd::detail::EnumerationRecord name##_record { known_as, #__VA_ARGS__ }
