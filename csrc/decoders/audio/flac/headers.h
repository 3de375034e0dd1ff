// SPDX-License-Identifier: Apache-2.0
// The headers of a FLAC file (RFC 9639): STREAMINFO, and that of each frame.
#pragma once

#include "decoders/audio/sound_bytes.h"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace ndd::flac {

struct Stream {
  int rate, channels, bits;  // 8, 16 or 24 bits
  int64_t samples;           // per channel
  int max_block;             // samples per channel in a frame
  size_t begin;              // of the first frame
};

// Empty for what the decoder here leaves to libsndfile: other sample sizes, a stream of unknown length, anything before the stream, damaged headers.
std::optional<Stream> read_stream(SoundBytes& bytes);

struct FrameHeader {
  int block;         // samples per channel
  int channel_code;  // channels - 1, or how two channels are joined
  int64_t sample;    // number of the first one
  size_t bytes;      // of the header
};

constexpr int kLeftSide = 8, kSideRight = 9, kMidSide = 10;

// Returns nothing if the data does not begin with a frame header of this stream whose checksum is correct.
std::optional<FrameHeader> read_frame_header(const Stream& stream, const uint8_t* data, size_t size);

// The checksum of a frame, CRC-16 with polynomial 0x8005; 0 for a frame with its checksum.
uint16_t checksum(const uint8_t* data, size_t size);

}  // namespace ndd::flac
