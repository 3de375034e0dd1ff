// SPDX-License-Identifier: Apache-2.0
// random.normal: one word for a float, two for a double. The cost of a number is in the last argument of fill_random, in nanoseconds.
#include "ndd/kernel.h"
#include "ndd/random/normal.h"
#include "ndd/random/random.h"

namespace ndd::normal_kernels {
namespace {

struct NormalFloat {
  using Value = float;
  float mean, stddev;
  NDD_HD float operator()(uint32_t word) const { return mean + stddev * normal_of(word); }
};

struct NormalDouble {
  using Value = double;
  double mean, stddev;
  NDD_HD double operator()(uint32_t high, uint32_t low) const { return mean + stddev * normal_of(high, low); }
};

void normal(const MaybeTensor&, const MaybeTensor&, const Tensor& means, const Tensor& deviations, const Tensor& words, const Tensor& output,
            const MaybeTensor& output_shapes) {
  const Samples out(output, output_shapes);
  const Args<float> mean(means), stddev(deviations);
  if (random_in_double(out.dtype())) fill_random("normal", words, out, [=](int64_t i) { return NormalDouble{mean(i), stddev(i)}; }, 5.5);
  else fill_random("normal", words, out, [=](int64_t i) { return NormalFloat{mean(i), stddev(i)}; }, 1.5);
}

}  // namespace
}  // namespace ndd::normal_kernels
NDD_KERNELS(random_normal, ndd::normal_kernels::normal)
