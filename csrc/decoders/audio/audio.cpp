// SPDX-License-Identifier: Apache-2.0
// The kernels of decoders.audio: shapes from the headers, and decoding with optional downmix and resampling.
#include "decoders/audio/audio_file.h"
#include "decoders/sample_errors.h"
#include "decoders/sample_limit.h"
#include "ndd/args.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/error.h"
#include "ndd/kernel.h"
#include "ndd/resample/sinc_filter.h"
#include "ndd/samples.h"
#include "ndd/stream/stream.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace ndd {
namespace {

// Output samples lie at multiples of 1 / out_rate, and only those before the end of the sound count: hence the rounding up. The same formula is in
// torch_ndd/decoders/audio.py.
int64_t resampled_length(int64_t length, double in_rate, double out_rate) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(length) * out_rate / in_rate));
}

AudioFile audio_file(const Samples& files, int64_t i) { return {static_cast<const uint8_t*>(files.data(i)), static_cast<size_t>(files.volume(i))}; }

// Fills `out` (N, 3) with frames, channels and the sampling rate of each file. `rates` (N) are the output rates, 0 for the file's own. A
// sound must not have more than `max_bytes` bytes, neither as stored nor after resampling, because both buffers exist while it is decoded.
void audio_shapes(const Tensor& input, const MaybeTensor& input_shapes, std::string op, const Tensor& rates, bool mix, int64_t item_bytes,
                  int64_t max_bytes, const Tensor& out) {
  const Samples files(input, input_shapes);
  auto* row = static_cast<int64_t*>(out.data_ptr());
  for (int64_t i = 0; i < files.size(); ++i, row += 3) {
    for_sample(op, i, [&] {
      const AudioFile file = audio_file(files, i);
      row[0] = file.frames();
      row[1] = file.channels();
      row[2] = file.rate();
      const double wanted = Args<double>(rates)(i), frames = static_cast<double>(row[0]), channels = static_cast<double>(row[1]);
      const double samples = std::max(frames * channels, (wanted > 0 ? frames * wanted / file.rate() : frames) * (mix ? 1 : channels));
      check_sample(
          "a sound of " + std::to_string(row[0]) + " frames of " + std::to_string(row[1]) + " channels at " + std::to_string(row[2]) + " Hz has",
          samples * static_cast<double>(item_bytes), max_bytes);
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

// Resamples interleaved samples. A lower rate is interpolated as well, without an anti-aliasing filter, as in DALI.
void resample(const float* in, int64_t frames, int64_t channels, double ratio, double quality, float* out, int64_t out_frames) {
  const auto filter = sinc_filter(ratio, out_frames, sinc_lobes(quality), false);
  const int64_t before = zeros_before(*filter);
  std::vector<float> padded(static_cast<size_t>(before + frames + zeros_behind(*filter))), output(static_cast<size_t>(out_frames));
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t i = 0; i < frames; ++i) padded[before + i] = in[i * channels + c];
    filter_signal(*filter, padded.data(), frames, out_frames, output.data());
    for (int64_t i = 0; i < out_frames; ++i) out[i * channels + c] = output[i];
  }
}

template <class T>
void store(const float* in, T* out, int64_t n) {
  constexpr float scale = std::is_integral_v<T> ? static_cast<float>(std::numeric_limits<T>::max()) : 1.0f;
  for (int64_t i = 0; i < n; ++i) out[i] = saturate<T>(in[i] * scale);
}

template <class T>
void decode(AudioFile& file, bool mix, double out_rate, double quality, T* out, int64_t out_frames) {
  const int64_t frames = file.frames(), channels = mix ? 1 : file.channels();
  const bool resampled = out_rate != static_cast<double>(file.rate());
  if (!resampled && out_frames != frames) fail("the encoded sound changed after the call");
  const bool direct = !resampled && (channels == file.channels()) && (std::is_same_v<T, float> || file.holds_integers());
  if (direct) return file.read(out);

  // Not filled with zeros: a damaged header may claim gigabytes, and pages that are never written take no memory.
  const std::unique_ptr<float[]> samples(new float[frames * file.channels()]);
  file.read(samples.get());
  const float* ready = samples.get();  // the samples after the latest step
  std::vector<float> mixed, converted;
  if (channels != file.channels()) {
    mixed.resize(frames);
    downmix(ready, frames, file.channels(), mixed.data());
    ready = mixed.data();
  }
  if (resampled) {
    converted.resize(out_frames * channels);
    resample(ready, frames, channels, static_cast<double>(file.rate()) / out_rate, quality, converted.data(), out_frames);
    ready = converted.data();
  }
  store(ready, out, out_frames * channels);
}

// `rates` (N) are the rates of the result. The headers are read again, because the memory of the files belongs to the caller and may have
// changed since the shapes were computed: a sound that no longer fits its output is an error.
void decode_audio(const Tensor& input, const MaybeTensor& input_shapes, std::string op, const Tensor& rates, bool mix, double quality,
                  const Tensor& out, const MaybeTensor& out_shapes) {
  const Samples files(input, input_shapes), sounds(out, out_shapes);
  const double cost = 5 * sounds.mean_volume();  // nanoseconds; FLAC decodes 200 million samples per second
  launch_cpu(op, files.size(), cost, {input, out}, [=](int64_t i) {
    for_sample(op, i, [&] {
      AudioFile file = audio_file(files, i);
      const int64_t* shape = sounds.shape(i);
      if ((mix ? 1 : file.channels()) != (sounds.ndim() > 1 ? shape[1] : 1)) fail("the encoded sound changed after the call");
      const double rate = Args<double>(rates)(i);
      if (shape[0] != (rate == file.rate() ? file.frames() : resampled_length(file.frames(), file.rate(), rate))) {
        fail("the encoded sound changed after the call");
      }
      switch (sounds.dtype()) {
        case DType::int16: return decode(file, mix, rate, quality, static_cast<int16_t*>(sounds.data(i)), shape[0]);
        case DType::int32: return decode(file, mix, rate, quality, static_cast<int32_t*>(sounds.data(i)), shape[0]);
        default: return decode(file, mix, rate, quality, static_cast<float*>(sounds.data(i)), shape[0]);
      }
    });
  });
}

}  // namespace

NDD_KERNEL(audio_shapes, CPU, audio_shapes)
NDD_KERNEL(decoders_audio, CPU, decode_audio)

}  // namespace ndd
