// SPDX-License-Identifier: Apache-2.0
// On the CPU: each channel is gathered into floats with silence on both sides, filtered, and put back between the others.
#include "ops/audio/audio_resample.h"

#include <algorithm>

#include "ndd/elementwise/rows.h"
#include "ops/audio/scratch.h"

namespace ndd::audio {
namespace {

// Loads a channel as floats, with zeros on both sides: the filter then needs no border checks.
void load_channel(const ResampleJob& job, int64_t i, int64_t channel, int64_t before, int64_t after, float* signal) {
  const int64_t channels = job.channels(i), length = job.in.shape(i)[0];
  float* to = signal + before;
  std::fill(signal, to, 0.0f);
  std::fill(to + length, to + length + after, 0.0f);
  const LoadRow load = row_loader(job.in.dtype());
  const auto* from = static_cast<const char*>(job.in.data(i));
  if (channels == 1) {
    load(from, length, to);
  } else {
    // Whole frames are converted together, because a converter call for each element costs more than the element. 1024 floats stay in the
    // first-level cache.
    constexpr int64_t kRow = 1024;
    float row[kRow];
    const int64_t step = std::max<int64_t>(1, kRow / channels);
    // A frame that does not fit the row: its one element is converted alone.
    if (channels > kRow) {
      for (int64_t t = 0; t < length; ++t) load(from + (t * channels + channel) * job.in.item_bytes(), 1, to + t);
    } else {
      for (int64_t t = 0; t < length; t += step) {
        const int64_t n = std::min(step, length - t);
        load(from + t * channels * job.in.item_bytes(), n * channels, row);
        for (int64_t k = 0; k < n; ++k) to[t + k] = row[k * channels + channel];
      }
    }
  }
  // After the conversion: types of integers reach the filter in the range of the result, so nothing is scaled afterwards.
  const Scaling scaling = job.load;
  if (!scaling.keeps_values())
    for (int64_t t = 0; t < length; ++t) to[t] = scaling(to[t]);
}

void resample_sample(const ResampleJob& job, int64_t i) {
  static thread_local LineVector<float> signal, resampled;
  const int64_t outputs = job.out.shape(i)[0], channels = job.channels(i), length = job.in.shape(i)[0];
  // Also keeps the filter from being made for no outputs: the ratio of the lengths would be infinite.
  if (outputs == 0 || channels == 0) return;
  const auto filter = job.filter(i);
  const int64_t before = zeros_before(*filter), after = zeros_behind(*filter);
  float *row = scratch_of(resampled, outputs * (channels + 1)), *mixed = channels == 1 ? row : row + outputs;
  float* const padded = scratch_of(signal, before + length + after);
  for (int64_t channel = 0; channel < channels; ++channel) {
    load_channel(job, i, channel, before, after, padded);
    filter_signal(*filter, padded, 0, length, 0, outputs, row);
    for (int64_t o = 0; channels > 1 && o < outputs; ++o) mixed[o * channels + channel] = row[o];
  }
  // Converted once, with saturation: the filter overshoots at steps.
  row_storer(job.out.dtype())(mixed, outputs * channels, job.out.data(i));
}

void audio_resample(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& ratio, double quality, bool antialias,
                    const Tensor& output, const MaybeTensor& output_shapes) {
  const ResampleJob job = resample_job(input, input_shapes, ratio, quality, antialias, output, output_shapes);
  // Nanoseconds: an output costs its taps, two for each lobe, and an input its conversion.
  launch_cpu("audio_resample", job.in.size(), (2.0 + 0.2 * static_cast<double>(job.lobes)) * job.out.mean_volume() + 0.5 * job.in.mean_volume(), {},
             [job](int64_t i) { resample_sample(job, i); });
}

}  // namespace
}  // namespace ndd::audio
NDD_KERNEL(audio_resample, CPU, ndd::audio::audio_resample)
