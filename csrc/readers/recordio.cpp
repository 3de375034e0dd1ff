// SPDX-License-Identifier: Apache-2.0
// MXNet's RecordIO: magic number (4 bytes), kind and length (4), data, padding to a multiple of 4. Data that contain the magic number are
// split there into parts, and the number itself is left out.
#include <algorithm>
#include <cstring>

#include "ndd/error.h"
#include "readers/file_window.h"
#include "readers/recordio.h"
#include "readers/scan.h"

namespace ndd {

RecordIOPart recordio_part(const char* header, int64_t available) {
  if (available < kRecordIOHeader) fail("the record ends within its header");
  uint32_t magic, word;
  std::memcpy(&magic, header, 4);
  std::memcpy(&word, header + 4, 4);
  if (magic != kRecordIOMagic) fail("the magic number of a record is wrong");
  // The upper three bits are the kind, the rest is the length.
  const RecordIOPart part{word >> 29, static_cast<int64_t>(word & ((1u << 29) - 1))};
  if (part.kind > 3) fail("a record of unknown kind ", part.kind);
  if (part.length > available - kRecordIOHeader) fail("the record has ", part.length, " bytes, but the file ends earlier");
  return part;
}

Scan scan_recordio(const std::string& path) {
  FileWindow file(path);
  Scan scan;
  int64_t first = 0;
  bool open = false;  // within a record of several parts
  for (int64_t at = 0; at < file.size();) {
    const int64_t available = file.size() - at;
    try {
      const char* header = file.at(at, std::min(kRecordIOHeader, available));
      if (!header) fail("the file became shorter while it was read");
      const RecordIOPart part = recordio_part(header, available);
      if (open != (part.kind == 2 || part.kind == 3)) fail("the parts of a record are not in order");
      if (!open) first = at;
      open = part.kind == 1 || part.kind == 2;
      // The last record of a file may lack its padding.
      at = std::min(at + kRecordIOHeader + (part.length + 3) / 4 * 4, file.size());
      if (!open) {
        scan.begins.push_back(first);
        scan.lengths.push_back(at - first);
      } else if (at == file.size()) {
        fail("the last part of a record is missing");
      }
    } catch (const std::exception& error) {
      // The records before the damage can still be read.
      if (scan.begins.empty()) throw;
      // A record that is damaged in a later part is damaged from its first one on.
      scan.damaged = open ? first : at;
      scan.reason = error.what();
      break;
    }
  }
  return scan;
}

}  // namespace ndd
