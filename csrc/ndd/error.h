// SPDX-License-Identifier: Apache-2.0
// Exceptions that carry the Python type they become. The message names the operator and the argument, or the file and the sample. fail(parts...)
// concatenates text and numbers and throws; it is the only way that native code reports errors.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "ndd/python_interface.h"

namespace ndd {

class Error : public std::runtime_error {
 public:
  NDD_PLAIN_ENUM("Error", Kind, int, Runtime, Value, Type, Index, Memory);  // become Python's RuntimeError, ValueError, ...

  Error(Kind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

namespace detail {

// A part of a message, stored unformatted: formatting happens out of line, so the many files that call fail() do not contain it.
class Part {
 public:
  Part(std::string_view text) : kind_(kText), text_(text) {}
  Part(const std::string& text) : Part(std::string_view(text)) {}
  Part(const char* text) : Part(std::string_view(text)) {}
  Part(char letter) : kind_(kLetter), letter_(letter) {}
  template <class Number, std::enable_if_t<std::is_arithmetic_v<Number>, int> = 0>
  Part(Number number) : kind_(std::is_floating_point_v<Number> ? kReal
                              : std::is_signed_v<Number>       ? kSigned
                                                               : kUnsigned) {
    if constexpr (std::is_floating_point_v<Number>) real_ = number;
    else if constexpr (std::is_signed_v<Number>) signed_ = number;
    else unsigned_ = number;
  }

  void append_to(std::string& text) const;

 private:
  // Says which member of the union is valid. Text is not copied: it lives until the message is formatted.
  enum { kText, kLetter, kSigned, kUnsigned, kReal } kind_;
  union {
    std::string_view text_;
    char letter_;
    int64_t signed_;
    uint64_t unsigned_;
    double real_;
  };
};

[[noreturn]] void fail_with(Error::Kind kind, std::initializer_list<Part> parts);

}  // namespace detail

// Throws an Error whose message is the concatenation of the parts (strings and numbers).
template <class... Parts>
[[noreturn]] void fail(Error::Kind kind, const Parts&... parts) {
  detail::fail_with(kind, {detail::Part(parts)...});
}

// Throws an Error that becomes a RuntimeError.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  detail::fail_with(Error::Runtime, {detail::Part(parts)...});
}

}  // namespace ndd
