// SPDX-License-Identifier: Apache-2.0
// The signature decides which parser reads a file; each format has a file of its own beside this one. A header without a codec belongs to no known
// format.
#include "decoders/headers/file_header.h"

#include "ndd/error.h"

#include <cctype>
#include <cstring>

namespace ndd {

void reject_header(const std::string& what) { fail("the file is damaged (", what, ")"); }

FileHeader read_file_header(const EncodedImage& file, bool complete) {
  const auto begins = [&](const char* magic, size_t length) { return file.size >= length && !std::memcmp(file.data, magic, length); };
  // By content and never by name: files have wrong extensions.
  if (begins("\xff\xd8", 2)) return read_jpeg_header(file, complete);
  if (begins("\x89PNG\r\n\x1a\n", 8)) return read_png_header(file, complete);
  if (begins("II\x2a\0", 4) || begins("MM\0\x2a", 4) || begins("II\x2b\0", 4) || begins("MM\0\x2b", 4)) return read_tiff_header(file);
  if (begins("BM", 2)) return read_bmp_header(file);
  if (file.size >= 3 && file.data[0] == 'P' && file.data[1] >= '1' && file.data[1] <= '6' && std::isspace(file.data[2])) return read_pnm_header(file);
  if (begins("RIFF", 4) && file.size >= 12 && !std::memcmp(file.data + 8, "WEBP", 4)) return read_webp_header(file, complete);
  return {};
}

// Only for headers with `needs_rewriting`, which BMP never sets.
std::vector<uint8_t> rewrite_file(const EncodedImage& file, const FileHeader& header) {
  const std::string codec = header.codec;
  if (codec == "jpeg") return rewrite_jpeg(file);
  if (codec == "png") return rewrite_png(file);
  if (codec == "tiff") return rewrite_tiff(file, header);
  if (codec == "webp") return rewrite_webp(file);
  return rewrite_pnm(file, header);
}

}  // namespace ndd
