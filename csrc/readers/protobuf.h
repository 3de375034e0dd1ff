// SPDX-License-Identifier: Apache-2.0
// The wire format of Protocol Buffers, without schemas.
#pragma once

#include <cstdint>

#include "readers/record_request.h"

namespace ndd {

// Bytes of a record.
struct ByteRange {
  int64_t begin = 0, end = 0;
  int64_t length() const { return end - begin; }
};

// Iterates over the fields of a message. Nothing outside the range is read.
// A field is a key (number << 3 | wire type) and a value.
class MessageFields {
 public:
  enum Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  // `damaged`: how the reason for a damaged message begins.
  MessageFields(RecordBytes& record, ByteRange range, const char* damaged = "") : record_(record), rest_(range), damaged_(damaged) {}

  bool empty() const { return rest_.begin == rest_.end; }
  // Goes to the next field; false at the end. Throws Error for a damaged message, as varint() does.
  bool next();
  // Returns the number at the current place, for fields that consist of packed numbers, and advances past it.
  uint64_t varint();

  // The current field, valid after next(): `scalar` for varints, `value` for the other wire types.
  uint64_t number = 0, scalar = 0;
  int wire = 0;
  ByteRange value;

 private:
  ByteRange take(uint64_t bytes);

  RecordBytes& record_;
  ByteRange rest_;
  const char* const damaged_;
};

// Decodes a varint as int32: negative numbers are stored as 64-bit two's complement.
inline int32_t int32_of(uint64_t scalar) { return static_cast<int32_t>(static_cast<uint32_t>(scalar)); }

}  // namespace ndd
