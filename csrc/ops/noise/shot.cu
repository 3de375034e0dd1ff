// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "ndd/kernel.h"
#include "ndd/random/noise.h"
#include "ndd/random/normal.h"

namespace ndd {
namespace {

// A number of events from one word each, by inversion: how many k have a probability of more than k events above a uniform number. Below kMaxInverted
// expected events the probabilities are subtracted one by one. Above, it is the whole part of the expansion of Cornish and Fisher as Giles has it
// ("Algorithm 955: approximation of the inverse Poisson cumulative distribution function", 2016): at 32 its cumulative distribution is off by 4e-6,
// later by less.
struct Poisson {
  static constexpr float kMaxInverted = 32.0f;
  static constexpr int kLanes = 64;  // four independent registers of AVX-512: twice as fast as one

  static NDD_HD float many(float expected, uint32_t word) {
    const float z = normal_of(word), root = sqrtf(expected), inverse = 1.0f / root, z2 = z * z;
    const float first = (2.0f + z2) * (1.0f / 6.0f), second = -z * (2.0f + z2) * (1.0f / 72.0f);
    const float third = (z2 * (3.0f * z2 + 7.0f) - 16.0f) * (1.0f / 810.0f);
    const float k = floorf(expected + root * z + (first + (second + third * inverse) * inverse));
    const float positive = k > 0.0f ? k : 0.0f;
    return expected < 0x1p60f ? positive : expected;  // their noise is below a float's last bit, and that of infinity would be NaN
  }

  // The probability of at least one event, without cancellation where few are expected. Less 2^-22 of it, so that the probabilities of more of them
  // fall below 0 in the end, as rounded sums would not: that cuts the distribution off at 5.1 standard deviations.
  static NDD_HD float any(float expected, float none) {
    constexpr float c[] = {1.0f, -1.0f / 2, 1.0f / 6, -1.0f / 24, 1.0f / 120, -1.0f / 720, 1.0f / 5040, -1.0f / 40320};
    const float small = expected * polynomial(expected, c), large = 1.0f - none;
    return (expected < 0.5f ? small : large) * (1.0f - 0x1p-22f);
  }

  // N elements at a time. Every element has the same result whatever its neighbors are.
  template <int N>
  static NDD_HD void few(const float (&expected)[N], const uint32_t* __restrict words, float (&events)[N]) {
    float u[N], p[N], above[N];
    for (int e = 0; e < N; ++e) u[e] = open_uniform(words[e]);
    for (int e = 0; e < N; ++e) p[e] = exp_of(-expected[e]);
    for (int e = 0; e < N; ++e) above[e] = any(expected[e], p[e]);
    int open = 1;
    for (float k = 1.0f; k < 128.0f && open > 0;) {
      for (int step = 0; step < 4; ++step, k += 1.0f) {
        const float inverse = 1.0f / k;
        for (int e = 0; e < N; ++e) {
          events[e] += u[e] <= above[e] ? 1.0f : 0.0f;
          p[e] = p[e] * (expected[e] * inverse);
          above[e] -= p[e];
        }
      }
      open = 0;
      for (int e = 0; e < N; ++e) open += u[e] <= above[e] ? 1 : 0;
    }
  }
};

struct Shot {
  static constexpr bool kReadsInput = true;
  float factor;

  NDD_HD bool keeps() const { return factor == 0.0f; }

  template <int N>
  NDD_HD void run(const float* __restrict in, const uint32_t* __restrict words, float* __restrict noise) const {
    float all[N], few[N], events[N] = {};
    int below = 0;
    for (int e = 0; e < N; ++e) {
      const float wanted = in[e] / factor;
      all[e] = wanted > 0.0f ? wanted : 0.0f;  // also for NaN
      few[e] = all[e] < Poisson::kMaxInverted ? all[e] : 0.0f;
      below += all[e] < Poisson::kMaxInverted ? 1 : 0;
    }
    if (below > 0) Poisson::few(few, words, events);
    if (below < N) {
      float many[N];
      for (int e = 0; e < N; ++e) many[e] = Poisson::many(all[e], words[e]);
      for (int e = 0; e < N; ++e) events[e] = all[e] < Poisson::kMaxInverted ? events[e] : many[e];
    }
    for (int e = 0; e < N; ++e) noise[e] = events[e] * factor;
  }

  NDD_HD void operator()(const float* in, const uint32_t* words, int n, float* noise) const {
    constexpr int kLanes = Poisson::kLanes;
    int e = 0;
    for (; e + kLanes <= n; e += kLanes) run<kLanes>(in + e, words + e, noise + e);
    for (; e < n; ++e) run<1>(in + e, words + e, noise + e);
  }

  template <class T>
  static NDD_HD T combine(T, float noise) {
    return saturate<T>(noise);
  }
};

void shot(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& factors, const Tensor& words, const Tensor& output,
          const MaybeTensor& output_shapes) {
  const Args<float> factor(factors);
  add_noise("noise.shot", words, Samples(input, input_shapes), Samples(output, output_shapes), 8.0, [=](int64_t i) {
    const float f = factor(i);
    if (!(f >= 0.0f && f < INFINITY)) fail("noise.shot: factor must be finite and not negative, got ", f, " for sample ", i);
    return Shot{f};
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNELS(noise_shot, ndd::shot)
