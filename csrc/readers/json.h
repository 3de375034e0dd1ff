// SPDX-License-Identifier: Apache-2.0
// JSON (RFC 8259, in UTF-8) from front to back, without a tree of it: 530 MB of COCO annotations would become 30 million objects. Of 51 MB with 86,000
// polygons the columns take 0.28 s and 110 MB; msgspec's typed structures and arrays of them 0.94 s and 353 MB, orjson 1.1 s and 439 MB, Python's json
// 1.4 s and 380 MB. simdjson comes with no package that a build can depend on.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

#include "ndd/python_interface.h"

namespace ndd {

class JsonError : public std::runtime_error {
 public:
  // Text that is no JSON, a value that is missing or has a wrong length, a value of another type.
  NDD_PLAIN_ENUM("json.Error", Kind, int, Syntax, Invalid, Type);
  JsonError(Kind kind, const std::string& what) : std::runtime_error(what), kind(kind) {}
  const Kind kind;
};

class Json {
 public:
  // A byte of 0 must follow the text: everything stops there.
  Json(const char* text, int64_t length);

  char next();  // the first character of the value or sign that follows
  bool null();  // whether it is null, which is then behind
  void skip();  // any value
  // Any value as Python's bool() has it.
  bool truth();
  // `whole`: whether it has neither fraction nor exponent.
  double number(bool* whole = nullptr);
  // An integer; missing() for null. JsonError for what does not fit into 32 bits, or 64.
  int64_t integer(const char* what);
  int64_t long_integer(const char* what);
  static constexpr int64_t missing() { return std::numeric_limits<int64_t>::min(); }
  std::string_view text(const char* what);  // valid until the next call
  void end();  // only blanks follow

  // Calls element() for each; it must take the value.
  template <class F>
  void array(const char* what, F element) {
    open('[', what);
    for (bool more = !close(']'); more; more = comma(']')) element();
    --depth_;
  }
  // Calls member(name); it must take the value.
  template <class F>
  void object(const char* what, F member) {
    open('{', what);
    for (bool more = !close('}'); more; more = comma('}')) {
      if (next() != '"') syntax("expected a name in quotation marks");
      member(name());
    }
    --depth_;
  }

  // JsonError with the place behind what was read last.
  [[noreturn]] void fail(JsonError::Kind kind, const std::string& what) const;

 private:
  [[noreturn]] void syntax(const char* what) const { fail(JsonError::Syntax, what); }
  // The value that follows is of another type, or there is none.
  [[noreturn]] void mismatch(const std::string& what);
  void open(char bracket, const char* what);
  bool close(char bracket);
  bool comma(char bracket);
  std::string_view name();
  std::string_view string();
  void pass_string();
  // A number without exponent is digits / 10^decimals, where it has at most 18 characters.
  struct Digits {
    uint64_t digits = 0;
    int64_t decimals = 0;
    bool exponent = false;
  };
  Digits pass_number();
  void pass_utf8();
  void word(const char* expected);
  std::string_view unescaped(const char* begin, const char* end);
  unsigned hexadecimal(const char* digits) const;

  const char *const begin_, *const end_;
  const char* at_;
  int depth_ = 0;
  std::string buffer_;
};

}  // namespace ndd
