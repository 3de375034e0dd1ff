// SPDX-License-Identifier: Apache-2.0
// The header of a part of a record in MXNet's RecordIO files.
#pragma once

#include <cstdint>

namespace ndd {

constexpr uint32_t kRecordIOMagic = 0xced7230a;
constexpr int64_t kRecordIOHeader = 8;

struct RecordIOPart {
  uint32_t kind;  // 0: a whole record; 1, 2, 3: the first, a middle, the last part of one
  int64_t length;
};

// Parses a header. `available`: bytes from the header to the end. Throws Error if they are not enough, or for a damaged header.
RecordIOPart recordio_part(const char* header, int64_t available);

}  // namespace ndd
