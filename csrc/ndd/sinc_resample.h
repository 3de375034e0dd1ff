// SPDX-License-Identifier: Apache-2.0
// Signals at another sampling rate: y(t) = sum over j of x[j] * sinc(t - j) * (1 + cos(pi * (t - j) / lobes)) / 2, |t - j| < lobes, with x = 0 outside
// of the signal. A lower rate is interpolated all the same, without a filter against aliases, as DALI does it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace ndd {

// Lobes of the sinc on each side, for a quality from 0 to 100: the parabola through 3, 16 (at 50) and 64 lobes.
inline int sinc_lobes(double quality) { return int(std::lround(0.007 * quality * quality - 0.09 * quality + 3)); }

// Samples of the result: the instants before the end of the signal.
inline int64_t resampled_length(int64_t length, double in_rate, double out_rate) { return int64_t(std::ceil(double(length) * out_rate / in_rate)); }

// The weights of 2 * lobes samples for the instant `fraction`, from 0 to 1, behind sample lobes - 1 of them.
inline void sinc_weights(double fraction, int lobes, float* weights) {
  constexpr double kPi = 3.14159265358979323846;
  const double step_cos = std::cos(kPi / lobes), step_sin = std::sin(kPi / lobes);
  const double first = 1 - lobes - fraction;
  double c = std::cos(kPi * first / lobes), s = std::sin(kPi * first / lobes);
  double sine = std::sin(kPi * fraction) * ((lobes & 1) ? -1 : 1);  // of pi * t, but for the sign that alternates
  for (int k = 0; k < 2 * lobes; ++k) {
    const double t = first + k;
    const double sinc = std::abs(t) < 1e-12 ? 1 : sine / (kPi * t);
    weights[k] = float(sinc * 0.5 * (1 + c));
    const double next = c * step_cos - s * step_sin;
    s = s * step_cos + c * step_sin;
    c = next;
    sine = -sine;
  }
}

class SincResampler {
 public:
  SincResampler(double in_rate, double out_rate, int lobes) : step_(in_rate / out_rate), lobes_(lobes) {
    // Whole rates repeat the same fractions: 44100 to 16000 Hz has 160 of them.
    if (in_rate != std::floor(in_rate) || out_rate != std::floor(out_rate) || std::max(in_rate, out_rate) > 1e9) return;
    in_ = int64_t(in_rate), out_ = int64_t(out_rate);
    for (int64_t a = in_, b = out_; b; std::swap(a, b)) a %= b, divisor_ = b;
    in_ /= divisor_, out_ /= divisor_;
    if (out_ * 2 * lobes > kMostWeights) {
      out_ = 0;
      return;
    }
    weights_.resize(size_t(out_ * 2 * lobes));
    for (int64_t phase = 0; phase < out_; ++phase) {
      sinc_weights(double(phase * in_ % out_) / double(out_), lobes, weights_.data() + phase * 2 * lobes);
    }
  }

  // `in` has `length` samples and lobes of zeros before and behind them; sample i of the result is out[i * stride].
  void run(const float* in, float* out, int64_t count, int64_t stride) const {
    float own[2 * kMostLobes];
    for (int64_t i = 0, phase = 0; i < count; ++i, phase = phase + 1 == out_ ? 0 : phase + 1) {
      const float* weights = own;
      int64_t before;
      if (out_) {
        before = int64_t(__int128(i) * in_ / out_);
        weights = weights_.data() + phase * 2 * lobes_;
      } else {
        const double at = double(i) * step_;
        before = int64_t(std::floor(at));
        sinc_weights(at - double(before), lobes_, own);
      }
      out[i * stride] = dot(in + before + 1, weights);
    }
  }

  // Where the samples begin in the padded signal that `run` reads, and how many zeros it needs behind them.
  int64_t padding() const { return lobes_; }

  static constexpr int kMostLobes = 64;

 private:
  static constexpr int64_t kMostWeights = 1 << 18;

  float dot(const float* in, const float* weights) const {
    float sums[8] = {};
    int k = 0;
    for (; k + 8 <= 2 * lobes_; k += 8) {
      for (int j = 0; j < 8; ++j) sums[j] += in[k + j] * weights[k + j];
    }
    for (; k < 2 * lobes_; ++k) sums[k & 7] += in[k] * weights[k];
    return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
  }

  double step_;
  int lobes_;
  int64_t in_ = 0, out_ = 0, divisor_ = 1;  // the rates without their common divisor; 0 where every instant has its own weights
  std::vector<float> weights_;
};

}  // namespace ndd
