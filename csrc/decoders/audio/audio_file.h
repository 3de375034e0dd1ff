// SPDX-License-Identifier: Apache-2.0
// An encoded sound in memory: WAV, FLAC, OGG (Vorbis, Opus), MP3, AIFF and the other formats of libsndfile.
#pragma once

#include "decoders/audio/audio_lengths.h"
#include "decoders/audio/flac/flac_file.h"
#include "decoders/audio/pcm.h"
#include "decoders/audio/sndfile_library.h"
#include "decoders/audio/sound_bytes.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ndd {

class AudioFile {
 public:
  // Opens the file. Throws Error if it is not a sound or its header is not plausible. The bytes must outlive the object.
  explicit AudioFile(SoundBytes& bytes);
  AudioFile(const AudioFile&) = delete;
  AudioFile& operator=(const AudioFile&) = delete;

  int64_t frames() const { return links_.empty() ? info_.frames : links_.back().first + links_.back().frames; }
  int64_t channels() const { return info_.channels; }
  int rate() const { return info_.samplerate; }
  // Whether the samples are stored as integers and need no conversion through floats.
  bool holds_integers() const;

  // A rough time for decoding this many samples, for the scheduler; `is_sought`: not from the beginning on.
  double nanoseconds(double samples, bool is_sought) const;

  // Decode `count` frames from `begin` on, interleaved; call once. Throw Error if the file ends early.
  void read(int64_t begin, int64_t count, int16_t* out);
  void read(int64_t begin, int64_t count, int32_t* out);
  void read(int64_t begin, int64_t count, float* out);

 private:
  // The file as libsndfile sees it: a replaced beginning, then the bytes of the caller, then zeros.
  struct Memory {
    AudioView view;
    SoundBytes* rest;
    int64_t size, position;
    int64_t stated_size() const;
    bool read(uint8_t* out, int64_t count) const;  // at the position; zeros behind the end
  };

  // Closes a file of the library, whose messages go where the file's go. Also where a constructor throws, which runs no destructor.
  struct Close {
    std::string* messages;
    void operator()(SndfileHandle* handle) const;
  };

  // A recording of a chained Ogg file, which libsndfile reads as a file of its own: it ends with the first one.
  struct Link {
    size_t begin, end;
    int64_t first, frames;
  };

  void open_with_library();
  void open_links(const std::vector<size_t>& places);
  void open_link(const Link& link);
  void check_length();
  void open(AudioView view);
  void reopen();
  void count_frames();
  void seek(int64_t frame);
  int64_t skip(int64_t frames);

  template <class T>
  bool read_flac(int64_t begin, int64_t count, T* out);

  Pcm find_pcm() const;

  template <class T>
  void read_frames(int64_t (*read)(SndfileHandle*, T*, int64_t), int64_t begin, int64_t count, T* out);

  template <class T>
  void read_link(int64_t (*read)(SndfileHandle*, T*, int64_t), int64_t begin, int64_t count, T* out);

  template <class T>
  int64_t read_pcm(Pcm pcm, int64_t count, T* out);

  [[noreturn]] void fail_at(int64_t frames) const;
  void check_errors() const;

  SoundBytes& bytes_;
  const std::optional<flac::FlacFile> flac_;
  Memory memory_{};
  std::string messages_;  // printed by the library
  SndfileInfo info_{};  // of the link that is open, in a chained file
  std::vector<Link> links_;  // of a chained Ogg file, else empty
  size_t link_ = 0;  // the one that is open
  std::unique_ptr<SndfileHandle, Close> handle_{nullptr, Close{&messages_}};  // null while a FLAC file needs no library
};

}  // namespace ndd
