// SPDX-License-Identifier: Apache-2.0
// Kaldi's filter banks: the logarithms of mel bands of frames without their mean, after preemphasis, each band normalized over the frames of its sound.
//
// In doubles up to the logarithm: the error of a transform in floats is 1e-7 of the largest frequency, and the normalized logarithm of a weak one would be
// off by 5e-4. Eight frames side by side take 1 us each on a busy core: 40 % for the transform, 15 % each for loading, powers, and bands with logarithms, the
// rest for normalization.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "ndd/args.h"
#include "ndd/kernel.h"
#include "ndd/simd.h"
#include "ops/audio/lanes.h"
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
constexpr double kNanosecondsPerFrame = 1000;

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
  std::vector<double> window, weights;  // the window times kScale, weights of four times the powers
  std::vector<Filter> filters;

  int64_t bands() const { return static_cast<int64_t>(filters.size()); }
  int64_t frames(int64_t i) const {
    // Whole windows only.
    const int64_t beyond = in.volume(i) - static_cast<int64_t>(window.size());
    return beyond < 0 ? 0 : beyond / step + 1;
  }
};

// One double or float of each lane, which lie side by side: gcc unrolls loops of eight steps before it could vectorize them.
typedef double Lanes __attribute__((vector_size(kLanes * sizeof(double)), may_alias));
typedef float FloatLanes __attribute__((vector_size(kLanes * sizeof(float)), may_alias));

// Writes the pairs of the frames that begin at rows[l], of each lane: (x[k] - mean - 0.97 (x[k - 1] - mean)) * window[k], with 0.97 of itself taken off
// the first element. Even elements are the real parts, odd ones the imaginary parts.
void load_frames(const float* const* rows, const std::vector<double>& window, float* tile, double* pairs_re, double* pairs_im) {
  const auto count = static_cast<int64_t>(window.size());
  rows_to_lanes(rows, kLanes, count, tile);
  with_simd([&]() NDD_ALWAYS_INLINE {
    const auto* __restrict in = reinterpret_cast<const FloatLanes*>(tile);
    const double* __restrict factors = window.data();
    auto* __restrict re = reinterpret_cast<Lanes*>(pairs_re);
    auto* __restrict im = reinterpret_cast<Lanes*>(pairs_im);
    const int64_t n = count;
    // Four sums: one would wait for each addition.
    Lanes sums[4] = {};
    for (int64_t i = 0; i < n; ++i) sums[i % 4] += __builtin_convertvector(in[i], Lanes);
    // The share of the mean that preemphasis leaves.
    const Lanes rest = (1.0 - kEmphasis) / static_cast<double>(n) * ((sums[0] + sums[1]) + (sums[2] + sums[3]));
    Lanes before = __builtin_convertvector(in[0], Lanes);
    re[0] = ((1.0 - kEmphasis) * before - rest) * factors[0];
    for (int64_t i = 1; i < n; ++i) {
      const Lanes value = __builtin_convertvector(in[i], Lanes);
      (i % 2 ? im : re)[i / 2] = (value - kEmphasis * before - rest) * factors[i];
      before = value;
    }
  });
}

// Adds the square of x as a float, as transformers stores spectra: the last bit of a logarithm is 1e-4 of the deviation of a steady band.
inline NDD_ALWAYS_INLINE void add_square(const Lanes& x, Lanes& sum) {
  const Lanes rounded = __builtin_convertvector(__builtin_convertvector(x, FloatLanes), Lanes);
  sum += rounded * rounded;
}

// Writes four times the powers of the frames in all lanes.
void find_powers(const double* pairs_re, const double* pairs_im, double* powers) {
  const double* const split = transform_of_frames().split.data();
  with_simd([&]() NDD_ALWAYS_INLINE {
    const auto* __restrict re = reinterpret_cast<const Lanes*>(pairs_re);
    const auto* __restrict im = reinterpret_cast<const Lanes*>(pairs_im);
    auto* __restrict out = reinterpret_cast<Lanes*>(powers);
    // As split_pair() does, for bins k and 256 - k together: their roots are conjugates, times -1. Numbers 0 and 128 are their own partners.
    for (int64_t k = 0; k <= kPairs / 2; ++k) {
      const int64_t other = (kPairs - k) % kPairs;
      const double c = split[2 * k], s = split[2 * k + 1];
      const Lanes even_re = re[k] + re[other], even_im = im[k] - im[other], odd_re = im[k] + im[other], odd_im = re[other] - re[k];
      const Lanes turned_re = c * odd_re + s * odd_im, turned_im = c * odd_im - s * odd_re;
      Lanes power = {}, mirrored = {};
      add_square(even_re + turned_re, power);
      add_square(even_im + turned_im, power);
      add_square(even_re - turned_re, mirrored);
      add_square(even_im - turned_im, mirrored);
      out[k] = power;
      out[kPairs - k] = mirrored;
    }
  });
}

// Writes the logarithms of the bands of the frames in all lanes band by band.
void find_levels(const Job& job, const double* powers, double* sums, float* levels) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const auto* __restrict in = reinterpret_cast<const Lanes*>(powers);
    auto* __restrict out = reinterpret_cast<Lanes*>(sums);
    const double* __restrict weights = job.weights.data();
    const Filter* __restrict filters = job.filters.data();
    const int64_t bands = job.bands();
    for (int64_t m = 0; m < bands; ++m) {
      const Filter filter = filters[m];
      Lanes sum = {};
      for (int64_t k = 0; k < filter.count; ++k) sum += weights[filter.offset + k] * in[filter.first + k];
      out[m] = sum;
    }
    const double* __restrict values = sums;
    float* __restrict logarithms = levels;
    const int64_t n = bands * kLanes;
    for (int64_t i = 0; i < n; ++i)
      logarithms[i] = static_cast<float>(float_functions::log_of(float_functions::select(values[i] < kFloor, kFloor, values[i])));
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

// Adds up each band of `count` frames, or the squares of what is left of it without its mean, in the order in which NumPy adds floats that lie side by
// side, as transformers stores them: eight partial sums, and halves of more than 128. Other orders are off by as much as the deviation of silence.
// `parts` has room for eight sums of each band.
template <bool squares>
void add_frames(const float* values, int64_t count, int64_t bands, const float* means, float* parts, float* sums) {
  if (count > 128) {
    const int64_t half = count / 2 / 8 * 8;
    std::vector<float> rest(bands);
    add_frames<squares>(values, half, bands, means, parts, sums);
    add_frames<squares>(values + half * bands, count - half, bands, means, parts, rest.data());
    for (int64_t m = 0; m < bands; ++m) sums[m] += rest[m];
    return;
  }
  with_simd([&]() NDD_ALWAYS_INLINE {
    const float* __restrict from = values;
    const float* __restrict mean = means;
    float* __restrict part = parts;
    float* __restrict to = sums;
    const int64_t n = bands, frames = count, whole = count / 8 * 8;
    const auto term = [&](int64_t t, int64_t m) NDD_ALWAYS_INLINE {
      if constexpr (!squares) return from[t * n + m];
      const float difference = from[t * n + m] - mean[m];
      return difference * difference;
    };
    for (int64_t t = 0; t < whole; ++t) {
      float* __restrict lane = part + t % 8 * n;
      if (t < 8) {
        for (int64_t m = 0; m < n; ++m) lane[m] = term(t, m);
      } else {
        for (int64_t m = 0; m < n; ++m) lane[m] += term(t, m);
      }
    }
    for (int64_t m = 0; m < n; ++m) {
      const float* const p = part + m;
      to[m] = whole == 0 ? 0.0f : ((p[0] + p[n]) + (p[2 * n] + p[3 * n])) + ((p[4 * n] + p[5 * n]) + (p[6 * n] + p[7 * n]));
    }
    for (int64_t t = whole; t < frames; ++t)
      for (int64_t m = 0; m < n; ++m) to[m] += term(t, m);
  });
}

// Subtracts the mean of each band and divides by its deviation, in floats, as transformers does.
void normalize_bands(float* values, int64_t frames, int64_t bands) {
  std::vector<float> means(bands), deviations(bands), parts(8 * bands);
  add_frames<false>(values, frames, bands, nullptr, parts.data(), means.data());
  for (float& mean : means) mean /= static_cast<float>(frames);
  add_frames<true>(values, frames, bands, means.data(), parts.data(), deviations.data());
  for (float& sum : deviations) sum = std::sqrt(sum / static_cast<float>(frames - 1) + static_cast<float>(kVarianceFloor));
  with_simd([&]() NDD_ALWAYS_INLINE {
    const float* __restrict mean = means.data();
    const float* __restrict deviation = deviations.data();
    const int64_t n = bands, rows = frames;
    for (int64_t t = 0; t < rows; ++t) {
      float* __restrict row = values + t * n;
      for (int64_t m = 0; m < n; ++m) row[m] = (row[m] - mean[m]) / deviation[m];
    }
  });
}

void fill_sample(const Job& job, int64_t i) {
  static thread_local LineVector<double> scratch;
  static thread_local LineVector<float> float_scratch;
  const int64_t part = kPairs * kLanes, bands = job.bands(), frames = job.frames(i), length = static_cast<int64_t>(job.window.size());
  double *re = scratch_of(scratch, 4 * part + kBins * kLanes + bands * kLanes), *im = re + part, *other_re = im + part, *other_im = other_re + part,
         *powers = other_im + part, *sums = powers + kBins * kLanes;
  float *tile = scratch_of(float_scratch, (kTransform + bands) * kLanes), *levels = tile + kTransform * kLanes;
  const auto* in = static_cast<const float*>(job.in.data(i));
  float* const out = job.out + i * job.rows * bands;
  for (int64_t first = 0; first < frames; first += kLanes) {
    const int64_t count = std::min(kLanes, frames - first);
    const float* from[kLanes];
    float* to[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) {
      // Lanes beyond the last frame repeat it, and their results are not stored.
      const int64_t frame = first + std::min(l, count - 1);
      from[l] = in + frame * job.step;
      to[l] = out + frame * bands;
    }
    // Zero padding, up to the length of the transform; an odd last element is written afterwards.
    std::fill(re + length / 2 * kLanes, re + part, 0.0);
    std::fill(im + length / 2 * kLanes, im + part, 0.0);
    load_frames(from, job.window, tile, re, im);
    transform_pairs(re, im, other_re, other_im);
    find_powers(re, im, powers);
    find_levels(job, powers, sums, levels);
    lanes_to_rows(levels, kLanes, count, bands, to);
  }
  normalize_bands(out, frames, bands);
  std::fill(out + frames * bands, out + job.rows * bands, 0.0f);
}

// `window` is float64 (length), `filters` float64 (257, bands), `output` float32 (N, rows, bands), with rows of zeros behind the frames of each sound.
void kaldi_bands(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& window, const Tensor& filters, int64_t window_step,
                 const Tensor& output) {
  if (output.dim() != 3 || !output.is_contiguous() || filters.dim() != 2)
    fail(Error::Value, "kaldi_bands: the output must have samples, rows and bands, and the filters bins and bands");
  check_numbers(window);
  check_numbers(filters);
  auto job =
      std::make_shared<Job>(Job{Samples(input, input_shapes), static_cast<float*>(output.data_ptr()), output.size(1), window_step, {}, {}, {}});
  if (job->in.dtype() != DType::float32 || output.dtype() != DType::float32) fail(Error::Type, "kaldi_bands: sounds must be float32");
  if (window.dtype() != DType::float64 || filters.dtype() != DType::float64) fail(Error::Type, "kaldi_bands: the tables must be float64");
  const int64_t length = window.numel(), bands = filters.size(1);
  if (length < 2 || length > kTransform || window_step < 1 || filters.size(0) != kBins || output.size(2) != bands || output.size(0) != job->in.size())
    fail(Error::Value, "kaldi_bands: the window, the filters or the output have a wrong size");
  const auto* factors = static_cast<const double*>(window.data_ptr());
  // With the scale, a power of two: the products are the same.
  for (int64_t k = 0; k < length; ++k) job->window.push_back(kScale * factors[k]);
  const auto* weights = static_cast<const double*>(filters.data_ptr());
  for (int64_t m = 0; m < bands; ++m) {
    // Triangular filters have few weights: zeros at both ends are dropped.
    int64_t begin = 0, end = kBins;
    while (begin < end && weights[begin * bands + m] == 0) ++begin;
    while (begin < end && weights[(end - 1) * bands + m] == 0) --end;
    job->filters.push_back({begin, end - begin, static_cast<int64_t>(job->weights.size())});
    for (int64_t k = begin; k < end; ++k) job->weights.push_back(weights[k * bands + m] / 4.0);  // of find_powers()
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
