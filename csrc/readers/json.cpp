// SPDX-License-Identifier: Apache-2.0
// The cursor `at_` moves forward only. Each function reads what its name says, or throws an error that names the byte; null(), close() and
// comma() return whether they found it.
#include "readers/json.h"

#include <array>
#include <charconv>
#include <cstring>
#include <limits>

namespace ndd {
namespace {

constexpr int kMaxDepth = 500;  // of nested brackets: parsing is recursive

// The powers of ten that a double represents exactly.
constexpr std::array<double, 23> kPowers{1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                         1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

// ASCII characters that may stand unescaped in a string.
constexpr auto kPlain = [] {
  std::array<bool, 256> plain{};
  for (size_t c = 0x20; c < 0x80; ++c) plain[c] = c != '"' && c != '\\';
  return plain;
}();

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// RFC 3629: 1 to 4 bytes; the first gives the number, the others have 6 bits each.
void add_utf8(std::string& out, unsigned code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
  } else if (code < 0x10000) {
    out += {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 63)), static_cast<char>(0x80 | (code & 63))};
  } else {
    out += {static_cast<char>(0xF0 | code >> 18), static_cast<char>(0x80 | (code >> 12 & 63)), static_cast<char>(0x80 | (code >> 6 & 63)),
            static_cast<char>(0x80 | (code & 63))};
  }
}

}  // namespace

Json::Json(const char* text, int64_t length) : begin_(text), end_(text + length), at_(text) {
  if (length >= 3 && std::memcmp(text, "\xEF\xBB\xBF", 3) == 0) at_ += 3;  // a byte order mark
}

void Json::fail(JsonError::Kind kind, const std::string& what) const { throw JsonError(kind, what + " at byte " + std::to_string(at_ - begin_)); }

// A character that begins no value is a syntax error, whatever was expected.
void Json::mismatch(const std::string& what) {
  const char c = next();
  if (c == 0 || !std::strchr("{[\"-0123456789tfn", c)) syntax("expected a value");
  fail(JsonError::Type, what);
}

// The next character that is not white space; 0 at the end of the text.
char Json::next() {
  while (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t') ++at_;
  return *at_;
}

void Json::word(const char* expected) {
  const size_t length = std::strlen(expected);
  if (std::strncmp(at_, expected, length) != 0) syntax("expected a value");
  at_ += length;
}

bool Json::null() {
  if (next() != 'n') return false;
  word("null");
  return true;
}

void Json::end() {
  next();
  // A zero byte within the text also ends here, and is an error.
  if (at_ != end_) syntax("expected nothing more");
}

void Json::open(char bracket, const char* what) {
  if (next() != bracket) mismatch(std::string(what) + (bracket == '[' ? " must be a list" : " must be an object"));
  // Bounds the recursion of skip(): a file of brackets must not overflow the stack.
  if (++depth_ > kMaxDepth) syntax("too many brackets");
  ++at_;
}

bool Json::close(char bracket) {
  if (next() != bracket) return false;
  ++at_;
  return true;
}

// Whether another element follows, after a comma; otherwise the bracket must be closed.
bool Json::comma(char bracket) {
  if (next() == ',') {
    ++at_;
    return true;
  }
  if (!close(bracket)) syntax(bracket == ']' ? "expected , or ]" : "expected , or }");
  return false;
}

std::string_view Json::name() {
  const std::string_view found = string();
  if (next() != ':') syntax("expected :");
  ++at_;
  return found;
}

// Validates a value without keeping it.
void Json::skip() {
  switch (next()) {
    case '{': return object("a value", [this](std::string_view) { skip(); });
    case '[': return array("a value", [this] { skip(); });
    case '"': return pass_string();
    case 't': return word("true");
    case 'f': return word("false");
    case 'n': return word("null");
    default: pass_number();
  }
}

// As bool() in Python: zero and what is empty are false.
bool Json::truth() {
  const char c = next();
  if (c == '-' || is_digit(c)) return number() != 0;
  const char* const begin = at_;
  skip();
  if (c == 't') return true;
  if (c == 'n' || c == 'f') return false;
  // The text between the quotes or brackets: strings, lists and objects are true unless empty.
  const std::string_view inside(begin + 1, static_cast<size_t>(at_ - begin - 2));
  return c == '"' ? !inside.empty() : inside.find_first_not_of(" \n\r\t") != inside.npos;
}

// --- text ---

void Json::pass_utf8() {
  const auto* bytes = reinterpret_cast<const unsigned char*>(at_);
  const unsigned lead = bytes[0];
  // The number of continuation bytes; 0 for a byte that cannot lead. Bytes behind the text are zero, which no continuation byte is.
  const int more = lead >= 0xC2 && lead < 0xE0 ? 1 : lead >= 0xE0 && lead < 0xF0 ? 2 : lead >= 0xF0 && lead < 0xF5 ? 3 : 0;
  bool valid = more > 0;
  for (int k = 1; valid && k <= more; ++k) valid = bytes[k] >> 6 == 2;
  // Neither overlong, nor a surrogate, nor beyond U+10FFFF.
  if (!valid || (lead == 0xE0 && bytes[1] < 0xA0) || (lead == 0xED && bytes[1] >= 0xA0) || (lead == 0xF0 && bytes[1] < 0x90) ||
      (lead == 0xF4 && bytes[1] >= 0x90)) {
    syntax("the text is not valid UTF-8");
  }
  at_ += more + 1;
}

// strnlen() stops at the zero behind the text.
unsigned Json::hexadecimal(const char* digits) const {
  unsigned value = 0;
  const auto [stopped, code] = std::from_chars(digits, digits + strnlen(digits, 4), value, 16);
  if (code != std::errc() || stopped != digits + 4) syntax("expected 4 hexadecimal digits");
  return value;
}

// Validates a string up to and including its closing quote. unescape() can rely on its escapes.
void Json::pass_string() {
  ++at_;
  for (;;) {
    const auto c = static_cast<unsigned char>(*at_);
    if (kPlain[c]) {
      ++at_;
    } else if (c == '"') {
      ++at_;
      return;
    } else if (c >= 0x80) {
      pass_utf8();
    } else if (c == '\\') {
      const char kind = at_[1];
      if (kind == 'u') {
        hexadecimal(at_ + 2);
        at_ += 6;
      } else {
        if (kind == 0 || !std::strchr("\"\\/bfnrt", kind)) syntax("this escape is unknown");
        at_ += 2;
      }
    } else {
      syntax(at_ == end_ ? "the file ends within a string" : "a string must not contain control characters");
    }
  }
}

// Returns the text itself unless it has escapes, which is rare: nothing is copied.
std::string_view Json::string() {
  const char* const begin = at_ + 1;
  pass_string();
  const char* const last = at_ - 1;
  return std::memchr(begin, '\\', static_cast<size_t>(last - begin)) ? unescape(begin, last)
                                                                     : std::string_view(begin, static_cast<size_t>(last - begin));
}

std::string_view Json::unescape(const char* begin, const char* end) {
  buffer_.clear();
  while (begin < end) {
    if (*begin != '\\') {
      buffer_ += *begin++;
      continue;
    }
    const char kind = begin[1];
    begin += 2;
    if (kind != 'u') {
      // The other escapes stand for themselves: quotes, slashes and backslashes.
      constexpr std::string_view kinds = "bfnrt", characters = "\b\f\n\r\t";
      const size_t found = kinds.find(kind);
      buffer_ += found == std::string_view::npos ? kind : characters[found];
      continue;
    }
    unsigned code = hexadecimal(begin);
    begin += 4;
    // A surrogate pair stands for one character beyond U+FFFF.
    if (code >= 0xD800 && code < 0xDC00 && end - begin >= 6 && begin[0] == '\\' && begin[1] == 'u') {
      const unsigned low = hexadecimal(begin + 2);
      if (low >= 0xDC00 && low < 0xE000) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        begin += 6;
      }
    }
    if (code >= 0xD800 && code < 0xE000) syntax("an unpaired surrogate in the string that ends");
    add_utf8(buffer_, code);
  }
  return buffer_;
}

std::string_view Json::text(const char* what) {
  if (next() != '"') mismatch(std::string(what) + " must be text");
  return string();
}

// --- numbers ---

// The digits may overflow for long numbers, which number() then parses again.
Json::Digits Json::pass_number() {
  Digits found;
  const auto digits = [&] {
    for (; is_digit(*at_); ++at_) found.digits = found.digits * 10 + static_cast<unsigned>(*at_ - '0');
  };
  if (*at_ == '-') ++at_;
  if (!is_digit(*at_)) syntax("expected a value");
  // JSON allows no leading zeros.
  if (*at_ == '0') {
    if (is_digit(*++at_)) syntax("a number must not begin with 0");
  } else {
    digits();
  }
  if (*at_ == '.') {
    const char* const first = ++at_;
    if (!is_digit(*first)) syntax("expected a digit");
    digits();
    found.decimals = at_ - first;
  }
  if (*at_ == 'e' || *at_ == 'E') {
    found.exponent = true;
    ++at_;
    if (*at_ == '+' || *at_ == '-') ++at_;
    if (!is_digit(*at_)) syntax("expected a digit");
    while (is_digit(*at_)) ++at_;
  }
  return found;
}

double Json::number(bool* whole) {
  if (const char c = next(); c != '-' && !is_digit(c)) mismatch("expected a number");
  const char* const begin = at_;
  const Digits found = pass_number();
  if (whole) *whole = found.decimals == 0 && !found.exponent;
  // Fast path: numerator and power of ten are exact, so the quotient is rounded once, and correctly.
  if (at_ - begin <= 18 && !found.exponent && found.digits < uint64_t{1} << 53) {
    const double value = static_cast<double>(found.digits) / kPowers[found.decimals];
    return *begin == '-' ? -value : value;
  }
  double value = 0;
  if (std::from_chars(begin, at_, value).ec != std::errc()) {
    // Out of range: too large is an error, too small becomes 0.
    const std::string_view text(begin, static_cast<size_t>(at_ - begin));
    const size_t exponent = text.find_first_of("eE");
    // Only a number without an exponent that begins with 0 is below 1.
    if (exponent == text.npos ? text[text.find_first_of("0123456789")] != '0' : text[exponent + 1] != '-') syntax("a number is too large");
    value = 0;
  }
  return value;
}

// The value is parsed with 64 bits and then compared, so the error can name the limit.
int64_t Json::integer(const char* what) {
  next();
  const char* const begin = at_;
  const int64_t value = long_integer(what);
  if (value == missing() || (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max())) return value;
  at_ = begin;
  mismatch(std::string(what) + " must fit into 32 bits");
}

int64_t Json::long_integer(const char* what) {
  if (null()) return missing();
  const char c = next();
  const char* const begin = at_;
  if (c == '-' || is_digit(c)) {
    bool whole = false;
    number(&whole);
    int64_t value = 0;
    if (whole && std::from_chars(begin, at_, value).ec == std::errc() && value != missing()) return value;
    at_ = begin;
    if (whole) mismatch(std::string(what) + " must fit into 64 bits");
  }
  mismatch(std::string(what) + " must be an integer");
}

}  // namespace ndd
