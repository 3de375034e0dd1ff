// SPDX-License-Identifier: Apache-2.0
// Frames are found by their sync code and the checksum of their header, decoded one at a time, and copied to the interleaved output. The checksum
// over a whole frame decides whether its samples count.
#include "decoders/audio/flac/flac_file.h"

#include "ndd/simd.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace ndd::flac {
namespace {

constexpr size_t kMaxHeader = 16;              // bytes
constexpr size_t kMaxLonger = 4;               // times the bytes of a frame that is stored as it is
constexpr size_t kSearch = size_t{1} << 13;  // bytes in which the next frame begins, as a rule

// Samples of `bits` bits as libsndfile returns them: floats in [-1, 1), integers aligned to the top of their type.
template <class T>
NDD_ALWAYS_INLINE inline T scaled(int32_t value, int bits) {
  if constexpr (std::is_same_v<T, float>) return static_cast<float>(value) * (bits == 8 ? 0x1p-7f : bits == 16 ? 0x1p-15f : 0x1p-23f);
  else if constexpr (sizeof(T) == 4) return static_cast<T>(static_cast<uint32_t>(value) << (32 - bits));
  else return static_cast<T>(bits > 16 ? value >> (bits - 16) : static_cast<int32_t>(static_cast<uint32_t>(value) << (16 - bits)));
}

// Interleaves samples `first` to `first + count` of a frame.
template <class T>
void store(const Stream& stream, const Frame& frame, int64_t first, int64_t count, T* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    // Local copies, so the compiler need not load them again after each store.
    const int bits = stream.bits, channels = stream.channels;
    const int64_t n = count;
    T* __restrict to = out;
    if (channels == 1) {
      const int32_t* __restrict from = frame.channel(stream, 0) + first;
      for (int64_t i = 0; i < n; ++i) to[i] = scaled<T>(from[i], bits);
    } else if (channels == 2) {
      const int32_t* __restrict left = frame.channel(stream, 0) + first;
      const int32_t* __restrict right = frame.channel(stream, 1) + first;
      for (int64_t i = 0; i < n; ++i) {
        to[2 * i] = scaled<T>(left[i], bits);
        to[2 * i + 1] = scaled<T>(right[i], bits);
      }
    } else {
      for (int c = 0; c < channels; ++c) {
        const int32_t* __restrict from = frame.channel(stream, c) + first;
        for (int64_t i = 0; i < n; ++i) to[i * channels + c] = scaled<T>(from[i], bits);
      }
    }
  });
}

}  // namespace

std::optional<FlacFile> FlacFile::open(SoundBytes& bytes) {
  const auto stream = read_stream(bytes);
  return stream ? std::optional(FlacFile(bytes, *stream)) : std::nullopt;
}

// Finds the next frame header in [at, end), and moves `at` there.
std::optional<FrameHeader> FlacFile::find_header(size_t& at, size_t end) const {
  while (at < end) {
    const size_t searched = std::min(end - at, kSearch);
    const uint8_t* begin = bytes_->need(at, at + searched + kMaxHeader);
    const auto* next = static_cast<const uint8_t*>(std::memchr(begin, 0xff, searched));
    at += next ? static_cast<size_t>(next - begin) : searched;
    if (!next) continue;
    if (auto header = read_frame_header(stream_, next, std::min(bytes_->size() - at, kMaxHeader))) return header;
    ++at;
  }
  return {};
}

// Returns where a frame begins that holds the sample or one before it, and its number: by bisection, because a table of seek points is optional. The
// parts of the file that are searched for a header do not overlap, so a file without any is read once.
size_t FlacFile::find_frame(int64_t sample, int64_t& first) const {
  size_t low = stream_.begin, high = bytes_->size();
  int64_t low_sample = 0, high_sample = stream_.samples;
  first = 0;
  while (high - low > 1) {
    // Where the sample would be at a constant number of bytes per sample, but not so near to an end that the bisection makes no progress.
    const double share = static_cast<double>(sample - low_sample) / static_cast<double>(std::max<int64_t>(high_sample - low_sample, 1));
    const auto span = static_cast<double>(high - low);
    size_t at = low + std::max<size_t>(1, static_cast<size_t>(span * std::clamp(share - 0.01, 0.02, 0.9)));
    const size_t middle = at;
    std::optional<FrameHeader> found;
    for (; (found = find_header(at, high)); ++at) {
      // Others look like a header but cannot be one: sample numbers ascend.
      if (found->sample > low_sample && found->sample < high_sample) break;
    }
    // Nothing begins from `middle` to `high` that helps.
    if (!found || found->sample > sample) {
      high = middle;
      if (found) high_sample = found->sample;
      continue;
    }
    low = at;
    low_sample = first = found->sample;
    if (sample < low_sample + found->block) break;
  }
  return low;
}

// Decodes the frame at a position. Returns false if it is damaged.
bool FlacFile::decode(size_t at, Frame& frame) const {
  const size_t rest = bytes_->size() - at;
  // Encoders store samples as they are where prediction needs more bits; one bit more for the difference of two channels.
  const size_t stored = static_cast<size_t>(stream_.max_block) * stream_.channels * (stream_.bits + 1) / 8;
  const size_t usual = std::min(rest, kMaxHeader + stored + 16 * static_cast<size_t>(stream_.channels));
  if (decode_frame(stream_, bytes_->need(at, at + usual), usual, frame)) return true;
  if (usual == rest) return false;
  // A longer frame is legal. One that is far longer is left to libsndfile, so a damaged file is not read to its end into memory.
  const size_t most = std::min(rest, kMaxLonger * usual);
  return decode_frame(stream_, bytes_->need(at, at + most), most, frame);
}

template <class T>
bool FlacFile::read(int64_t begin, int64_t count, T* out) const {
  static thread_local Frame frame;
  if (count == 0) return true;
  int64_t sample = 0;
  // The first frame needs no search.
  size_t at = begin < stream_.max_block ? stream_.begin : find_frame(begin, sample);
  while (count > 0) {
    if (!decode(at, frame) || frame.header.sample != sample) return false;
    at += frame.bytes;
    sample += frame.header.block;
    // find_frame() may return an earlier frame than the one with the sample.
    if (sample <= begin) continue;
    const int64_t first = begin - frame.header.sample, n = std::min(sample - begin, count);
    store(stream_, frame, first, n, out);
    out += n * stream_.channels;
    begin += n;
    count -= n;
  }
  return true;
}

template bool FlacFile::read(int64_t, int64_t, int16_t*) const;
template bool FlacFile::read(int64_t, int64_t, int32_t*) const;
template bool FlacFile::read(int64_t, int64_t, float*) const;

}  // namespace ndd::flac
