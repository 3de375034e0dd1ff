// SPDX-License-Identifier: Apache-2.0
// Decodes FLAC files without libsndfile, whose libFLAC takes twice the time. What is not decoded here, damaged files above all, is left to libsndfile:
// its results and messages count.
#pragma once

#include "decoders/audio/flac/frame.h"
#include "decoders/audio/flac/headers.h"

#include <optional>

namespace ndd::flac {

class FlacFile {
 public:
  // Empty for a file that is left to libsndfile. The bytes must outlive the object.
  static std::optional<FlacFile> open(SoundBytes& bytes);

  const Stream& stream() const { return stream_; }

  // Decodes `count` frames of interleaved samples from `begin` on, as libsndfile does. Returns false if the file is damaged; `out` may then hold anything.
  template <class T>
  bool read(int64_t begin, int64_t count, T* out) const;

 private:
  FlacFile(SoundBytes& bytes, const Stream& stream) : bytes_(&bytes), stream_(stream) {}

  std::optional<FrameHeader> find_header(size_t& at, size_t end) const;
  size_t find_frame(int64_t sample, int64_t& first) const;
  bool decode(size_t at, Frame& frame) const;

  SoundBytes* bytes_;
  Stream stream_;
};

}  // namespace ndd::flac
