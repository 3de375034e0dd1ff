// SPDX-License-Identifier: Apache-2.0
// The views built here replace the beginning of a file by a copy with the counted length; the rest stays in the caller's memory or file.
#include "decoders/audio/audio_lengths.h"

#include "decoders/encoded_image.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace ndd {
namespace {

constexpr size_t kMaxSearch = size_t{1} << 16;  // bytes in which the first frame must begin; no frame is longer
constexpr int kMinFrames = 3;                   // consecutive frames that make a stream: two sync bytes alone occur in any data
constexpr uint32_t kUnknown = 0xffffffffu;      // a length that libsndfile takes to be "up to the end"

bool has(SoundBytes& bytes, size_t at, const char* text) {
  const size_t length = std::strlen(text);
  if (at + length > bytes.size()) return false;
  return std::memcmp(bytes.need(at, at + length), text, length) == 0;
}

// Returns a view in which the first `end` bytes are copied and a number is written over those at `at`.
AudioView replace_number(SoundBytes& bytes, size_t end, size_t at, uint64_t number, int digits, bool little) {
  const uint8_t* data = bytes.need(0, end);
  AudioView view{{data, data + end}, end};
  for (int k = 0; k < digits; ++k) view.beginning[at + k] = static_cast<uint8_t>(number >> 8 * (little ? k : digits - 1 - k));
  return view;
}

AudioView wav_with_length(SoundBytes& bytes) {
  const size_t size = bytes.size();
  // A writer that was interrupted leaves the length of the RIFF chunk at zero or at the size of its header. In a complete file an empty data chunk is
  // legitimate.
  const uint32_t stated = little32(bytes.need(4, 8));
  if (stated > 36 && stated != kUnknown) return {};
  // Chunks of RIFF: a name, a length of 4 bytes, the content padded to even.
  for (size_t at = 12; at + 8 <= size;) {
    const uint32_t length = little32(bytes.need(at + 4, at + 8));
    if (has(bytes, at, "data")) {
      if (length != 0 || at + 8 == size) return {};
      return replace_number(bytes, at + 8, at + 4, kUnknown, 4, true);
    }
    at += 8 + size_t{length} + length % 2;
  }
  return {};
}

// Chunks of CAF (Apple Core Audio Format): a name, a big-endian length of 8 bytes, the content. The data chunk may have the length -1, and then
// goes up to the end of the file.
AudioView caf_with_length(SoundBytes& bytes) {
  const size_t size = bytes.size();
  for (size_t at = 8; at + 12 <= size;) {
    const uint8_t* data = bytes.need(at + 4, at + 12);
    uint64_t length = 0;
    for (int k = 0; k < 8; ++k) length = length << 8 | data[k];
    if (has(bytes, at, "data")) return length == ~uint64_t{0} ? replace_number(bytes, at + 12, at + 4, size - at - 12, 8, false) : AudioView{};
    // Also keeps the sum below from overflowing.
    if (length > size) return {};
    at += 12 + static_cast<size_t>(length);
  }
  return {};
}

// The header of a frame of MPEG audio (ISO/IEC 11172-3, 2.4.2.3; 13818-3 for version 2).
struct Frame {
  int version = 0, layer = 0;  // 1 or 2 (2.5 counts as 2); 1 to 3
  int rate = 0;                // Hz
  int samples = 0;             // per channel
  bool is_mono = false;
  size_t size = 0;
  bool same_stream(const Frame& other) const { return version == other.version && layer == other.layer && rate == other.rate; }
};

// Hz of version 1, and kbit/s, by the codes in the header.
constexpr int kRates[3] = {44100, 48000, 32000};
constexpr int kBitrates[5][15] = {
    {0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448},  // version 1, layer 1
    {0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384},     // layer 2
    {0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320},      // layer 3
    {0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256},     // version 2, layer 1
    {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},          // layers 2 and 3
};

// The header has 4 bytes: 11 bits of sync, then version, layer, a flag of protection, bit rate, rate, padding, and channel mode among others.
std::optional<Frame> frame_at(SoundBytes& bytes, size_t at) {
  if (bytes.size() < 4 || at > bytes.size() - 4) return {};
  const uint8_t* data = bytes.need(at, at + 4);
  if (data[0] != 0xff || (data[1] & 0xe0) != 0xe0) return {};
  const int version = data[1] >> 3 & 3, layer = 4 - (data[1] >> 1 & 3);  // version 0: 2.5, 2: 2, 3: 1
  const int bitrate = data[2] >> 4, rate = data[2] >> 2 & 3, padding = data[2] >> 1 & 1;
  // Reserved values, and bit rate 0 ("free"), whose frame size follows only from the next frame.
  if (version == 1 || layer == 4 || bitrate == 0 || bitrate == 15 || rate == 3) return {};
  Frame frame;
  frame.version = version == 3 ? 1 : 2;
  frame.layer = layer;
  // Version 2 halves the rates of version 1, and 2.5 halves them again.
  frame.rate = kRates[rate] >> (version == 3 ? 0 : version == 2 ? 1 : 2);
  // 12 x 32 subband samples in layer 1, 36 x 32 in the others, half of it in layer 3 of version 2.
  frame.samples = layer == 1 ? 384 : layer == 3 && frame.version == 2 ? 576 : 1152;
  frame.is_mono = data[3] >> 6 == 3;
  const int bits = 1000 * kBitrates[frame.version == 1 ? layer - 1 : layer == 1 ? 3 : 4][bitrate];
  // Layer 1 counts slots of 4 bytes, the others bytes; a slot of padding keeps the average rate.
  if (layer == 1) frame.size = static_cast<size_t>(12 * bits / frame.rate + padding) * 4;
  else frame.size = static_cast<size_t>((layer == 3 && frame.version == 2 ? 72 : 144) * bits / frame.rate + padding);
  return frame;
}

// Whether kMinFrames frames of one stream follow each other, or at least two up to the end of the file.
bool frames_begin(SoundBytes& bytes, size_t at) {
  const auto first = frame_at(bytes, at);
  if (!first) return false;
  for (int k = 0; k < kMinFrames; ++k) {
    const auto frame = frame_at(bytes, at);
    if (!frame || !frame->same_stream(*first)) return false;
    at += frame->size;
    if (at >= bytes.size()) return k > 0;
  }
  return true;
}

// Whether the first frame holds the length of the stream instead of sound: a Xing, Info or VBRI header, which libsndfile reads.
bool has_length(SoundBytes& bytes, size_t at) {
  const Frame frame = *frame_at(bytes, at);
  if (frame.layer != 3) return false;
  // Bytes of side information, after which the header lies: version 1 has two granules, version 2 one.
  const size_t side = frame.version == 1 ? (frame.is_mono ? 17 : 32) : (frame.is_mono ? 9 : 17);
  for (const size_t place : {at + 4 + side, at + 6 + side}) {  // the latter after a checksum
    if (has(bytes, place, "Xing") || has(bytes, place, "Info")) return true;
  }
  return has(bytes, at + 36, "VBRI");
}

// Returns where the first byte 0xff from `at` on is; the size if there is none.
size_t find_sync(SoundBytes& bytes, size_t at) {
  for (; at < bytes.size(); at += std::min(bytes.size() - at, kMaxSearch)) {
    const size_t searched = std::min(bytes.size() - at, kMaxSearch);
    const uint8_t* data = bytes.need(at, at + searched);
    if (const void* found = std::memchr(data, 0xff, searched)) return at + static_cast<size_t>(static_cast<const uint8_t*>(found) - data);
  }
  return at;
}

// Returns where frames of the stream of `first` begin again from `at` on; the size if they do not.
size_t find_frames(SoundBytes& bytes, size_t at, const Frame& first) {
  for (; (at = find_sync(bytes, at)) < bytes.size(); ++at) {
    if (frames_begin(bytes, at) && frame_at(bytes, at)->same_stream(first)) return at;
  }
  return at;
}

// Counts the samples of a stream from its frame headers, without decoding. They are everywhere in the file. Other data, such as tags of several formats,
// may lie behind the frames or between them: libmpg123 gives up within it and loses what it decoded last, so the view joins the frames.
AudioView join_frames(SoundBytes& bytes, size_t begin) {
  const size_t size = bytes.size();
  bytes.expect(begin, size);
  const Frame first = *frame_at(bytes, begin);
  AudioView view{{}, begin, SIZE_MAX, true, 0};
  for (size_t at = begin; at < size;) {
    const auto frame = frame_at(bytes, at);
    if (frame && frame->same_stream(first)) {
      if (at + frame->size > size) break;  // the last frame is truncated
      view.frames += frame->samples;
      at += frame->size;
      continue;
    }
    const size_t next = find_frames(bytes, at + 1, first);
    if (next == size) break;
    const size_t joined = view.beginning.size(), count = at - view.replaced;
    view.beginning.resize(joined + count);
    if (!bytes.copy(view.replaced, at, view.beginning.data() + joined)) bytes.check();
    view.replaced = at = next;
  }
  return view;
}

}  // namespace

AudioView view_with_length(SoundBytes& bytes) {
  const size_t size = bytes.size();
  if (size < 64) return {};
  if (has(bytes, 0, "RIFF") && has(bytes, 8, "WAVE")) return wav_with_length(bytes);
  if (has(bytes, 0, "caff")) return caf_with_length(bytes);
  // AU: a length of zero is treated like the documented 0xffffffff. The header has 24 bytes.
  const uint8_t nothing[4] = {};
  if (has(bytes, 0, ".snd") && std::memcmp(bytes.need(8, 12), nothing, 4) == 0) return replace_number(bytes, 24, 8, kUnknown, 4, false);
  size_t at = 0;
  while (size - at > 10 && has(bytes, at, "ID3")) {  // ID3v2 tags, whose size has 7 bits in each byte
    const uint8_t* length = bytes.need(at + 6, at + 10);
    at += 10 + (size_t(length[0] & 127) << 21 | size_t(length[1] & 127) << 14 | size_t(length[2] & 127) << 7 | (length[3] & 127));
    if (at >= size) return {};
  }
  if (size - at < 4) return {};
  const uint8_t* data = bytes.need(at, at + 4);
  if (data[0] != 0xff || (data[1] & 0xe0) != 0xe0) return {};
  if (!frames_begin(bytes, at)) return view_from_first_frame(bytes);  // libsndfile takes two sync bytes for a frame
  return has_length(bytes, at) ? AudioView{} : join_frames(bytes, at);
}

AudioView view_from_first_frame(SoundBytes& bytes) {
  const size_t searched = std::min(bytes.size(), kMaxSearch);
  for (size_t at = 0; (at = find_sync(bytes, at)) < searched; ++at) {
    if (frames_begin(bytes, at)) return has_length(bytes, at) ? AudioView{{}, at} : join_frames(bytes, at);
  }
  return {};
}

}  // namespace ndd
