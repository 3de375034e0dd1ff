// SPDX-License-Identifier: Apache-2.0
// Three ways to the samples: our FLAC decoder, libsndfile on the bytes as they are, and libsndfile on a view of them whose header was completed
// (audio_lengths.cpp). The library reads through callbacks, so no file is copied or written.
#include "decoders/audio/audio_file.h"

#include "decoders/audio/ogg_pages.h"
#include "decoders/audio/vorbis_headers.h"
#include "decoders/codecs/captured_output.h"
#include "decoders/file_kind.h"
#include "ndd/error.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ndd {
namespace {

// Constants of sndfile.h.
constexpr int kRead = 0x10, kRawIsSwapped = 0x1110, kContainer = 0x0fff0000, kSubtype = 0xffff;
constexpr int kWav = 0x010000, kAiff = 0x020000, kWavExtensible = 0x130000, kRf64 = 0x220000;
constexpr int kPcm16 = 0x2, kPcm24 = 0x3, kPcm32 = 0x4, kFloat = 0x6, kDouble = 0x7, kVorbis = 0x60, kOpus = 0x64, kMpeg1 = 0x80, kMpeg3 = 0x82;

// A damaged header may claim more samples than any file can hold. Digital silence compresses best: Opus needs some 30 bytes for 5760
// samples, FLAC for 65535 samples of each of 8 channels.
constexpr int64_t kMaxSamplesPerByte = 20'000;

int64_t max_frames(size_t size, int64_t channels) { return kMaxSamplesPerByte * static_cast<int64_t>(size) / channels; }

constexpr int64_t kUnknownFrames = std::numeric_limits<int64_t>::max();  // SF_COUNT_MAX

constexpr int64_t kBlock = 8192;  // samples, so a block fits into the first-level cache

// A page of Vorbis has at most 255 packets, and a packet at most 4096 frames.
constexpr int64_t kVorbisPacket = 4096, kVorbisPage = 255 * kVorbisPacket;

}  // namespace

// Our own decoder reads most FLAC files; a header that promises too much is left to the library, which counts the frames.
AudioFile::AudioFile(SoundBytes& bytes) : bytes_(bytes), flac_(flac::FlacFile::open(bytes)) {
  if (bytes.size() == 0) fail("the file is empty");
  if (flac_ && flac_->stream().samples <= max_frames(bytes.size(), flac_->stream().channels)) {
    const flac::Stream& stream = flac_->stream();
    info_.frames = stream.samples;
    info_.samplerate = stream.rate;
    info_.channels = stream.channels;
    return;
  }
  open_with_library();
}

void AudioFile::open_with_library() {
  const std::vector<size_t> places = ogg::find_links(bytes_);
  if (!places.empty()) return open_links(places);
  const size_t size = bytes_.size();
  // Before the library sees them: it leaks memory for headers that it rejects.
  check_vorbis_headers(bytes_, 0, size);
  open(view_with_length(bytes_));
  if (!handle_) {
    // A stream of MPEG audio may have been cut within a frame, which libsndfile does not recognize.
    AudioView view = view_from_first_frame(bytes_);
    if (view.replaced > 0) open(std::move(view));
  }
  if (!handle_) bytes_.check();
  if (!handle_)
    fail("not a sound of a supported format (", sndfile().strerror(nullptr), ")", other_kind(bytes_.need(0, kKindBytes), std::min(size, kKindBytes)));
  check_length();
}

void AudioFile::check_length() {
  const AudioView& view = memory_.view;
  const size_t size = view.end < bytes_.size() ? view.end - view.replaced : bytes_.size();
  // Counting by decoding is the last resort: it takes as long as decoding.
  if (view.frames >= 0) info_.frames = view.frames;
  else if (info_.frames == kUnknownFrames && info_.channels > 0 && info_.channels <= 1024) count_frames();
  const bool sane =
      info_.frames >= 0 && info_.channels > 0 && info_.channels <= 1024 && info_.samplerate > 0 && info_.frames <= max_frames(size, info_.channels);
  if (!sane) {
    const std::string promised =
        std::to_string(info_.frames) + " frames of " + std::to_string(info_.channels) + " channels at " + std::to_string(info_.samplerate) + " Hz";
    fail("the header promises ", promised, ", which a file of ", size, " bytes cannot hold");
  }
}

void AudioFile::open_link(const Link& link) {
  handle_.reset();
  messages_.clear();
  check_vorbis_headers(bytes_, link.begin, link.end);
  open({{}, link.begin, link.end});
  if (!handle_) bytes_.check();
  if (!handle_) fail("it is not a sound of a supported format (", sndfile().strerror(nullptr), ")");
  check_length();
}

// All links are opened for their lengths. What differs would have to be resampled or mixed.
void AudioFile::open_links(const std::vector<size_t>& places) {
  SndfileInfo first{};
  int64_t frames = 0;
  std::vector<Link> links;
  for (size_t k = 0; k + 1 < places.size(); ++k) {
    const std::string chain = "the Ogg file is a chain of " + std::to_string(places.size() - 1) + " recordings, ", number = std::to_string(k + 1);
    Link link{places[k], places[k + 1], frames, 0};
    try {
      open_link(link);
    } catch (const Error& error) {
      bytes_.check();
      fail(chain, "of which number ", number, " cannot be read: ", error.what());
    }
    if (k == 0) first = info_;
    const auto refuse = [&](const char* what, int before, int now) {
      fail(chain, "in which ", what, " changes from ", before, " to ", now, " at number ", number, "; split it, or convert them to one format");
    };
    if (info_.channels != first.channels) refuse("the number of channels", first.channels, info_.channels);
    if (info_.samplerate != first.samplerate) refuse("the rate in Hz", first.samplerate, info_.samplerate);
    link.frames = info_.frames;
    frames += link.frames;
    links.push_back(link);
  }
  links_ = std::move(links);
  link_ = links_.size() - 1;
}

// Size that libsndfile is told. It reads no more frames than it estimates from this size and the bit rate of the first frames; bit rates
// within a stream differ by a factor of up to 20.
int64_t AudioFile::Memory::stated_size() const { return view.is_estimated ? 20 * size + (int64_t{1} << 16) : size; }

// Three parts: of the replaced beginning, of the file's bytes, and zeros. Returns false if the file cannot be read.
bool AudioFile::Memory::read(uint8_t* out, int64_t count) const {
  const auto begin = static_cast<int64_t>(view.beginning.size());
  const int64_t first = std::clamp<int64_t>(begin - position, 0, count), second = std::clamp<int64_t>(size - position - first, 0, count - first);
  if (first > 0) std::memcpy(out, view.beginning.data() + position, static_cast<size_t>(first));
  if (second > 0) {
    const auto from = static_cast<size_t>(position + first - begin) + view.replaced;
    if (!rest->copy(from, from + static_cast<size_t>(second), out + first)) return false;
  }
  std::memset(out + first + second, 0, static_cast<size_t>(count - first - second));
  return true;
}

void AudioFile::open(AudioView view) {
  // The callbacks of SF_VIRTUAL_IO: length, seek, read, write, tell. The library calls them on this thread only.
  static SndfileSource source{
      [](void* file) { return static_cast<Memory*>(file)->stated_size(); },
      [](int64_t offset, int whence, void* file) {
        auto& memory = *static_cast<Memory*>(file);
        const int64_t from = whence == SEEK_CUR ? memory.position : whence == SEEK_END ? memory.stated_size() : 0;
        int64_t target;
        // Offsets come from the file. A position beyond the end is allowed: reads return zeros there.
        if (__builtin_add_overflow(from, offset, &target) || target < 0) return static_cast<int64_t>(-1);
        return memory.position = target;
      },
      [](void* out, int64_t count, void* file) {
        auto& memory = *static_cast<Memory*>(file);
        const int64_t n = std::clamp<int64_t>(memory.stated_size() - memory.position, 0, std::max<int64_t>(count, 0));
        if (!memory.read(static_cast<uint8_t*>(out), n)) return static_cast<int64_t>(0);
        memory.position += n;
        return n;
      },
      [](const void*, int64_t, void*) { return static_cast<int64_t>(0); },
      [](void* file) { return static_cast<Memory*>(file)->position; },
  };
  // What the library prints to stderr becomes part of the error message.
  const CaptureOutput capture(messages_);
  const auto rest = static_cast<int64_t>(std::min(view.end, bytes_.size()) - view.replaced), begin = static_cast<int64_t>(view.beginning.size());
  // The object must not move after this: the library keeps the address of memory_.
  memory_ = {std::move(view), &bytes_, begin + rest, 0};
  info_ = {};
  handle_.reset(sndfile().open_virtual(&source, kRead, &info_, &memory_));
}

// Counts the frames by decoding them: FLAC may leave the length open. It decodes 200 million samples per second.
void AudioFile::count_frames() {
  const int64_t count = skip(kUnknownFrames);
  bytes_.check();  // what cannot be read is not the end of the sound
  reopen();  // seeking back is not reliable in a damaged stream
  info_.frames = count;
}

void AudioFile::reopen() {
  const SndfileInfo before = info_;
  handle_.reset();
  messages_.clear();
  open(std::move(memory_.view));
  const bool is_same = handle_ && info_.channels == before.channels && info_.samplerate == before.samplerate;
  if (!is_same) {
    // Another program may have written to the file since, and buffers have been allocated for the channels before.
    bytes_.check();
    fail("the file changed while it was read");
  }
  info_.frames = before.frames;
}

// Decodes frames and discards them. Returns how many there were.
int64_t AudioFile::skip(int64_t frames) {
  const CaptureOutput capture(messages_);
  std::vector<int32_t> block(static_cast<size_t>(kBlock) * info_.channels);
  int64_t count = 0;
  // Any type works for skipping.
  for (int64_t got = 1; got > 0 && count < frames; count += got) {
    got = std::max<int64_t>(sndfile().readf_int(handle_.get(), block.data(), std::min(kBlock, frames - count)), 0);
  }
  return count;
}

// Moves to a frame. A frame of MPEG audio or Opus depends on those before it, so these are decoded from one second before. The library does not find
// frames on the last page of Vorbis, which is decoded from the page before it.
void AudioFile::seek(int64_t frame) {
  const int type = info_.format & kSubtype;
  const bool is_chained = (type >= kMpeg1 && type <= kMpeg3) || type == kOpus;
  // Far more than codecs need: the bit reservoir of MPEG audio spans a few frames, and Opus converges within 80 ms, which libsndfile adds to these.
  const int64_t before_it = type == kOpus ? info_.samplerate / 8 : info_.samplerate;
  if (frame == 0) return;
  const auto last_page = [&] { return find_last_vorbis_page(bytes_, memory_.view.replaced, memory_.view.end, info_.frames); };
  int64_t from = is_chained ? frame - before_it : frame;
  if (type == kVorbis && frame > info_.frames - kVorbisPage) from = std::min(from, last_page() - kVorbisPacket);
  from = std::max<int64_t>(from, 0);
  bool is_there = from == 0;
  // A stream without a length has no index either: libmpg123 would only estimate the position of a frame.
  if (!is_there && info_.seekable && !memory_.view.is_estimated) {
    const CaptureOutput capture(messages_);
    is_there = sndfile().seek(handle_.get(), from, SEEK_SET) == from;
    if (!is_there) messages_.clear();
  }
  if (!is_there) reopen();  // and decode from the beginning
  const int64_t before = is_there ? frame - from : frame, skipped = before > 0 ? skip(before) : 0;
  if (skipped < before) fail_at(frame - before + skipped);
}

void AudioFile::Close::operator()(SndfileHandle* handle) const {
  const CaptureOutput capture(*messages);
  sndfile().close(handle);
}

// Without a handle the file is FLAC.
bool AudioFile::holds_integers() const {
  if (!handle_) return true;
  const int type = info_.format & kSubtype;
  return type != kFloat && type != kDouble && !(type >= kVorbis && type <= kOpus) && !(type >= kMpeg1 && type <= kMpeg3);
}

// Parts of half an hour of speech: taking, searching and closing the opened file, and each sample.
double AudioFile::nanoseconds(double samples, bool is_sought) const {
  if (!handle_) return (is_sought ? 60e3 : 5e3) + 5 * samples;
  const int type = info_.format & kSubtype;
  if (type <= kDouble) return 5e3 + (find_pcm().bytes > 0 ? 0.4 : 2) * samples;
  return (is_sought ? 300e3 : 5e3) + 15 * samples;
}

// How the usual uncompressed files are stored, whose samples are converted here.
Pcm AudioFile::find_pcm() const {
  const int container = info_.format & kContainer, type = info_.format & kSubtype;
  if (container != kWav && container != kWavExtensible && container != kRf64 && container != kAiff) return {};
  const int bytes = type == kPcm16 ? 2 : type == kPcm24 ? 3 : type == kPcm32 || type == kFloat ? 4 : 0;
  return {bytes, type == kFloat, bytes > 0 && sndfile().command(handle_.get(), kRawIsSwapped, nullptr, 0) != 0};
}

// Reads frames from the current one on. Returns how many there were.
template <class T>
int64_t AudioFile::read_pcm(Pcm pcm, int64_t count, T* out) {
  alignas(64) uint8_t block[kBlock * 2];
  const int64_t channels = info_.channels, frame_bytes = pcm.bytes * channels, step = static_cast<int64_t>(sizeof block) / frame_bytes;
  // Straight to their place, in one system call: 10 s of float32 at 44.1 kHz then take 0.84 of the CPU time.
  if (is_stored_as<T>(pcm)) return std::max<int64_t>(sndfile().read_raw(handle_.get(), out, count * frame_bytes), 0) / frame_bytes;
  int64_t done = 0;
  for (bool is_all = true; is_all && done < count;) {
    const int64_t wanted = std::min(step, count - done), bytes = sndfile().read_raw(handle_.get(), block, wanted * frame_bytes);
    const int64_t got = std::max<int64_t>(bytes, 0) / frame_bytes;
    convert_pcm(block, pcm, got * channels, out + done * channels);
    done += got;
    is_all = got == wanted;
  }
  return done;
}

template <class T>
void AudioFile::read_frames(int64_t (*read)(SndfileHandle*, T*, int64_t), int64_t begin, int64_t count, T* out) {
  if (links_.empty()) return read_link(read, begin, count, out);
  for (size_t k = 0; k < links_.size(); ++k) {
    const Link& link = links_[k];
    const int64_t from = std::max(begin, link.first), to = std::min(begin + count, link.first + link.frames);
    if (from >= to) continue;
    if (k != link_) {
      const SndfileInfo before = info_;
      open_link(link);
      const bool is_same = info_.frames == link.frames && info_.channels == before.channels && info_.samplerate == before.samplerate;
      // Another program may have written to the file since.
      if (!is_same) fail("the file changed while it was read");
      link_ = k;
    }
    read_link(read, from - link.first, to - from, out + (from - begin) * info_.channels);
  }
}

// Reads frames of the file, or of the link of a chained file, that is open.
template <class T>
void AudioFile::read_link(int64_t (*read)(SndfileHandle*, T*, int64_t), int64_t begin, int64_t count, T* out) {
  seek(begin);
  const CaptureOutput capture(messages_);
  const Pcm pcm = find_pcm();
  const bool is_converted = pcm.bytes > 0 && (std::is_same_v<T, float> || !pcm.is_float);
  const int64_t frames = is_converted ? read_pcm(pcm, count, out) : read(handle_.get(), out, count);
  // Fewer frames than the header promised, which sized the output.
  if (frames != count) fail_at(begin + frames);
  check_errors();
}

// A damaged frame of FLAC may become silence.
void AudioFile::check_errors() const {
  bytes_.check();
  if (sndfile().error(handle_.get()) != 0) fail("the sound is damaged (", sndfile().strerror(handle_.get()), ")");
}

void AudioFile::fail_at(int64_t frames) const {
  bytes_.check();
  const int64_t first = links_.empty() ? 0 : links_[link_].first;
  std::string reason = "the sound is damaged: it ends after " + std::to_string(first + frames) + " of " + std::to_string(this->frames()) + " frames";
  const std::string details = messages_.substr(0, messages_.find('\n'));
  fail(details.empty() ? reason : reason + " (" + details + ")");
}

// Returns whether the file is FLAC and was decoded. A damaged one is opened with the library, which decides what is still readable.
template <class T>
bool AudioFile::read_flac(int64_t begin, int64_t count, T* out) {
  if (handle_) return false;
  if (flac_->read(begin, count, out)) return true;
  const SndfileInfo before = info_;
  open_with_library();
  if (info_.frames < begin + count || info_.channels != before.channels) fail("the sound is damaged: its headers contradict each other");
  return false;
}

void AudioFile::read(int64_t begin, int64_t count, int16_t* out) {
  if (!read_flac(begin, count, out)) read_frames(sndfile().readf_short, begin, count, out);
}

void AudioFile::read(int64_t begin, int64_t count, int32_t* out) {
  if (!read_flac(begin, count, out)) read_frames(sndfile().readf_int, begin, count, out);
}

void AudioFile::read(int64_t begin, int64_t count, float* out) {
  if (!read_flac(begin, count, out)) read_frames(sndfile().readf_float, begin, count, out);
}

}  // namespace ndd
