// SPDX-License-Identifier: Apache-2.0
// Formats the parts of a message, once for all callers of fail().
#include "ndd/error.h"

namespace ndd::detail {

// std::to_string() prints six decimals of real numbers.
void Part::append_to(std::string& text) const {
  switch (kind_) {
    case kText: text += text_; break;
    case kLetter: text += letter_; break;
    case kSigned: text += std::to_string(signed_); break;
    case kUnsigned: text += std::to_string(unsigned_); break;
    case kReal: text += std::to_string(real_); break;
  }
}

void fail_with(Error::Kind kind, std::initializer_list<Part> parts) {
  std::string text;
  for (const Part& part : parts) part.append_to(text);
  throw Error(kind, text);
}

}  // namespace ndd::detail
