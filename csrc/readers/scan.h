// SPDX-License-Identifier: Apache-2.0
// The positions of records in a container, found by reading its headers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ndd {

struct Scan {
  std::vector<int64_t> begins, lengths;
  std::vector<std::string> names;  // one for each record, in containers with names
  int64_t damaged = -1;            // where the first damaged header lies, and its reason
  std::string reason;
  std::string error;  // set if no record can be read
};

// Returns the masked CRC-32C of TFRecords.
uint32_t masked_crc32c(const char* data, int64_t bytes);

// `checked`: a wrong checksum is an error, except for zero, which means that none was written.
Scan scan_tfrecords(const std::string& path, bool checked = true);
Scan scan_recordio(const std::string& path);
Scan scan_tar(const std::string& path);
Scan scan_lmdb(const std::string& path);

}  // namespace ndd
