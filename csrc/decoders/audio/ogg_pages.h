// SPDX-License-Identifier: Apache-2.0
// The pages of an Ogg file, and the links of a chained one: several recordings one after the other, as `cat a.ogg b.ogg` and recorders of internet radio
// write them.
#pragma once

#include "decoders/audio/sound_bytes.h"
#include "decoders/encoded_image.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ndd::ogg {

inline constexpr size_t kPageHeader = 27;
inline constexpr size_t kMaxPage = kPageHeader + 255 + 255 * 255;  // bytes: 255 segments of up to 255
// Flags of a page: it begins with the rest of a packet; it is the first page of its stream.
inline constexpr int kContinued = 1, kFirst = 2;

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
  // The pages in the bytes [begin, min(end, bytes.size())).
  explicit Pages(SoundBytes& bytes, size_t begin = 0, size_t end = SIZE_MAX) : bytes_(bytes), at_(begin), end_(std::min(end, bytes.size())) {}

  // Finds the next page with a correct checksum, whose bytes are there until the next one is looked for. Returns false at the end. Looks for the letter
  // that a page begins with, and then at the rest of its signature; bytes between pages are passed over. Throws Error for too many damaged pages.
  bool find_next(Page& page);

  // Where the page that was found last ends.
  size_t at() const { return at_; }

 private:
  size_t left() const { return end_ - at_; }
  const uint8_t* load(size_t count) { return bytes_.need(at_, at_ + count); }
  bool is_page(Page& page);

  SoundBytes& bytes_;
  size_t at_, end_;
  int damaged_ = 0;
};

// Returns where the links of a chained Ogg file begin, and the end of the last one; nothing for other files. Links at the end without sound are left out:
// a recording was stopped within the headers of the next title. Throws Error for too many links.
//
// A file is chained if its last page belongs to a different stream than its first page, as in libvorbisfile: RFC 3533 requires a unique number for each
// stream. Only such a file is read as a whole.
std::vector<size_t> find_links(SoundBytes& bytes);

}  // namespace ndd::ogg
