// SPDX-License-Identifier: Apache-2.0
// Sounds whose header lacks their length, because they were written to a pipe or cut from a stream.
#pragma once

#include "decoders/audio/sound_bytes.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ndd {

// A file as it is presented to libsndfile.
struct AudioView {
  std::vector<uint8_t> beginning;  // replaces the first `replaced` bytes
  size_t replaced = 0;
  size_t end = SIZE_MAX;  // of the bytes that are presented, or that of the file
  // MPEG audio without a length, for which libsndfile extrapolates from the first frames. `frames` counts samples per channel; -1 for other files.
  bool is_estimated = false;
  int64_t frames = -1;
};

// Returns a view with a length for a WAV, AU or CAF file whose data end with the file, and for MPEG audio without a length; for other files
// the view is the file itself.
AudioView view_with_length(SoundBytes& bytes);

// Returns the view from the first complete frame of MPEG audio that begins within a frame, which libsndfile does not recognize; `replaced`
// is 0 if there is none.
AudioView view_from_first_frame(SoundBytes& bytes);

}  // namespace ndd
