// SPDX-License-Identifier: Apache-2.0
// One entry point for all containers. Each scanner has a file of its own and returns offsets, lengths and, where there are any, names.
#include "readers/scan.h"

#include <algorithm>
#include <exception>
#include <string>

#include "decoders/file_kind.h"
#include "ndd/python_interface.h"
#include "readers/open_files.h"

using ndd::Scan;

namespace {

// By the number of ndd_scan.
const char* const kContainers[] = {"a TFRecord file", "a RecordIO file", "a tar archive", "an LMDB database", "a TFRecord file"};

// Returns the kind of a file by its beginning; empty if it is unknown or cannot be read, in which case the error of the scan remains. Pipes
// are not opened.
std::string kind_of(const char* path) {
  try {
    char begin[ndd::kKindBytes];
    const int64_t size = ndd::OpenFile(path).read_some(begin, 0, sizeof begin);
    return ndd::file_kind(reinterpret_cast<const uint8_t*>(begin), static_cast<size_t>(size));
  } catch (const std::exception&) {
    return {};
  }
}

// Replaces the error of a scan that found nothing if the file is of another kind.
Scan* name_other_kind(Scan* scan, int container, const char* path) {
  if ((scan->error.empty() && scan->damaged < 0) || !scan->begins.empty()) return scan;
  const std::string kind = kind_of(path), expected = kContainers[container];
  if (!kind.empty() && kind != expected) (scan->error.empty() ? scan->reason : scan->error) = "it is " + kind + ", not " + expected;
  return scan;
}

}  // namespace

// kind: 0 TFRecord, 1 RecordIO, 2 tar, 3 LMDB, 4 TFRecord without checking checksums.
NDD_EXPORT(release, void*, ndd_scan, (int kind, const char* path)) {
  try {
    switch (kind) {
      case 1: return name_other_kind(new Scan(ndd::scan_recordio(path)), kind, path);
      case 2: return name_other_kind(new Scan(ndd::scan_tar(path)), kind, path);
      case 3: return name_other_kind(new Scan(ndd::scan_lmdb(path)), kind, path);
      default: return name_other_kind(new Scan(ndd::scan_tfrecords(path, kind != 4)), kind, path);
    }
  } catch (const std::exception& error) {
    auto* scan = new Scan;
    scan->error = error.what();
    return name_other_kind(scan, kind, path);
  }
}

// The fields of a Scan.
NDD_EXPORT(keep, int64_t, ndd_scan_size, (void* scan)) { return static_cast<int64_t>(static_cast<Scan*>(scan)->begins.size()); }
NDD_EXPORT(keep, const char*, ndd_scan_error, (void* scan)) { return static_cast<Scan*>(scan)->error.c_str(); }
NDD_EXPORT(keep, const char*, ndd_scan_reason, (void* scan)) { return static_cast<Scan*>(scan)->reason.c_str(); }
NDD_EXPORT(keep, int64_t, ndd_scan_damaged, (void* scan)) { return static_cast<Scan*>(scan)->damaged; }

NDD_EXPORT(keep, void, ndd_scan_ranges, (void* scan, int64_t* begins, int64_t* lengths)) {
  const auto& s = *static_cast<Scan*>(scan);
  std::copy(s.begins.begin(), s.begins.end(), begins);
  std::copy(s.lengths.begin(), s.lengths.end(), lengths);
}

// Writes the names one after the other; without `out`, writes only the offset of each and of the end.
NDD_EXPORT(keep, void, ndd_scan_names, (void* scan, int64_t* offsets, char* out)) {
  const auto& names = static_cast<Scan*>(scan)->names;
  int64_t at = 0;
  for (size_t k = 0; k < names.size(); ++k) {
    if (out) {
      std::copy(names[k].begin(), names[k].end(), out + at);
    } else {
      offsets[k] = at;
    }
    at += static_cast<int64_t>(names[k].size());
  }
  if (!out) offsets[names.size()] = at;
}

NDD_EXPORT(keep, void, ndd_scan_release, (void* scan)) { delete static_cast<Scan*>(scan); }
