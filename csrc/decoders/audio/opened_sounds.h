// SPDX-License-Identifier: Apache-2.0
// Sounds that decoders.audio has opened for their shapes, until it decodes them: opening an Ogg Vorbis file takes as long as decoding three seconds of it.
#pragma once

#include "decoders/audio/audio_file.h"
#include "decoders/audio/sound_bytes.h"

#include <cstdint>
#include <memory>
#include <string>

namespace ndd {

struct OpenedSound {
  // Opens the contents of a file, which must outlive the object.
  OpenedSound(const uint8_t* data, size_t size) : bytes(data, size), file(bytes) {}
  // Opens `length` bytes of a file; negative: up to its end.
  OpenedSound(const std::string& path, int64_t begin, int64_t length) : bytes(path, begin, length), file(bytes) {}

  SoundBytes bytes;
  AudioFile file;
};

// Keeps a sound under a new number, and returns the number. The least recent of more than a few sounds are closed. `source` is what the sound was opened
// from: the contents, or the place of a file.
int64_t keep_sound(std::unique_ptr<OpenedSound> sound, const void* source, int64_t size, bool is_place);

// Returns a kept sound, which belongs to the caller then; null if it was closed, was taken before, or was opened from something else.
std::unique_ptr<OpenedSound> take_sound(int64_t number, const void* source, int64_t size, bool is_place);

}  // namespace ndd
