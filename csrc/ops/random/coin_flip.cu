// SPDX-License-Identifier: Apache-2.0
// random.coin_flip: compares integers, so 0 and 1 are certain and both devices agree.
#include <cmath>

#include "ndd/kernel.h"
#include "ndd/random/random.h"

namespace ndd::coin_flip_kernels {
namespace {

// Heads for this many of the 2^24 values of a word's upper bits.
struct CoinFlip {
  using Value = float;
  int32_t heads;
  NDD_HD float operator()(uint32_t word) const { return static_cast<int32_t>(word >> 8) < heads ? 1.0f : 0.0f; }
};

void coin_flip(const MaybeTensor&, const MaybeTensor&, const Tensor& probabilities, const Tensor& words, const Tensor& output,
               const MaybeTensor& output_shapes) {
  const Args<float> probability(probabilities);
  fill_random("coin_flip", words, Samples(output, output_shapes), [=](int64_t i) {
    const float p = probability(i);
    // NaN fails this check as well.
    if (!(p >= 0.0f && p <= 1.0f)) fail("random.coin_flip: probability must be from 0 to 1, got ", p, " for sample ", i);
    // Rounded up: heads remain possible at any probability above 0, and certain at 1.
    return CoinFlip{static_cast<int32_t>(std::ceil(p * 0x1p24f))};
  });
}

}  // namespace
}  // namespace ndd::coin_flip_kernels
NDD_KERNELS(random_coin_flip, ndd::coin_flip_kernels::coin_flip)
