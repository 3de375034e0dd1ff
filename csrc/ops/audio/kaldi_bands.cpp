// SPDX-License-Identifier: Apache-2.0
// Kaldi's filter banks: the logarithms of mel bands of frames without their mean, after preemphasis, each band normalized over the frames of its sound.
//
// In doubles up to the logarithm: the error of a transform in floats is 1e-7 of the largest frequency, and the normalized logarithm of a weak one would be
// off by 5e-4. Eight frames side by side take 1 us each, a third of it for the transform.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "ndd/kernel.h"
#include "ndd/simd.h"
#include "ops/audio/scratch.h"
#include "ops/audio/spectra.h"
#include "ops/math/float_functions.h"

namespace ndd::audio {
namespace {

// The elements of a transform, complex numbers and bins in it, and frames that are transformed together.
constexpr int64_t kTransform = 512, kPairs = kTransform / 2, kBins = kPairs + 1, kLanes = 8;
// The constants of transformers' SeamlessM4T feature extractor: samples scaled like 16-bit integers, float32's epsilon as the lowest band, 1e-7 added
// to variances.
constexpr double kEmphasis = 0.97, kScale = 32768.0, kFloor = 1.192092955078125e-07, kVarianceFloor = 1e-7;
constexpr double kNanosecondsPerFrame = 1500;

// The transform of 512 reals as 256 pairs: four stages of radix 4.
struct Transform {
  std::vector<Stage> stages;
  std::vector<double> twiddles, split;

  Transform() {
    for (int64_t left = kPairs, stride = 1; left > 1; left /= 4, stride *= 4) {
      stages.push_back({4, left / 4, stride, static_cast<int64_t>(twiddles.size())});
      for (int64_t p = 0; p < left / 4; ++p)
        for (int64_t k = 1; k < 4; ++k) add(twiddles, -2.0 * M_PI * static_cast<double>(p * k) / static_cast<double>(left));
    }
    for (int64_t k = 0; k < kBins; ++k) add(split, 2.0 * M_PI * static_cast<double>(k) / static_cast<double>(kTransform));
  }

  static void add(std::vector<double>& table, double angle) {
    table.push_back(std::cos(angle));
    table.push_back(std::sin(angle));
  }
};

const Transform& transform_of_frames() {
  static const Transform* const transform = new Transform;  // never destroyed: threads use it to the end of the process
  return *transform;
}

// A row of the matrix of filters without its zeros.
struct Filter {
  int64_t first, count, offset;
};

struct Job {
  Samples in;
  float* out;
  int64_t rows, step;  // rows: of the output of a sample, zero behind its frames
  std::vector<double> window, weights;
  std::vector<Filter> filters;

  int64_t bands() const { return static_cast<int64_t>(filters.size()); }
  int64_t frames(int64_t i) const {
    // Whole windows only.
    const int64_t beyond = in.volume(i) - static_cast<int64_t>(window.size());
    return beyond < 0 ? 0 : beyond / step + 1;
  }
};

// Writes a frame to one lane of the pairs: (x[k] - mean - 0.97 (x[k - 1] - mean)) * window[k], with 0.97 of itself taken off the first element.
void load_frame(const float* frame, const std::vector<double>& window, double* row, double* pairs_re, double* pairs_im) {
  const auto count = static_cast<int64_t>(window.size());
  with_simd([&]() NDD_ALWAYS_INLINE {
    const float* __restrict in = frame;
    const double* __restrict factors = window.data();
    double* __restrict values = row;
    const int64_t n = count;
    // In eight sums, which vectorize, in a fixed order.
    double parts[kLanes] = {};
    for (int64_t i = 0; i + kLanes <= n; i += kLanes)
      for (int64_t l = 0; l < kLanes; ++l) parts[l] += static_cast<double>(in[i + l]);
    double sum = 0;
    for (int64_t l = 0; l < kLanes; ++l) sum += parts[l];
    for (int64_t i = n / kLanes * kLanes; i < n; ++i) sum += static_cast<double>(in[i]);
    // The share of the mean that preemphasis leaves.
    const double rest = (1.0 - kEmphasis) * sum / static_cast<double>(n);
    values[0] = ((1.0 - kEmphasis) * static_cast<double>(in[0]) - rest) * kScale * factors[0];
#pragma GCC ivdep
    for (int64_t i = 1; i < n; ++i)
      values[i] = (static_cast<double>(in[i]) - kEmphasis * static_cast<double>(in[i - 1]) - rest) * kScale * factors[i];
  });
  // Even elements are the real parts, odd ones the imaginary parts.
  for (int64_t i = 0; i < count; ++i) (i % 2 ? pairs_im : pairs_re)[i / 2 * kLanes] = row[i];
}

// Writes the logarithms of the bands of the frames in all lanes, band by band.
void find_levels(const Job& job, const double* pairs_re, const double* pairs_im, double* powers, double* levels) {
  const Transform& transform = transform_of_frames();
  with_simd([&]() NDD_ALWAYS_INLINE {
    for (int64_t k = 0; k < kBins; ++k) {
      // Bin 256 pairs number 0 with itself, as bin 0 does.
      const int64_t at = k % kPairs * kLanes, mirrored = (kPairs - k) % kPairs * kLanes;
      const double* __restrict re = pairs_re + at;
      const double* __restrict im = pairs_im + at;
      const double* __restrict other_re = pairs_re + mirrored;
      const double* __restrict other_im = pairs_im + mirrored;
      double* __restrict out = powers + k * kLanes;
      const double c = transform.split[2 * k], s = transform.split[2 * k + 1];
      for (int64_t l = 0; l < kLanes; ++l) {
        double x, y;
        split_pair(re[l], im[l], other_re[l], other_im[l], c, s, x, y);
        // As floats, as transformers stores spectra: the last bit of a logarithm is 1e-4 of the deviation of a steady band.
        const double real = static_cast<float>(x), imaginary = static_cast<float>(y);
        out[l] = real * real + imaginary * imaginary;
      }
    }
    for (int64_t m = 0; m < job.bands(); ++m) {
      const Filter filter = job.filters[m];
      double sums[kLanes] = {};
      for (int64_t k = 0; k < filter.count; ++k) {
        const double weight = job.weights[filter.offset + k];
        const double* __restrict from = powers + (filter.first + k) * kLanes;
        for (int64_t l = 0; l < kLanes; ++l) sums[l] += weight * from[l];
      }
      double* __restrict out = levels + m * kLanes;
      for (int64_t l = 0; l < kLanes; ++l) out[l] = float_functions::log_of(sums[l] < kFloor ? kFloor : sums[l]);
    }
  });
}

void transform_pairs(double*& re, double*& im, double*& other_re, double*& other_im) {
  const Transform& transform = transform_of_frames();
  double *a = re, *b = im, *c = other_re, *d = other_im;
  with_simd([&]() NDD_ALWAYS_INLINE {
    for (const Stage& stage : transform.stages) {
      run_stage<4>(stage, transform.twiddles.data() + stage.twiddles, kLanes, a, b, c, d);
      std::swap(a, c);
      std::swap(b, d);
    }
  });
  re = a, im = b, other_re = c, other_im = d;
}

// Subtracts the mean of each band and divides by its deviation.
void normalize_bands(float* values, int64_t frames, int64_t bands) {
  std::vector<double> means(bands), squares(bands);
  with_simd([&]() NDD_ALWAYS_INLINE {
    double* __restrict mean = means.data();
    double* __restrict square = squares.data();
    const int64_t n = bands;
    const auto count = static_cast<double>(frames);
    for (int64_t t = 0; t < frames; ++t) {
      const float* __restrict row = values + t * n;
      for (int64_t m = 0; m < n; ++m) mean[m] += static_cast<double>(row[m]);
    }
    for (int64_t m = 0; m < n; ++m) mean[m] /= count;
    for (int64_t t = 0; t < frames; ++t) {
      const float* __restrict row = values + t * n;
      for (int64_t m = 0; m < n; ++m) {
        const double difference = static_cast<double>(row[m]) - mean[m];
        square[m] += difference * difference;
      }
    }
    for (int64_t m = 0; m < n; ++m) square[m] = 1.0 / std::sqrt(square[m] / (count - 1.0) + kVarianceFloor);
    for (int64_t t = 0; t < frames; ++t) {
      float* __restrict row = values + t * n;
      for (int64_t m = 0; m < n; ++m) row[m] = static_cast<float>((static_cast<double>(row[m]) - mean[m]) * square[m]);
    }
  });
}

void fill_sample(const Job& job, int64_t i) {
  static thread_local LineVector<double> scratch;
  const int64_t part = kPairs * kLanes, bands = job.bands(), frames = job.frames(i), length = static_cast<int64_t>(job.window.size());
  double *re = scratch_of(scratch, 4 * part + kBins * kLanes + bands * kLanes + kTransform), *im = re + part, *other_re = im + part,
         *other_im = other_re + part, *powers = other_im + part, *levels = powers + kBins * kLanes, *row = levels + bands * kLanes;
  const auto* in = static_cast<const float*>(job.in.data(i));
  float* const out = job.out + i * job.rows * bands;
  for (int64_t first = 0; first < frames; first += kLanes) {
    const int64_t count = std::min(kLanes, frames - first);
    // Zero padding, up to the length of the transform; an odd last element is written afterwards.
    std::fill(re + length / 2 * kLanes, re + part, 0.0);
    std::fill(im + length / 2 * kLanes, im + part, 0.0);
    for (int64_t l = 0; l < kLanes; ++l) load_frame(in + (first + std::min(l, count - 1)) * job.step, job.window, row, re + l, im + l);
    transform_pairs(re, im, other_re, other_im);
    find_levels(job, re, im, powers, levels);
    for (int64_t l = 0; l < count; ++l)
      for (int64_t m = 0; m < bands; ++m) out[(first + l) * bands + m] = static_cast<float>(levels[m * kLanes + l]);
  }
  normalize_bands(out, frames, bands);
  std::fill(out + frames * bands, out + job.rows * bands, 0.0f);
}

// `window` is float64 (length), `filters` float64 (257, bands), `output` float32 (N, rows, bands), with rows of zeros behind the frames of each sound.
void kaldi_bands(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& window, const Tensor& filters, int64_t window_step,
                 const Tensor& output) {
  auto job =
      std::make_shared<Job>(Job{Samples(input, input_shapes), static_cast<float*>(output.data_ptr()), output.size(1), window_step, {}, {}, {}});
  if (job->in.dtype() != DType::float32 || output.dtype() != DType::float32) fail(Error::Type, "kaldi_bands: sounds must be float32");
  if (window.dtype() != DType::float64 || filters.dtype() != DType::float64) fail(Error::Type, "kaldi_bands: the tables must be float64");
  const int64_t length = window.numel(), bands = filters.size(1);
  if (length < 2 || length > kTransform || window_step < 1 || filters.size(0) != kBins || output.size(2) != bands || output.size(0) != job->in.size())
    fail(Error::Value, "kaldi_bands: the window, the filters or the output have a wrong size");
  const auto* factors = static_cast<const double*>(window.data_ptr());
  job->window.assign(factors, factors + length);
  const auto* weights = static_cast<const double*>(filters.data_ptr());
  for (int64_t m = 0; m < bands; ++m) {
    // Triangular filters have few weights: zeros at both ends are dropped.
    int64_t begin = 0, end = kBins;
    while (begin < end && weights[begin * bands + m] == 0) ++begin;
    while (begin < end && weights[(end - 1) * bands + m] == 0) --end;
    job->filters.push_back({begin, end - begin, static_cast<int64_t>(job->weights.size())});
    for (int64_t k = begin; k < end; ++k) job->weights.push_back(weights[k * bands + m]);
  }
  double frames = 0;
  for (int64_t i = 0; i < job->in.size(); ++i) {
    if (job->frames(i) < 2) fail(Error::Value, "kaldi_bands: sample ", i, " is shorter than two frames");
    if (job->frames(i) > job->rows) fail(Error::Value, "kaldi_bands: sample ", i, " has more frames than the output has rows");
    frames += static_cast<double>(job->frames(i));
  }
  const double mean = frames / static_cast<double>(std::max<int64_t>(job->in.size(), 1));
  launch_cpu("kaldi_bands", job->in.size(), kNanosecondsPerFrame * mean, {output}, [job](int64_t i) { fill_sample(*job, i); });
}

}  // namespace
}  // namespace ndd::audio
NDD_KERNEL(kaldi_bands, CPU, ndd::audio::kaldi_bands)
