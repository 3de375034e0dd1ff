// SPDX-License-Identifier: Apache-2.0
// Exceptions with the Python type that they become. The text names the operator and the argument, or the file and the sample.
#pragma once

#include <stdexcept>
#include <string>

namespace ndd {

class Error : public std::runtime_error {
 public:
  // The numbers are an interface: torch_ndd/_stream.py has the Python types in this order.
  enum Kind { Runtime, Value, Type, Index, Memory };

  Error(Kind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

}  // namespace ndd
