// SPDX-License-Identifier: Apache-2.0
// Sounds whose header does not say how long they are: those that were written to a pipe, or cut from a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ndd {

// How libsndfile should see a file.
struct AudioView {
  std::vector<uint8_t> beginning;  // in place of the first `replaced` bytes
  size_t replaced = 0;
  // MPEG audio without a length, of which libsndfile takes the first frames for all: the frames of samples, or -1 where something lies between those of
  // the stream, so that only decoding can tell.
  bool is_estimated = false;
  int64_t frames = -1;
};

// The view of a file whose header has no length: a WAV, AU or CAF file whose data end with the file, or MPEG audio. Otherwise that of the file as it is.
AudioView view_with_length(const uint8_t* data, size_t size);

// The view of MPEG audio that begins within a frame, which libsndfile does not recognize; nothing is replaced if there are no frames.
AudioView view_from_first_frame(const uint8_t* data, size_t size);

}  // namespace ndd
