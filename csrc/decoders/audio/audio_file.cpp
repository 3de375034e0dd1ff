// SPDX-License-Identifier: Apache-2.0
#include "decoders/audio/audio_file.h"

#include "decoders/codecs/captured_output.h"
#include "decoders/file_kind.h"
#include "decoders/audio/vorbis_headers.h"
#include "ndd/error.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace ndd {
namespace {

constexpr int kRead = 0x10, kSubtype = 0xffff;
constexpr int kPcm16 = 0x2, kFloat = 0x6, kDouble = 0x7, kVorbis = 0x60, kOpus = 0x64, kMpeg1 = 0x80, kMpeg3 = 0x82;

// A damaged header promises more than any file holds. Digital silence is what codecs make smallest: Opus 5760 samples and FLAC 65535 of each of 8
// channels in some 30 bytes.
constexpr int64_t kMostSamplesPerByte = 20'000;

constexpr int64_t kUnknownFrames = std::numeric_limits<int64_t>::max();  // of libsndfile

constexpr int64_t kBlock = 8192;  // samples, which fit into the first-level cache

}  // namespace

AudioFile::AudioFile(const uint8_t* data, size_t size) : data_(data), size_(size) {
  if (size == 0) fail("the file is empty");
  check_vorbis_headers(data, size);
  open(view_with_length(data, size));
  if (!handle_) {
    AudioView view = view_from_first_frame(data, size);
    if (view.replaced > 0) open(std::move(view));
  }
  if (!handle_) fail("no sound of a supported format (", sndfile().strerror(nullptr), ")", other_kind(data, size));
  const AudioView& view = memory_.view;
  if (view.frames >= 0) info_.frames = view.frames;
  else if ((view.is_estimated || info_.frames == kUnknownFrames) && info_.channels > 0 && info_.channels <= 1024) count_frames();
  const bool sane = info_.frames >= 0 && info_.channels > 0 && info_.channels <= 1024 && info_.samplerate > 0 &&
                    info_.frames <= kMostSamplesPerByte * static_cast<int64_t>(size) / info_.channels;
  if (!sane) {
    const std::string promised =
        std::to_string(info_.frames) + " frames of " + std::to_string(info_.channels) + " channels at " + std::to_string(info_.samplerate) + " Hz";
    sndfile().close(handle_);
    fail("the header promises ", promised, ", which a file of ", size, " bytes cannot hold");
  }
}

// libsndfile reads no more frames than it estimates from the size and the rate of the first frames: rates differ by a factor of up to 20.
int64_t AudioFile::Memory::stated_size() const { return view.is_estimated ? 20 * size + (int64_t{1} << 16) : size; }

void AudioFile::Memory::read(uint8_t* out, int64_t count) const {
  const auto begin = static_cast<int64_t>(view.beginning.size());
  const int64_t first = std::clamp<int64_t>(begin - position, 0, count), second = std::clamp<int64_t>(size - position - first, 0, count - first);
  if (first > 0) std::memcpy(out, view.beginning.data() + position, static_cast<size_t>(first));
  if (second > 0) std::memcpy(out + first, rest + position + first - begin, static_cast<size_t>(second));
  std::memset(out + first + second, 0, static_cast<size_t>(count - first - second));
}

void AudioFile::open(AudioView view) {
  static SndfileSource source{
      [](void* file) { return static_cast<Memory*>(file)->stated_size(); },
      [](int64_t offset, int whence, void* file) {
        auto& memory = *static_cast<Memory*>(file);
        const int64_t from = whence == SEEK_CUR ? memory.position : whence == SEEK_END ? memory.stated_size() : 0;
        int64_t target;
        if (__builtin_add_overflow(from, offset, &target) || target < 0) return static_cast<int64_t>(-1);
        return memory.position = target;
      },
      [](void* out, int64_t count, void* file) {
        auto& memory = *static_cast<Memory*>(file);
        const int64_t n = std::clamp<int64_t>(memory.stated_size() - memory.position, 0, std::max<int64_t>(count, 0));
        memory.read(static_cast<uint8_t*>(out), n);
        memory.position += n;
        return n;
      },
      [](const void*, int64_t, void*) { return static_cast<int64_t>(0); },
      [](void* file) { return static_cast<Memory*>(file)->position; },
  };
  const CaptureOutput capture(messages_);
  const auto rest = static_cast<int64_t>(size_ - view.replaced), begin = static_cast<int64_t>(view.beginning.size());
  memory_ = {std::move(view), data_ + view.replaced, begin + rest, 0};
  info_ = {};
  handle_ = sndfile().open_virtual(&source, kRead, &info_, &memory_);
}

// FLAC may leave the length open, and a stream of MPEG audio may be interrupted. Reading all of it tells: FLAC has 200 million samples a second.
void AudioFile::count_frames() {
  const SndfileLibrary& library = sndfile();
  std::vector<int32_t> block(static_cast<size_t>(kBlock) * info_.channels);
  int64_t count = 0;
  {
    const CaptureOutput capture(messages_);
    for (int64_t got = 1; got > 0; count += got) got = std::max<int64_t>(library.readf_int(handle_, block.data(), kBlock), 0);
    library.close(handle_);
  }
  messages_.clear();
  open(std::move(memory_.view));
  if (!handle_) fail("the file changed while it was read");
  info_.frames = count;
}

AudioFile::~AudioFile() {
  const CaptureOutput capture(messages_);
  sndfile().close(handle_);
}

bool AudioFile::holds_integers() const {
  const int type = info_.format & kSubtype;
  return type != kFloat && type != kDouble && !(type >= kVorbis && type <= kOpus) && !(type >= kMpeg1 && type <= kMpeg3);
}

template <class T>
void AudioFile::read_frames(int64_t (*read)(SndfileHandle*, T*, int64_t), T* out) {
  const CaptureOutput capture(messages_);
  const int64_t frames = read(handle_, out, info_.frames);
  if (frames != info_.frames) fail_at(frames);
}

void AudioFile::fail_at(int64_t frames) const {
  std::string reason = "the sound is damaged: it ends after " + std::to_string(frames) + " of " + std::to_string(info_.frames) + " frames";
  const std::string details = messages_.substr(0, messages_.find('\n'));
  fail(details.empty() ? reason : reason + " (" + details + ")");
}

void AudioFile::read(int16_t* out) { read_frames(sndfile().readf_short, out); }
void AudioFile::read(int32_t* out) { read_frames(sndfile().readf_int, out); }

// libsndfile converts one sample at a time: 1.7 ns a sample of a WAV file, of which its own integers take 0.3.
void AudioFile::read(float* out) {
  if ((info_.format & kSubtype) != kPcm16) return read_frames(sndfile().readf_float, out);
  const CaptureOutput capture(messages_);
  int16_t block[kBlock];
  const int64_t step = kBlock / info_.channels;
  for (int64_t frame = 0; frame < info_.frames;) {
    const int64_t wanted = std::min(step, info_.frames - frame), got = sndfile().readf_short(handle_, block, wanted);
    const int64_t samples = std::max<int64_t>(got, 0) * info_.channels;
    for (int64_t i = 0; i < samples; ++i) out[i] = static_cast<float>(block[i]) * (1.0f / 32768.0f);
    out += samples;
    frame += std::max<int64_t>(got, 0);
    if (got < wanted) fail_at(frame);
  }
}

}  // namespace ndd
