// SPDX-License-Identifier: Apache-2.0
// Tar archives: ustar, with the long names of GNU tar and pax.
#include <cstdint>
#include <cstring>
#include <string_view>

#include "ndd/error.h"
#include "ndd/python_interface.h"
#include "readers/file_window.h"
#include "readers/scan.h"

namespace ndd {
namespace {

constexpr int64_t kBlock = 512;
// Long names and pax headers have a few hundred bytes; a damaged size must not cause gigabytes to be read.
constexpr int64_t kMaxTextBytes = 1 << 20;

// Fields of text end at a zero byte or at their full length.
std::string_view text_of(const char* field, size_t bytes) { return {field, strnlen(field, bytes)}; }

// Parses an octal number, or one in base 256 if its first bit is set.
int64_t number_of(const char* field, size_t bytes) {
  const auto* digits = reinterpret_cast<const unsigned char*>(field);
  if (digits[0] & 0x80) {
    int64_t value = digits[0] & 0x3f;
    for (size_t k = 1; k < bytes; ++k) {
      // Before the shift by 8 bits could reach the sign.
      if (value >> 54) fail("a size that is out of range");
      value = value << 8 | digits[k];
    }
    return value;
  }
  int64_t value = 0;
  size_t k = 0;
  // Some writers pad numbers with blanks in front; a blank or a zero byte ends them.
  while (k < bytes && digits[k] == ' ') ++k;
  for (; k < bytes && digits[k] != ' ' && digits[k] != 0; ++k) {
    if (digits[k] < '0' || digits[k] > '7') fail("a number that is not octal");
    value = value * 8 + (digits[k] - '0');
  }
  return value;
}

// Adds up the bytes of a header, with blanks in the field of the checksum itself.
int64_t checksum_of(const char* header) {
  constexpr uint64_t kEven = 0x00ff00ff00ff00ff;
  uint64_t sums = 0;  // four of 16 bits each, to which 64 words add at most 2 * 255; 64 headers take 2.8 us, with a loop over bytes 6.6
  for (int64_t k = 0; k < kBlock; k += 8) {
    uint64_t word;
    std::memcpy(&word, header + k, sizeof word);
    sums += (word & kEven) + (word >> 8 & kEven);
  }
  int64_t sum = 8 * ' ';
  for (; sums; sums >>= 16) sum += static_cast<int64_t>(sums & 0xffff);
  for (int64_t k = 148; k < 156; ++k) sum -= static_cast<unsigned char>(header[k]);
  return sum;
}

bool checksum_fits(const char* header) { return checksum_of(header) == number_of(header + 148, 8); }

// Parses a number of so many octal digits, after which its field has blanks or zero bytes; -1 for other fields.
int64_t digits_of(const char* field, size_t digits, size_t bytes) {
  int64_t value = 0;
  for (size_t k = 0; k < digits; ++k) {
    if (field[k] < '0' || field[k] > '7') return -1;
    value = value * 8 + (field[k] - '0');
  }
  for (size_t k = digits; k < bytes; ++k) {
    if (field[k] != ' ' && field[k] != 0) return -1;
  }
  return value;
}

// Whether a header is that of a file with this name and size, in the form that nearly all have: numbers with all of their digits, and a short name.
bool is_plain_header_of(const char* header, std::string_view name, int64_t size) {
  if (name.empty() || name.size() > 100 || header[345] || text_of(header, 100) != name) return false;
  if (header[156] != '0' && header[156] != '\0' && header[156] != '7') return false;
  return digits_of(header + 124, 11, 12) == size && digits_of(header + 148, 6, 8) == checksum_of(header);
}

// Parses the records of a pax header: "length key=value\n". The length includes itself.
void parse_pax(std::string_view text, std::string& path, int64_t& size) {
  while (!text.empty()) {
    size_t length = 0, k = 0;
    for (; k < text.size() && text[k] >= '0' && text[k] <= '9' && length <= text.size(); ++k)
      length = length * 10 + static_cast<size_t>(text[k] - '0');
    if (k == 0 || k >= text.size() || text[k] != ' ' || length <= k + 1 || length > text.size() || text[length - 1] != '\n') {
      fail("a pax header that is damaged");
    }
    const std::string_view record = text.substr(k + 1, length - k - 2);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos) fail("a pax header that is damaged");
    const auto key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") path = value;
    if (key.substr(0, 10) == "GNU.sparse") fail("a sparse file, which is not supported");
    if (key == "size") {
      size = 0;
      for (const char digit : value) {
        if (digit < '0' || digit > '9' || size > (int64_t{1} << 58)) fail("a size that is out of range");
        size = size * 10 + (digit - '0');
      }
    }
    text.remove_prefix(length);
  }
}

}  // namespace

Scan scan_tar(const std::string& path) {
  FileWindow file(path);
  Scan scan;
  std::string long_name;
  int64_t long_size = -1, at = 0, entry = 0;  // size from a pax header; offsets of this header, and of the first one of this file
  try {
    while (at < file.size()) {
      const char* header = file.at(at, kBlock);
      if (!header) fail("the archive ends within a header");
      // Blocks of zeros end an archive.
      if (std::string_view(header, kBlock).find_first_not_of('\0') == std::string_view::npos) break;
      if (!checksum_fits(header)) fail("the checksum of a tar header is wrong");
      // The header of ustar: name (0, 100 bytes), size (124, 12), checksum (148, 8), type (156), magic (257), prefix of the name (345, 155).
      const char type = header[156];
      int64_t size = number_of(header + 124, 12);
      if (size < 0 || size > file.size()) fail("a file of ", size, " bytes, but the archive ends earlier");
      // 'L' (GNU) and 'x' (pax) describe the next entry; 'K', a long link, and 'g', global pax settings, do not matter.
      if (type == 'L' || type == 'x') {
        const char* text = size <= kMaxTextBytes ? file.at(at + kBlock, size) : nullptr;
        if (!text) fail("the archive ends within a long name");
        if (type == 'L') {
          long_name = text_of(text, static_cast<size_t>(size));
        } else {
          parse_pax({text, static_cast<size_t>(size)}, long_name, long_size);
        }
      } else if (type != 'K' && type != 'g') {
        if (type == 'S') fail("a sparse file, which is not supported");
        std::string name = std::move(long_name);
        if (name.empty()) {
          const bool ustar = std::memcmp(header + 257, "ustar\0", 6) == 0;
          if (ustar && header[345]) name.append(text_of(header + 345, 155)).append("/");
          name.append(text_of(header, 100));
        }
        if (long_size >= 0) size = long_size;
        long_name.clear();
        long_size = -1;
        // Regular files, also with the types of old archives (0) and of contiguous files (7). A name that ends with a slash is a directory.
        const bool has_data = type == '0' || type == '\0' || type == '7';
        if (has_data && (name.empty() || name.back() != '/')) {
          scan.names.push_back(std::move(name));
          scan.begins.push_back(at + kBlock);
          scan.lengths.push_back(size);
          if (size > file.size() - at - kBlock) break;  // reading it reports the error
        }
        if (!has_data && (type == '1' || type == '2')) size = 0;  // links
        entry = at + kBlock + (size + kBlock - 1) / kBlock * kBlock;
      }
      at += kBlock + (size + kBlock - 1) / kBlock * kBlock;
    }
  } catch (const std::exception& error) {
    if (scan.begins.empty()) throw;
    scan.damaged = entry;
    scan.reason = error.what();
  }
  return scan;
}

}  // namespace ndd

// Finds headers that differ from an index, or whose form needs a closer look: sets `others` to their samples and returns how many there are. The headers
// lie one after the other; sample k has one if lengths[k] is not 0. It belongs to file files[k], which has sizes[k] bytes according to the index, and whose
// name lies between name_offsets[files[k]] and the next offset in `names`.
NDD_EXPORT(keep, int64_t, ndd_find_other_headers,
           (const void* headers, const int64_t* lengths, const int64_t* files, const int64_t* sizes, int64_t n, const char* names,
            const int64_t* name_offsets, int64_t* others)) {
  int64_t count = 0;
  const auto* at = static_cast<const char*>(headers);
  for (int64_t k = 0; k < n; at += lengths[k++]) {
    if (lengths[k] == 0) continue;
    const int64_t first = name_offsets[files[k]], end = name_offsets[files[k] + 1];
    if (lengths[k] != ndd::kBlock || !ndd::is_plain_header_of(at, {names + first, static_cast<size_t>(end - first)}, sizes[k])) others[count++] = k;
  }
  return count;
}
