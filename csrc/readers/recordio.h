// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ndd {

constexpr uint32_t kRecordIOMagic = 0xced7230a;
constexpr int64_t kRecordIOHeader = 8;

struct RecordIOPart {
  uint32_t kind;  // 0: a whole record; 1, 2, 3: its first part, one in the middle, the last
  int64_t length;
};

// Error says what is wrong. `available`: bytes from the header on.
RecordIOPart recordio_part(const char* header, int64_t available);

}  // namespace ndd
