// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "decoders/audio/flac/headers.h"

#include <vector>

namespace ndd::flac {

// A decoded frame, whose buffer is reused for the next one.
struct Frame {
  FrameHeader header{};
  size_t bytes = 0;
  std::vector<int32_t> samples;  // channel after channel, each of stream.max_block

  const int32_t* channel(const Stream& stream, int c) const { return samples.data() + static_cast<size_t>(c) * stream.max_block; }
};

// Decodes the frame at the beginning of the data. Returns false if it is damaged.
bool decode_frame(const Stream& stream, const uint8_t* data, size_t size, Frame& frame);

}  // namespace ndd::flac
