// SPDX-License-Identifier: Apache-2.0
// The kernels of decoders.audio: shapes from the headers, and decoding with optional downmix and resampling.
#include "decoders/audio/opened_sounds.h"
#include "decoders/sample_errors.h"
#include "decoders/sample_limit.h"
#include "ndd/args.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/error.h"
#include "ndd/host_numbers.h"
#include "ndd/kernel.h"
#include "ndd/python_interface.h"
#include "ndd/resample/sinc_filter.h"
#include "ndd/samples.h"
#include "ndd/stream/stream.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace ndd {
namespace {

constexpr double kMaxRate = 2147483648.0;  // Hz
// A single sound that takes less is decoded by the caller: to wake a thread for it, which then looks for more work, takes 100 us of CPU time and, as the
// program usually waits for the result, of wall time. The caller has read the headers too, so threads could gain little.
constexpr double kAloneNanoseconds = 200e3;
constexpr double kResamplingNanoseconds = 10;  // for each sample of the result, with 16 lobes

// Output samples lie at multiples of 1 / out_rate, and only those before the end of the sound count: hence the rounding up.
int64_t resampled_length(int64_t length, double in_rate, double out_rate) {
  return in_rate == out_rate ? length : static_cast<int64_t>(std::ceil(static_cast<double>(length) * out_rate / in_rate));
}

// Opens sample i, which has the contents of a file or its place: two int64, where the sound begins in the file and how many bytes it has (negative: the
// rest), then the path.
std::unique_ptr<OpenedSound> open_sound(const Samples& files, bool are_places, int64_t i) {
  const auto size = static_cast<size_t>(files.volume(i));
  const auto* bytes = static_cast<const char*>(files.data(i));
  if (!are_places) return std::make_unique<OpenedSound>(reinterpret_cast<const uint8_t*>(bytes), size);
  int64_t range[2];
  if (size < sizeof range) fail("the place of a file has ", size, " bytes");
  std::memcpy(range, bytes, sizeof range);
  return std::make_unique<OpenedSound>(std::string(bytes + sizeof range, size - sizeof range), range[0], range[1]);
}

// For each sound the rate of the result (0 or less for the file's own), and the beginning and the length of the part to decode, in seconds.
class Wanted {
 public:
  // Throws Error unless there is a row for all sounds or one for each.
  Wanted(const std::string& op, const Tensor& parts, int64_t sounds) : parts_(parts) { check_rows(op.c_str(), "parts", parts_, sounds, 3); }

  double rate(int64_t i, double own) const {
    const double rate = parts_(i, 0);
    return rate > 0 ? rate : own;
  }
  double start(int64_t i) const { return checked("start", parts_(i, 1)); }
  double duration(int64_t i) const { return checked("duration", parts_(i, 2)); }
  // Throws Error unless the rates are finite.
  void check_rates(const std::string& op) const {
    for (int64_t i = 0; i < parts_.rows(); ++i) {
      const double rate = parts_(i, 0);
      if (!std::isfinite(rate) || rate >= kMaxRate) fail(op, ": sample_rate must be finite and less than 2**31, got ", rate);
    }
  }

 private:
  static double checked(const char* name, double seconds) {
    if (!(seconds >= 0)) fail(Error::Value, name, " must be a number of seconds that is not negative, got ", seconds);
    return seconds;
  }

  Args<double> parts_;
};

// Frames of the result of a whole file.
struct Part {
  int64_t begin, count;
};

Part part_of(const AudioFile& file, double rate, double start, double duration) {
  const auto total = static_cast<double>(resampled_length(file.frames(), file.rate(), rate));
  // In floating point up to here: seconds may be infinite, and times the rate they exceed 64 bits. Both are at most `total`.
  const double begin = std::min(std::floor(start * rate), total), count = std::min(std::floor(duration * rate), total - begin);
  return {static_cast<int64_t>(begin), static_cast<int64_t>(count)};
}

void check_rate(double rate) {
  if (!(rate > 0 && rate < kMaxRate)) fail(Error::Value, "the sampling rate must be positive and less than 2^31 Hz, got ", rate);
}

// Columns of what audio_shapes() leaves for decode_audio(): the sampling rate of the file, the number of the opened sound or 0, and the nanoseconds that
// decoding will take, roughly.
struct Opened {
  NDD_PLAIN_ENUM("decoders.OpenedSound", Column, int, rate, number, nanoseconds, columns);
};

// Fills `out_shapes` (N, 1 or 2) with the frames and channels of each result, `out_rates` (N) with its sampling rate, and `out_opened` (N, Opened::columns).
// With `keep` the sounds stay open. A sound must not have more than `max_bytes` bytes, neither as stored nor after resampling, because both buffers exist while
// it is decoded.
void audio_shapes(const Tensor& input, const MaybeTensor& input_shapes, std::string op, bool are_places, const Tensor& parts, bool must_begin,
                  bool mix, int64_t item_bytes, int64_t max_bytes, bool keep, const Tensor& out_shapes, const Tensor& out_rates,
                  const Tensor& out_opened) {
  const Samples files(input, input_shapes);
  const Wanted wanted(op, parts, files.size());
  wanted.check_rates(op);
  const int64_t ndim = mix ? 1 : 2;
  auto* const shapes = host_numbers<int64_t>(op, "the table of shapes", out_shapes, files.size() * ndim);
  auto* const rates = host_numbers<float>(op, "the table of rates", out_rates, files.size());
  auto* const opened = host_numbers<int64_t>(op, "the table of opened sounds", out_opened, files.size() * Opened::columns);
  for (int64_t i = 0; i < files.size(); ++i) {
    for_sample(op, i, [&] {
      const double start = wanted.start(i), duration = wanted.duration(i);
      // Opening reads the headers only, unless the length is unknown.
      auto sound = open_sound(files, are_places, i);
      const AudioFile& file = sound->file;
      const double own = file.rate(), rate = wanted.rate(i, own);
      check_rate(rate);
      const Part part = part_of(file, rate, start, duration);
      if (must_begin && start > 0 && start * own >= static_cast<double>(file.frames())) {
        fail("start=", start, " s lies behind the end of the sound, which has ", static_cast<double>(file.frames()) / own,
             " s; on_error=\"empty\" returns no frames");
      }
      const int64_t channels = mix ? 1 : file.channels();
      const auto frames = static_cast<double>(part.count), stored = frames * own / rate * static_cast<double>(file.channels());
      const double samples = frames * static_cast<double>(channels);
      check_sample("a sound of " + std::to_string(part.count) + " frames of " + std::to_string(file.channels()) + " channels at " +
                       std::to_string(std::llround(rate)) + " Hz has",
                   std::max(stored, samples) * static_cast<double>(item_bytes), max_bytes);
      shapes[i * ndim] = part.count;
      if (!mix) shapes[i * ndim + 1] = channels;
      rates[i] = static_cast<float>(rate);
      const double cost = file.nanoseconds(stored, start > 0) + (rate == own ? 0 : kResamplingNanoseconds * samples);
      int64_t* const row = opened + i * Opened::columns;
      row[Opened::rate] = file.rate();
      row[Opened::nanoseconds] = static_cast<int64_t>(cost);
      row[Opened::number] = keep && part.count > 0 ? keep_sound(std::move(sound), files.data(i), files.volume(i), are_places) : 0;
    });
  }
}

// Averages interleaved samples over the channels.
void downmix(const float* in, int64_t frames, int64_t channels, float* out) {
  const float scale = 1.0f / static_cast<float>(channels);
  for (int64_t i = 0; i < frames; ++i, in += channels) {
    float sum = in[0];
    for (int64_t c = 1; c < channels; ++c) sum += in[c];
    out[i] = sum * scale;
  }
}

// Resamples interleaved samples, the frames of the file from `origin` on. A lower rate is interpolated as well, without an anti-aliasing filter, as in
// DALI.
// Channel by channel, because filter_signal() takes contiguous samples of one signal with zeros on both sides.
void resample(const SincFilter& filter, const float* in, int64_t origin, int64_t frames, int64_t channels, Part part, float* out) {
  const int64_t before = zeros_before(filter);
  std::vector<float> padded(static_cast<size_t>(before + frames + zeros_behind(filter))), output(static_cast<size_t>(part.count));
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t i = 0; i < frames; ++i) padded[before + i] = in[i * channels + c];
    filter_signal(filter, padded.data(), origin, frames, part.begin, part.count, output.data());
    for (int64_t i = 0; i < part.count; ++i) out[i * channels + c] = output[i];
  }
}

// The frames of a file from which a part of the resampled sound is computed.
Part frames_under(const SincFilter& filter, Part part, int64_t frames) {
  if (part.count == 0) return {0, 0};
  const int64_t first = position_of(filter.table, part.begin).first, last = position_of(filter.table, part.begin + part.count - 1).first;
  const int64_t begin = std::clamp<int64_t>(first, 0, frames);
  return {begin, std::clamp<int64_t>(last + filter.table.taps, begin, frames) - begin};
}

template <class T>
void store(const float* in, T* out, int64_t n) {
  // From [-1, 1] to the full range of an integer type.
  constexpr float scale = std::is_integral_v<T> ? static_cast<float>(std::numeric_limits<T>::max()) : 1.0f;
  for (int64_t i = 0; i < n; ++i) out[i] = saturate<T>(in[i] * scale);
}

// Up to four steps, each only if needed: read as float, mix, resample, convert.
template <class T>
void decode(AudioFile& file, bool mix, double rate, double quality, Part part, T* out) {
  const int64_t channels = mix ? 1 : file.channels();
  const bool resampled = rate != static_cast<double>(file.rate());
  // Integers straight from the file, without the rounding of floats; floats always.
  const bool direct = !resampled && (channels == file.channels()) && (std::is_same_v<T, float> || file.holds_integers());
  if (direct) return file.read(part.begin, part.count, out);

  // The filter is that of the whole sound, so a part is equal to a slice.
  const int64_t all = resampled_length(file.frames(), file.rate(), rate);
  const auto filter = resampled ? sinc_filter(static_cast<double>(file.rate()) / rate, all, sinc_lobes(quality), false) : nullptr;
  const Part stored = resampled ? frames_under(*filter, part, file.frames()) : part;
  // Not filled with zeros: a damaged header may claim gigabytes, and pages that are never written take no memory.
  const std::unique_ptr<float[]> samples(new float[stored.count * file.channels()]);
  file.read(stored.begin, stored.count, samples.get());
  const float* ready = samples.get();  // the samples after the latest step
  std::vector<float> mixed, converted;
  if (channels != file.channels()) {
    mixed.resize(stored.count);
    downmix(ready, stored.count, file.channels(), mixed.data());
    ready = mixed.data();
  }
  if (resampled) {
    converted.resize(part.count * channels);
    resample(*filter, ready, stored.begin, stored.count, channels, part, converted.data());
    ready = converted.data();
  }
  store(ready, out, part.count * channels);
}

// `opened` (N, Opened::columns) is what audio_shapes() found. Files that were closed since are opened again. The caller owns their memory and may have
// changed it: a sound that no longer fits its output is an error.
void decode_audio(const Tensor& input, const MaybeTensor& input_shapes, std::string op, bool are_places, const Tensor& parts, bool mix,
                  double quality, const Tensor& opened, const Tensor& out, const MaybeTensor& out_shapes) {
  const Samples files(input, input_shapes), sounds(out, out_shapes);
  const Wanted wanted(op, parts, files.size());
  const auto* const rows = host_numbers<int64_t>(op, "the table of opened sounds", opened, files.size() * Opened::columns);
  if (sounds.size() != files.size() || sounds.ndim() < 1)
    fail(Error::Value, op, ": the output must have frames of ", files.size(), " sounds, got ", sounds.size());
  double cost = 0;
  for (int64_t i = 0; i < files.size(); ++i)
    cost += std::max(static_cast<double>(rows[i * Opened::columns + Opened::nanoseconds]), 0.0) / static_cast<double>(files.size());
  if (files.size() == 1 && cost < kAloneNanoseconds) cost = 0;
  launch_cpu(op, files.size(), cost, {input, opened, out}, [=](int64_t i) {
    for_sample(op, i, [&] {
      const int64_t* const row = rows + i * Opened::columns;
      auto sound = take_sound(row[Opened::number], files.data(i), files.volume(i), are_places);
      if (!sound) sound = open_sound(files, are_places, i);
      AudioFile& file = sound->file;
      const double rate = wanted.rate(i, static_cast<double>(row[Opened::rate]));
      check_rate(rate);
      const Part part = part_of(file, rate, wanted.start(i), wanted.duration(i));
      const int64_t* const shape = sounds.shape(i);
      const int64_t channels = mix ? 1 : file.channels();
      if (shape[0] != part.count || channels != (sounds.ndim() > 1 ? shape[1] : 1) || sounds.volume(i) != part.count * channels)
        fail("the encoded sound changed after the call");
      switch (sounds.dtype()) {
        case DType::int16: return decode(file, mix, rate, quality, part, static_cast<int16_t*>(sounds.data(i)));
        case DType::int32: return decode(file, mix, rate, quality, part, static_cast<int32_t*>(sounds.data(i)));
        case DType::float32: return decode(file, mix, rate, quality, part, static_cast<float*>(sounds.data(i)));
        default: fail(Error::Type, "sounds must be float32, int16 or int32");
      }
    });
  });
}

// Decodes a part as decode_audio() does, and discards it. Returns the bytes that are missing; `place` gets the part in the frames of the file, and their
// number, if the file could be opened. Errors are not reported: where no bytes are missing, decoding raises them with the operator and the sample.
template <class T>
SoundBytes::Missing find_missing(SoundBytes& bytes, bool mix, double rate, double quality, double start, double duration, int64_t max_bytes,
                                 int64_t* place) {
  try {
    AudioFile file(bytes);
    const double own = file.rate(), wanted = rate > 0 ? rate : own;
    check_rate(wanted);
    const Part part = part_of(file, wanted, start, duration);
    const auto scale = own / wanted;
    place[0] = static_cast<int64_t>(static_cast<double>(part.begin) * scale);
    place[1] = static_cast<int64_t>(static_cast<double>(part.count) * scale);
    place[2] = file.frames();
    const double samples = static_cast<double>(part.count) * static_cast<double>(file.channels()) * std::max(scale, 1.0);
    if (part.count > 0 && samples * sizeof(T) <= static_cast<double>(max_bytes)) {
      const std::unique_ptr<T[]> out(new T[part.count * file.channels()]);
      decode(file, mix, wanted, quality, part, out.get());
    }
  } catch (const std::exception&) {
  }
  return bytes.missing();
}

}  // namespace

NDD_KERNEL(audio_shapes, CPU, audio_shapes)
NDD_KERNEL(decoders_audio, CPU, decode_audio)

}  // namespace ndd

// Returns whether decoding a part of a sound needs bytes that are not there: only blocks of `block` bytes with a mark are. `found` gets begin and end of
// the first such bytes; the first frame of the part, and how many frames the part and the file have, or zeros if the file could not be opened.
NDD_EXPORT(release, bool, ndd_sound_missing,
           (const void* data, int64_t size, const void* marks, int64_t block, int64_t item_bytes, bool is_float, bool mix, double rate,
            double quality, double start, double duration, int64_t max_bytes, int64_t* found)) {
  using namespace ndd;
  SoundBytes bytes(static_cast<const uint8_t*>(data), static_cast<size_t>(size), static_cast<const uint8_t*>(marks), static_cast<size_t>(block));
  std::fill(found, found + 5, 0);
  const auto find = is_float ? find_missing<float> : item_bytes == 2 ? find_missing<int16_t> : find_missing<int32_t>;
  const auto missing = find(bytes, mix, rate, quality, start, duration, max_bytes, found + 2);
  found[0] = missing.begin;
  found[1] = missing.end;
  return missing.end > 0;
}
