// SPDX-License-Identifier: Apache-2.0
// A blend of each sample with another one of the batch, for mixup, in one pass: arithmetic would need a reordered copy of the batch first. Sample i of
// the output is images[i] * shares[i][0] + others[order[i]] * shares[i][1] in float32, converted to the type of the output; all are dense.
#pragma once
#include "ndd/args.h"
#include "ndd/error.h"
#include "ndd/samples.h"

namespace ndd {

// Two products and a sum, each rounded: the same as the operators * and +.
NDD_HD float blend_pair(float a, float weight, float b, float rest) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(__fmul_rn(a, weight), __fmul_rn(b, rest));
#else
  return a * weight + b * rest;
#endif
}

// The batches, and the partner of each sample.
struct BlendArgs {
  Samples in, partners, out;
  Args<int64_t> place;
  Args<float> share;

  BlendArgs(const Tensor& images, const Tensor& others, const Tensor& order, const Tensor& shares, const Tensor& output)
      : in(images, MaybeTensor()), partners(others, MaybeTensor()), out(output, MaybeTensor()), place(order), share(shares) {
    if (in.dtype() != partners.dtype()) fail(Error::Type, "blend_batch: images must have one type");
    check_rows("blend_batch", "order", place, out.size());
    check_rows("blend_batch", "shares", share, out.size(), 2);
    if (in.size() < out.size()) fail(Error::Value, "blend_batch: there must be an image for each of ", out.size(), " outputs, got ", in.size());
    // One of the CPU has the index -1. The kernel would read memory of another device as its own.
    if (images.device_index() != others.device_index() || images.device_index() != output.device_index())
      fail(Error::Value, "blend_batch: images must be on one device");
  }

  int64_t partner(int64_t i) const {
    const int64_t k = place(i);
    if (k < 0 || k >= partners.size() || in.volume(i) != out.volume(i) || partners.volume(k) != out.volume(i))
      fail("blend_batch: sample ", i, " has no partner of its shape");
    return k;
  }
};

}  // namespace ndd
