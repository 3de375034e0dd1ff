// SPDX-License-Identifier: Apache-2.0
// noise.gaussian: an element's noise depends on its position and the sample's words alone, so threads and grids do not change it.
#include "ndd/kernel.h"
#include "ndd/random/noise.h"
#include "ndd/random/normal.h"

namespace ndd::gaussian_kernels {
namespace {

struct Gaussian {
  static constexpr bool kReadsInput = false;
  float mean, stddev;
  bool truncated;

  NDD_HD bool keeps() const { return false; }

  NDD_HD void operator()(const float*, const uint32_t* __restrict words, int n, float* __restrict noise) const {
    for (int e = 0; e < n; ++e) noise[e] = mean + stddev * normal_of(words[e]);
    if (!truncated) return;
    // Truncated through int32, whose conversion is a vector instruction; its range is limited to what int32 holds.
    constexpr float kMaxWhole = 1073741824.0f;
    for (int e = 0; e < n; ++e) {
      const float below = noise[e] < kMaxWhole ? noise[e] : kMaxWhole, inside = below > -kMaxWhole ? below : -kMaxWhole;
      noise[e] = static_cast<float>(static_cast<int32_t>(inside));
    }
  }

  template <class T>
  static NDD_HD T combine(T in, float noise) {
    return saturate<T>(static_cast<NoiseSum<T>>(in) + static_cast<NoiseSum<T>>(noise));
  }
};

void gaussian(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& means, const Tensor& deviations, const Tensor& words, bool truncate,
              const Tensor& output, const MaybeTensor& output_shapes) {
  const Args<float> mean(means), stddev(deviations);
  const bool whole = truncate && !is_floating_dtype(input.dtype());
  add_noise("noise.gaussian", words, Samples(input, input_shapes), Samples(output, output_shapes), 1.8,
            [=](int64_t i) { return Gaussian{mean(i), stddev(i), whole}; });
}

}  // namespace
}  // namespace ndd::gaussian_kernels
NDD_KERNELS(noise_gaussian, ndd::gaussian_kernels::gaussian)
