// SPDX-License-Identifier: Apache-2.0
// The kernel of the operator in __init__.py, for the CPU and for CUDA.
#include "ndd/elementwise/pointwise.h"
#include "ndd/kernel.h"

namespace {

using namespace ndd;

// What is done to one value; the drivers of ndd/elementwise run it over all of them, in vectors.
struct Threshold {
  float at, below;
  NDD_HD float operator()(float value) const { return value >= at ? value : below; }
};

void threshold(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& at, const Tensor& below, const Tensor& output,
               const MaybeTensor& output_shapes) {
  const Args<float> levels(at), fills(below);  // one number per sample, or one for all
  pointwise("threshold", Samples(input, input_shapes), Samples(output, output_shapes), {&levels, &fills}, [=](int64_t i, int64_t f) {
    return Threshold{levels.of_frame(i, f), fills.of_frame(i, f)};
  });
}

}  // namespace
NDD_KERNELS(threshold, threshold)
