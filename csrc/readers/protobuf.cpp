// SPDX-License-Identifier: Apache-2.0
// Lengths and varints are checked against the end of the message before anything is read: a message is as hostile as the file.
#include "readers/protobuf.h"

#include <algorithm>

#include "ndd/error.h"

namespace ndd {
namespace {

constexpr int64_t kMaxVarint = 10;  // bytes
constexpr uint64_t kNumbers = uint64_t{1} << 29;  // of fields

}  // namespace

bool MessageFields::next() {
  if (empty()) return false;
  const uint64_t key = varint();
  number = key >> 3;
  wire = static_cast<int>(key & 7);
  if (number == 0 || number >= kNumbers) fail(damaged_, "field number ", number, " at byte ", rest_.begin);
  switch (wire) {
    case kVarint: scalar = varint(); break;
    case kFixed64: value = take(8); break;
    case kBytes: value = take(varint()); break;
    case kFixed32: value = take(4); break;
    // 3 and 4 were groups, which proto3 does not have.
    default: fail(damaged_, "wire type ", wire, " at byte ", rest_.begin);
  }
  return true;
}

uint64_t MessageFields::varint() {
  const auto bytes = record_.at(rest_.begin, std::min(kMaxVarint, rest_.length()));
  uint64_t result = 0;
  for (size_t k = 0; k < bytes.size(); ++k) {
    const auto byte = static_cast<unsigned char>(bytes[k]);
    result |= static_cast<uint64_t>(byte & 127) << (7 * k);  // of the tenth byte a single bit is left
    if (byte < 128) {
      rest_.begin += static_cast<int64_t>(k) + 1;
      return result;
    }
  }
  fail(damaged_, "the number at byte ", rest_.begin, " has no end");
}

// Compared without a sum: the length comes from the file.
ByteRange MessageFields::take(uint64_t bytes) {
  if (bytes > static_cast<uint64_t>(rest_.length())) {
    fail(damaged_, "field ", number, " at byte ", rest_.begin, " has ", bytes, " bytes, ", rest_.length(), " are left");
  }
  const ByteRange taken{rest_.begin, rest_.begin + static_cast<int64_t>(bytes)};
  rest_.begin = taken.end;
  return taken;
}

}  // namespace ndd
