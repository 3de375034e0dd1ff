// SPDX-License-Identifier: Apache-2.0
// NumPy evaluates the dict with ast.literal_eval; the parser here accepts the subset that occurs, and names what it does not understand.
#include "decoders/npy/npy_header.h"

#include "decoders/file_kind.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "ndd/error.h"

namespace ndd {
namespace {

constexpr size_t kMaxAxes = 64;                     // NumPy's own limit
constexpr int64_t kMaxElements = int64_t{1} << 58;  // times an item of 8 bytes is still below 2^62, so sizes cannot overflow

[[noreturn]] void reject(const std::string& what) { fail("the header of the .npy file is damaged: ", what); }

// Parses the subset of Python literals that occurs in a header: a dict of strings, booleans and a tuple of integers. Nothing is evaluated.
class Literal {
 public:
  explicit Literal(std::string_view text) : rest_(text) {}

  bool skip(char wanted) {
    skip_blanks();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void expect(char wanted) {
    if (!skip(wanted)) reject(std::string("expected '") + wanted + "'");
  }

  // Keys and type names contain no escape sequences, so the next quote ends the string.
  std::string_view string() {
    const char quote = skip('"') ? '"' : '\'';
    if (quote == '\'') expect(quote);
    const size_t end = rest_.find(quote);
    if (end == std::string_view::npos) reject("a string without an end");
    const auto found = rest_.substr(0, end);
    if (found.find('\0') != found.npos) reject("a string with a zero byte");  // which would end a message about it
    rest_.remove_prefix(end + 1);
    return found;
  }

  bool boolean() {
    skip_blanks();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (rest_.substr(0, word.size()) != word) continue;
      rest_.remove_prefix(word.size());
      return value;
    }
    reject("fortran_order is neither True nor False");
  }

  // Accepts "()", "(3,)" and "(3, 4)". The check of `value` before it grows keeps the product within 64 bits.
  std::vector<int64_t> tuple() {
    std::vector<int64_t> values;
    expect('(');
    while (!skip(')')) {
      skip_blanks();
      int64_t value = 0;
      size_t digits = 0;
      for (; digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9'; ++digits) {
        if (value > kMaxElements) reject("an extent that is too large");
        value = value * 10 + (rest_[digits] - '0');
      }
      if (digits == 0 || values.size() == kMaxAxes) reject("the shape is not a tuple of integers");
      rest_.remove_prefix(digits);
      if (!rest_.empty() && rest_.front() == 'L') rest_.remove_prefix(1);  // Python 2
      values.push_back(value);
      if (!skip(',')) {
        expect(')');
        break;
      }
    }
    return values;
  }

 private:
  void skip_blanks() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n')) rest_.remove_prefix(1);
  }

  std::string_view rest_;
};

// The types of the array interface without their byte order, and the widths of their items.
struct TypeName {
  const char* name;
  DType dtype;
  int64_t bytes;
};
constexpr TypeName kTypes[] = {{"b1", DType::boolean, 1}, {"u1", DType::uint8, 1},   {"i1", DType::int8, 1},    {"u2", DType::uint16, 2},
                               {"i2", DType::int16, 2},   {"u4", DType::uint32, 4},  {"i4", DType::int32, 4},   {"u8", DType::uint64, 8},
                               {"i8", DType::int64, 8},   {"f2", DType::float16, 2}, {"f4", DType::float32, 4}, {"f8", DType::float64, 8}};

void set_type(NpyHeader& header, std::string_view descr) {
  // A descr starts with the byte order: < little, > big, | not applicable, = native. Only little-endian machines are supported.
  // Not strchr(), which finds the zero behind the orders too.
  constexpr std::string_view kOrders = "<>|=";
  const auto name = !descr.empty() && kOrders.find(descr.front()) != kOrders.npos ? descr.substr(1) : descr;
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes), [=](const TypeName& type) { return name == type.name; });
  if (found == std::end(kTypes)) fail("arrays of type '", descr.substr(0, 100), "' are not supported");
  header.dtype = found->dtype;
  header.item_bytes = found->bytes;
  header.swapped = descr.front() == '>' && found->bytes > 1;
}

}  // namespace

NpyPrefix parse_npy_prefix(const char* file, int64_t available) {
  // Magic, major and minor version, and the length of the dict in 2 bytes (version 1) or 4, little-endian.
  if (available < 10 || std::memcmp(file, "\x93NUMPY", 6) != 0) {
    fail("this is not an .npy file", other_kind(reinterpret_cast<const uint8_t*>(file), static_cast<size_t>(std::max<int64_t>(available, 0))));
  }
  const int version = static_cast<unsigned char>(file[6]);
  if (version < 1 || version > 3) fail("a .npy file of unknown version ", version);
  NpyPrefix found{version == 1 ? 10 : 12, 0};
  if (available < found.bytes) reject("it ends too early");
  // From the most significant byte down.
  for (int64_t k = found.bytes - 1; k >= 8; --k) found.length = found.length * 256 + static_cast<unsigned char>(file[k]);
  return found;
}

NpyHeader parse_npy_header(std::string_view dict) {
  NpyHeader header;
  Literal literal(dict);
  bool has_type = false, has_order = false, has_shape = false;
  literal.expect('{');
  while (!literal.skip('}')) {
    const auto key = literal.string();
    literal.expect(':');
    if (key == "descr") {
      // A list describes the fields of a structured type.
      if (literal.skip('[')) fail("arrays of structures are not supported");
      set_type(header, literal.string());
      has_type = true;
    } else if (key == "fortran_order") {
      header.fortran_order = literal.boolean();
      has_order = true;
    } else if (key == "shape") {
      header.shape = literal.tuple();
      has_shape = true;
    } else {
      reject("it has a key '" + std::string(key.substr(0, 40)) + "'");
    }
    if (!literal.skip(',')) {
      literal.expect('}');
      break;
    }
  }
  if (!has_type || !has_order || !has_shape) reject("it lacks descr, fortran_order or shape");
  const bool empty = std::find(header.shape.begin(), header.shape.end(), 0) != header.shape.end();
  for (const int64_t extent : header.shape) {
    // An array with an extent of 0 is empty whatever the others are: they must not overflow the product.
    if (!empty && header.volume > kMaxElements / extent) reject("too many elements");
    header.volume = empty ? 0 : header.volume * extent;
  }
  return header;
}

// Between big-endian and little-endian.
void swap_bytes(char* data, int64_t items, int64_t item_bytes) {
  for (int64_t i = 0; i < items; ++i) std::reverse(data + i * item_bytes, data + (i + 1) * item_bytes);
}

}  // namespace ndd
