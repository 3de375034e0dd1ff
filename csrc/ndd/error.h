// SPDX-License-Identifier: Apache-2.0
// Exceptions with the Python type that they become. The text names the operator and the argument, or the file and the sample.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace ndd {

class Error : public std::runtime_error {
 public:
  // The numbers are an interface: torch_ndd/_core/pending.py has the Python types in this order.
  enum Kind { Runtime, Value, Type, Index, Memory };

  Error(Kind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

namespace detail {

inline void append(std::string& text, std::string_view part) { text += part; }
inline void append(std::string& text, char part) { text += part; }

template <class Number, std::enable_if_t<std::is_arithmetic_v<Number>, int> = 0>
void append(std::string& text, Number part) {
  text += std::to_string(part);
}

}  // namespace detail

// Throws an Error whose text is the parts one after the other: words, and numbers.
template <class... Parts>
[[noreturn]] void fail(Error::Kind kind, const Parts&... parts) {
  std::string text;
  (detail::append(text, parts), ...);
  throw Error(kind, text);
}

// A RuntimeError of Python's.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  fail(Error::Runtime, parts...);
}

}  // namespace ndd
