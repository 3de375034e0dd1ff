// SPDX-License-Identifier: Apache-2.0
// Decodes FLAC files without libsndfile, whose libFLAC takes twice the time. What is not decoded here, damaged files above all, is left to libsndfile:
// its results and messages count.
#pragma once

#include "decoders/audio/flac/headers.h"

#include <optional>

namespace ndd::flac {

class FlacFile {
 public:
  // Empty for a file that is left to libsndfile. The memory must outlive the object.
  static std::optional<FlacFile> open(const uint8_t* data, size_t size);

  const Stream& stream() const { return stream_; }

  // Decodes `count` frames of interleaved samples from `begin` on, as libsndfile does. Returns false if the file is damaged; `out` may then hold anything.
  template <class T>
  bool read(int64_t begin, int64_t count, T* out) const;

 private:
  FlacFile(const uint8_t* data, size_t size, const Stream& stream) : data_(data), size_(size), stream_(stream) {}

  size_t find_frame(int64_t sample, int64_t& first) const;

  const uint8_t* data_;
  size_t size_;
  Stream stream_;
};

}  // namespace ndd::flac
