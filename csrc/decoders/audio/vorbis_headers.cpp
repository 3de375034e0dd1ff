// SPDX-License-Identifier: Apache-2.0
// A small reader of Ogg pages, which puts packets together across them.
#include "decoders/audio/vorbis_headers.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "decoders/encoded_image.h"
#include "ndd/error.h"

namespace ndd {
namespace {

constexpr size_t kPageHeader = 27;
constexpr size_t kMaxPage = kPageHeader + 255 + 255 * 255;  // bytes: 255 segments of up to 255
// Flags of a page: it begins with the rest of a packet; it is the first page of its stream.
constexpr int kContinued = 1, kFirst = 2;
// Pages with a wrong checksum are skipped, as by libogg, but only a limited number: computing a checksum reads up to 65 kB, and a hostile file could
// begin a page at every fifth byte.
constexpr int kMaxDamagedPages = 64;
// The third header, with the codebooks, has a few kB; a comment may hold a picture.
constexpr size_t kMaxPacketBytes = size_t{64} << 20;

[[noreturn]] void reject(const char* what) { fail("the headers of the Ogg Vorbis file are damaged: ", what); }

// The checksum of Ogg pages (RFC 3533): CRC-32 with polynomial 0x04c11db7, neither reflected nor inverted.
uint32_t crc(uint32_t value, const uint8_t* bytes, size_t size) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> entries{};
    for (uint32_t i = 0; i < 256; ++i) {
      entries[i] = i << 24;
      for (int bit = 0; bit < 8; ++bit) entries[i] = (entries[i] << 1) ^ (entries[i] & 0x80000000u ? 0x04c11db7u : 0u);
    }
    return entries;
  }();
  for (size_t i = 0; i < size; ++i) value = (value << 8) ^ table[(value >> 24) ^ bytes[i]];
  return value;
}

// A page of Ogg (RFC 3533, 6): "OggS", version, flags, position (8 bytes), stream, number and checksum (4 each), number of segments, their lengths,
// their contents. Offsets below are from its beginning.
struct Page {
  const uint8_t* begin = nullptr;
  size_t header = 0, size = 0;  // bytes: the header with its segment table; the whole page
  int flags() const { return begin[5]; }
  // The number of frames up to the end of the last packet that ends on the page; -1 if none does.
  int64_t position() const { return static_cast<int64_t>(uint64_t{little32(begin + 10)} << 32 | little32(begin + 6)); }
  uint32_t stream() const { return little32(begin + 14); }
  uint32_t number() const { return little32(begin + 18); }
};

class Pages {
 public:
  // The pages from a byte on.
  explicit Pages(SoundBytes& bytes, size_t begin = 0) : bytes_(bytes), at_(begin) {}

  // Finds the next page with a correct checksum, whose bytes are there until the next one is looked for. Returns false at the end of the file.
  // Looks for the letter that a page begins with, and then at the rest of its signature; bytes between pages are passed over.
  bool find_next(Page& page) {
    while (left() >= kPageHeader) {
      // A header with the lengths of its segments: as a rule the next page begins where the last one ended.
      if (*load(kPageHeader + 255) != 'O') {
        const size_t searched = std::min(left(), kMaxPage);
        const uint8_t* data = load(searched);
        const auto* found = static_cast<const uint8_t*>(memchr(data, 'O', searched));
        at_ += found ? static_cast<size_t>(found - data) : searched;
        continue;
      }
      if (is_page(page)) {
        at_ += page.size;
        return true;
      }
      ++at_;
    }
    return false;
  }

 private:
  size_t left() const { return bytes_.size() - at_; }
  const uint8_t* load(size_t count) { return bytes_.need(at_, at_ + count); }

  bool is_page(Page& page) {
    const uint8_t* data = load(kPageHeader + 255);
    if (memcmp(data, "OggS", 4) != 0 || data[4] != 0) return false;
    // Byte 26 is the number of segments, whose lengths follow in one byte each.
    page = {nullptr, kPageHeader + data[26], 0};
    if (left() < page.header) return false;
    page.size = page.header;
    for (size_t k = kPageHeader; k < page.header; ++k) page.size += data[k];
    if (left() < page.size) return false;
    page.begin = data = load(page.size);
    // The checksum is computed with zeros in its own place.
    static const uint8_t zeros[4] = {};
    const uint32_t sum = crc(crc(crc(0, data, 22), zeros, 4), data + 26, page.size - 26);
    if (sum == little32(data + 22)) return true;
    if (++damaged_ > kMaxDamagedPages) reject("their checksums are wrong");
    return false;
  }

  SoundBytes& bytes_;
  size_t at_;
  int damaged_ = 0;
};

// A header packet, put together from the segments of one or more pages.
using Packet = std::vector<uint8_t>;

bool is_header(const Packet& packet, uint8_t kind) { return packet.size() >= 7 && packet[0] == kind && memcmp(packet.data() + 1, "vorbis", 6) == 0; }

// Vorbis I, 4.2.2: version, channels, rate, three bit rates, the exponents of the two block sizes, and a set bit.
void check_identification(const Packet& packet) {
  if (packet.size() < 30 || little32(&packet[7]) != 0) reject("they are of another version");
  const int small = packet[28] & 15, large = packet[28] >> 4;
  const bool sane =
      packet[11] > 0 && static_cast<int32_t>(little32(&packet[12])) > 0 && small >= 6 && small <= large && large <= 13 && (packet[29] & 1) != 0;
  if (!sane) reject("channels, rate or block sizes cannot be");
}

// Vorbis I, 5.2.1: the vendor, the number of comments, each with its length in 4 bytes, and a set bit.
void check_comments(const Packet& packet) {
  size_t at = 7;
  const auto skip = [&] {
    if (packet.size() - at < 4 || little32(&packet[at]) > packet.size() - at - 4) reject("the comments are longer than they can be");
    at += 4 + little32(&packet[at]);
  };
  skip();
  if (packet.size() - at < 4) reject("the comments end early");
  const uint32_t count = little32(&packet[at]);
  at += 4;
  if (count > (packet.size() - at) / 4) reject("there are more comments than there can be");
  for (uint32_t k = 0; k < count; ++k) skip();
  if (at >= packet.size() || (packet[at] & 1) == 0) reject("the comments end early");
}

}  // namespace

void check_vorbis_headers(SoundBytes& bytes) {
  // A header with the lengths of its segments, and the beginning of the first packet.
  const uint8_t* data = bytes.need(0, kPageHeader + 255 + 8);
  const size_t size = bytes.size();
  // Other files are not for this check.
  if (size < kPageHeader + 8 || memcmp(data, "OggS", 4) != 0) return;
  const size_t table = kPageHeader + data[26];
  if (size < table + 7 || memcmp(data + table, "\x01vorbis", 7) != 0) return;
  Pages pages(bytes);
  Page page;
  Packet packet;
  uint32_t stream = 0, number = 0;
  int packets = 0;
  bool open = false;  // the packet continues on the next page
  for (int count = 0; packets < 3; ++count) {
    if (!pages.find_next(page)) reject("they are not complete");
    if (count == 0) {
      if (!(page.flags() & kFirst)) reject("the first page is missing");
      stream = page.stream();
    } else if (page.stream() != stream) {
      return;  // several streams, among which libsndfile selects one
    } else if (page.number() != number + 1 || open != ((page.flags() & kContinued) != 0)) {
      reject("a page is missing");
    }
    number = page.number();
    const uint8_t* content = page.begin + page.header;
    for (size_t k = kPageHeader; k < page.header && packets < 3; ++k) {
      const size_t length = page.begin[k];
      if (packet.size() + length > kMaxPacketBytes) reject("they are too long");
      packet.insert(packet.end(), content, content + length);
      content += length;
      open = length == 255;  // a packet ends with a segment of fewer bytes
      if (open) continue;
      // The three headers have the types 1, 3 and 5.
      if (!is_header(packet, static_cast<uint8_t>(1 + 2 * packets))) reject("a header is missing");
      if (packets == 0) check_identification(packet);
      if (packets == 1) check_comments(packet);
      ++packets;
      packet.clear();
    }
  }
}

int64_t find_last_vorbis_page(SoundBytes& bytes, int64_t frames) {
  // Pages have some 4 kB, and 64 kB at most.
  for (size_t searched = size_t{16} << 10;; searched *= 4) {
    const bool is_all = searched >= bytes.size();
    Pages pages(bytes, is_all ? 0 : bytes.size() - searched);
    Page page;
    int64_t last = -1, before = -1;
    while (pages.find_next(page)) {
      if (const int64_t position = page.position(); position >= 0 && position != last) before = std::exchange(last, position);
    }
    // With several streams, or other data after it, the end is another.
    if (last >= 0 && last != frames) return frames;
    if (last >= 0 && before >= 0) return std::min(before, frames);
    if (is_all || searched > 4 * kMaxPage) return last == frames ? 0 : frames;
  }
}

}  // namespace ndd
