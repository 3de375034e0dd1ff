// SPDX-License-Identifier: Apache-2.0
#include "ops/audio/audio_resample.h"

#include <algorithm>

#include "ndd/rows.h"
#include "ops/audio/scratch.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ndd {
namespace audio {
namespace {

// A channel as floats, with zeros around it.
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
    constexpr int64_t kRow = 1024;
    float row[kRow];
    const int64_t step = std::max<int64_t>(1, kRow / channels);
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
  const Scaling scaling = job.load;
  if (scaling.factor != 1.0f || scaling.shift != 0.0f)
    for (int64_t t = 0; t < length; ++t) to[t] = scaling(to[t]);
}

// Where the inputs and the weights of an output are.
struct Taps {
  const float *values, *weights;
  float next;
};

// The taps of one output after the other, without the division of position_of(). `signal` begins `before` elements in front of the first one.
class TapsInOrder {
 public:
  TapsInOrder(const SincFilter& filter, const float* signal, int64_t before, int64_t last_start)
      : table_(filter.table), weights_(filter.weights.data()), signal_(signal), before_(before), last_start_(last_start),
        whole_(table_.exact ? table_.advance / table_.phases : 0), part_(table_.exact ? table_.advance % table_.phases : 0), position_{1 - table_.reach, 0, 0.0f} {}

  Taps next() {
    if (!table_.exact) position_ = position_of(table_, output_++);
    // What lies behind all zeros is zero as well.
    const Taps taps{signal_ + std::min(position_.first + before_, last_start_), weights_ + position_.phase * table_.taps, position_.next};
    position_.phase += part_;
    const bool carried = position_.phase >= table_.phases;
    position_.phase -= carried ? table_.phases : 0;
    position_.first += whole_ + carried;
    return taps;
  }

 private:
  const SincTable& table_;
  const float *weights_, *signal_;
  int64_t before_, last_start_, whole_, part_, output_ = 0;
  Position position_;
};

float filtered(const SincTable& table, const Taps& taps) {
  float sum = 0.0f;
  for (int64_t k = 0; k < table.taps; ++k) {
    float weight = taps.weights[k];
    if (!table.exact) weight += taps.next * (taps.weights[table.taps + k] - weight);
    sum += taps.values[k] * weight;
  }
  return sum;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"), always_inline)) inline __m256 products(const SincTable& table, const Taps& taps) {
  __m256 sum = _mm256_setzero_ps(), other = _mm256_setzero_ps();
  if (table.exact) {
    for (int64_t k = 0; k < table.taps; k += 16) {
      sum = _mm256_fmadd_ps(_mm256_loadu_ps(taps.values + k), _mm256_loadu_ps(taps.weights + k), sum);
      other = _mm256_fmadd_ps(_mm256_loadu_ps(taps.values + k + 8), _mm256_loadu_ps(taps.weights + k + 8), other);
    }
  } else {
    const __m256 next = _mm256_set1_ps(taps.next);
    for (int64_t k = 0; k < table.taps; k += 8) {
      const __m256 weight = _mm256_loadu_ps(taps.weights + k);
      const __m256 blended = _mm256_fmadd_ps(next, _mm256_sub_ps(_mm256_loadu_ps(taps.weights + table.taps + k), weight), weight);
      sum = _mm256_fmadd_ps(_mm256_loadu_ps(taps.values + k), blended, sum);
    }
  }
  return _mm256_add_ps(sum, other);
}

// Four outputs at a time, whose sums are added across together; returns how many were made.
__attribute__((target("avx2,fma"))) int64_t filter_fours(const SincTable& table, TapsInOrder& taps, int64_t outputs, float* made) {
  int64_t o = 0;
  for (; o + 4 <= outputs; o += 4) {
    const __m256 a = products(table, taps.next()), b = products(table, taps.next()), c = products(table, taps.next()), d = products(table, taps.next());
    const __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(made + o, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
  }
  return o;
}
#endif

void filter_channel(const SincFilter& filter, const float* signal, int64_t before, int64_t last_start, int64_t outputs, float* made) {
  TapsInOrder taps(filter, signal, before, last_start);
  int64_t o = 0;
#if defined(__x86_64__)
  if (cpu_isa() != Isa::base) o = filter_fours(filter.table, taps, outputs, made);
#endif
  for (; o < outputs; ++o) made[o] = filtered(filter.table, taps.next());
}

void resample_sample(const ResampleJob& job, int64_t i) {
  static thread_local std::vector<float> signal, made;
  const int64_t outputs = job.out.shape(i)[0], channels = job.channels(i), length = job.in.shape(i)[0];
  if (outputs == 0 || channels == 0) return;
  const auto filter = job.filter(i);
  const SincTable& table = filter->table;
  const int64_t before = table.reach, after = 2 * table.taps;
  float *row = scratch_of(made, outputs * (channels + 1)), *mixed = channels == 1 ? row : row + outputs;
  float* const padded = scratch_of(signal, before + length + after);
  for (int64_t channel = 0; channel < channels; ++channel) {
    load_channel(job, i, channel, before, after, padded);
    filter_channel(*filter, padded, before, before + length + table.taps, outputs, row);
    for (int64_t o = 0; channels > 1 && o < outputs; ++o) mixed[o * channels + channel] = row[o];
  }
  row_storer(job.out.dtype())(mixed, outputs * channels, job.out.data(i));
}

void audio_resample(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& ratio, double quality, bool antialias, const Tensor& output,
                    const MaybeTensor& output_shapes) {
  const ResampleJob job = resample_job(input, input_shapes, ratio, quality, antialias, output, output_shapes);
  launch_cpu("audio_resample", job.in.size(), (2.0 + 0.2 * static_cast<double>(job.lobes)) * job.out.mean_volume() + 0.5 * job.in.mean_volume(), {},
             [job](int64_t i) { resample_sample(job, i); });
}

}  // namespace
}  // namespace audio
}  // namespace ndd
NDD_KERNEL(audio_resample, CPU, ndd::audio::audio_resample)
