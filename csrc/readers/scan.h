// SPDX-License-Identifier: Apache-2.0
// What lies where in a container, found by looking at its headers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ndd {

struct Scan {
  std::vector<int64_t> begins, lengths;
  std::vector<std::string> names;  // as many, for containers that have names
  int64_t damaged = -1;            // where the headers stop making sense, and why
  std::string reason;
  std::string error;  // nothing can be read
};

// A 32-bit checksum (Castagnoli) as TFRecords have it.
uint32_t masked_crc32c(const char* data, int64_t bytes);

// `checked`: a wrong checksum is an error; one that was never written, zero, is none.
Scan scan_tfrecords(const std::string& path, bool checked = true);
Scan scan_recordio(const std::string& path);
Scan scan_tar(const std::string& path);
Scan scan_lmdb(const std::string& path);

}  // namespace ndd
