// SPDX-License-Identifier: Apache-2.0
// Puts packets together across Ogg pages.
#include "decoders/audio/vorbis_headers.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "decoders/audio/ogg_pages.h"
#include "decoders/encoded_image.h"
#include "ndd/error.h"

namespace ndd {
namespace {

using ogg::kContinued;
using ogg::kFirst;
using ogg::kMaxPage;
using ogg::kPageHeader;
using ogg::Page;
using ogg::Pages;

// The third header, with the codebooks, has a few kB; a comment may hold a picture.
constexpr size_t kMaxPacketBytes = size_t{64} << 20;

[[noreturn]] void reject(const char* what) { fail("the headers of the Ogg Vorbis file are damaged: ", what); }

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

void check_vorbis_headers(SoundBytes& bytes, size_t begin, size_t end) {
  // A header with the lengths of its segments, and the beginning of the first packet.
  const uint8_t* data = bytes.need(begin, begin + kPageHeader + 255 + 8);
  const size_t size = std::min(end, bytes.size()) - begin;
  // Other files are not for this check.
  if (size < kPageHeader + 8 || memcmp(data, "OggS", 4) != 0) return;
  const size_t table = kPageHeader + data[26];
  if (size < table + 7 || memcmp(data + table, "\x01vorbis", 7) != 0) return;
  Pages pages(bytes, begin, end);
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

int64_t find_last_vorbis_page(SoundBytes& bytes, size_t begin, size_t end, int64_t frames) {
  const size_t size = std::min(end, bytes.size()) - begin;
  // Pages have some 4 kB, and 64 kB at most.
  for (size_t searched = size_t{16} << 10;; searched *= 4) {
    const bool is_all = searched >= size;
    Pages pages(bytes, begin + (is_all ? 0 : size - searched), end);
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
