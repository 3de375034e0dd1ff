// SPDX-License-Identifier: Apache-2.0
#include "decoders/audio/ogg_pages.h"

#include "ndd/error.h"

#include <array>
#include <cstring>

namespace ndd::ogg {
namespace {

// Pages with a wrong checksum are skipped, as by libogg, but only a limited number: computing a checksum reads up to 65 kB, and a hostile file could
// begin a page at every fifth byte.
constexpr int kMaxDamagedPages = 64;
// A day of music has some 500 titles. Opening a link takes up to a millisecond.
constexpr size_t kMaxLinks = 4096;

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

// Returns the number of the stream of the last page; that of `first` if there is none near the end.
uint32_t last_stream(SoundBytes& bytes, uint32_t first) {
  for (size_t searched = size_t{8} << 10; searched <= 4 * kMaxPage; searched *= 4) {
    Pages pages(bytes, bytes.size() - std::min(searched, bytes.size()));
    Page page;
    bool found = false;
    uint32_t last = first;
    while (pages.find_next(page)) {
      found = true;
      last = page.stream();
    }
    if (found) return last;
  }
  return first;
}

}  // namespace

bool Pages::find_next(Page& page) {
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

bool Pages::is_page(Page& page) {
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
  if (++damaged_ > kMaxDamagedPages) fail("the pages of the Ogg file are damaged: their checksums are wrong");
  return false;
}

std::vector<size_t> find_links(SoundBytes& bytes) {
  const uint8_t* data = bytes.need(0, kPageHeader);
  if (bytes.size() < kPageHeader || std::memcmp(data, "OggS", 4) != 0) return {};
  const uint32_t first = little32(data + 14);
  if (last_stream(bytes, first) == first) return {};
  bytes.expect(0, bytes.size());
  std::vector<size_t> places;  // where links begin
  size_t end = 0;              // of the last page with sound
  Pages pages(bytes);
  Page page;
  // A link begins with the first pages of its streams, such as a picture's beside the sound's.
  for (bool begins = false; pages.find_next(page);) {
    const bool is_first = (page.flags() & kFirst) != 0;
    if (is_first && !begins) {
      if (places.size() == kMaxLinks) fail("the Ogg file is a chain of more than ", kMaxLinks, " recordings; split it");
      places.push_back(pages.at() - page.size);
    }
    begins = is_first;
    if (page.position() > 0) end = pages.at();
  }
  while (!places.empty() && places.back() >= end) places.pop_back();
  if (places.size() < 2) return {};
  places.front() = 0;
  places.push_back(end);
  return places;
}

}  // namespace ndd::ogg
