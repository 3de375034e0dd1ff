// SPDX-License-Identifier: Apache-2.0
// Small affine maps of up to six dimensions, as matrices (dims, dims + 1): composing those of a batch, one for each sample or frame.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ndd/elementwise/elements.cuh"
#include "ndd/samples.h"
#include "ndd/stream/stream.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#endif

namespace ndd {

constexpr int kMostDims = 6;

struct Affine {
  int32_t dims;
  double m[kMostDims][kMostDims + 1];

  static Affine identity(int64_t n) {
    Affine made{};
    made.dims = static_cast<int32_t>(n);
    for (int64_t d = 0; d < n; ++d) made.m[d][d] = 1.0;
    return made;
  }
};

NDD_HD Affine load_affine(const void* data, DType dtype, int32_t dims) {
  Affine made{};
  made.dims = dims;
  for (int32_t r = 0; r < dims; ++r)
    for (int32_t c = 0; c <= dims; ++c) made.m[r][c] = load_element(data, dtype, r * (dims + 1) + c);
  return made;
}

// First `inner`, then `outer`.
NDD_HD Affine composed(const Affine& outer, const Affine& inner) {
  Affine made{};
  const int32_t n = made.dims = outer.dims;
  for (int32_t r = 0; r < n; ++r) {
    for (int32_t c = 0; c <= n; ++c) {
      double sum = c == n ? outer.m[r][n] : 0.0;
      for (int32_t k = 0; k < n; ++k) sum += outer.m[r][k] * inner.m[k][c];
      made.m[r][c] = sum;
    }
  }
  return made;
}

// out = the composition of `count` maps in memory, the first one first, then `own`; all the other way round where `reversed`.
struct AffineChain {
  Affine own;
  const void* const* parts;
  int64_t count;
  float* out;
  DType dtype;
  bool reversed;
};

NDD_HD void run_chain(const AffineChain& chain) {
  Affine made = chain.own;
  for (int64_t k = chain.count; k-- > 0;) {
    const Affine part = load_affine(chain.parts[k], chain.dtype, chain.own.dims);
    made = chain.reversed ? composed(part, made) : composed(made, part);
  }
  for (int32_t r = 0; r < made.dims; ++r)
    for (int32_t c = 0; c <= made.dims; ++c) chain.out[r * (made.dims + 1) + c] = static_cast<float>(made.m[r][c]);
}

#ifdef __CUDACC__
static __global__ void run_chains(const AffineChain* chains, int64_t count) {
  const int64_t n = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (n < count) run_chain(chains[n]);
}
#endif

// make(i, f) is the map of frame f of sample i. Inputs and output are (dims, dims + 1) or (frames, dims, dims + 1); the inputs have one type.
template <class Make>
static void compose_affine(const char* op, const std::vector<Samples>& inputs, const Samples& out, bool reversed, const Make& make) {
  const auto chains = [=](int64_t i, std::vector<AffineChain>& made, std::vector<const void*>& parts) {
    const int64_t frames = out.ndim() == 3 ? out.shape(i)[0] : 1, dims = out.shape(i)[out.ndim() - 2], volume = dims * (dims + 1);
    for (int64_t f = 0; f < frames; ++f) {
      for (const Samples& in : inputs) {
        const int64_t given = in.ndim() == 3 ? in.shape(i)[0] : 1;
        if (given != 1 && given < frames) fail(op, ": sample ", i, " is for ", given, " and for ", frames, " frames");
        parts.push_back(static_cast<const char*>(in.data(i)) + (given > 1 ? f : 0) * volume * in.item_bytes());
      }
      Affine own = make(i, f);
      made.push_back({own, nullptr, static_cast<int64_t>(inputs.size()), static_cast<float*>(out.data(i)) + f * volume,
                      inputs.empty() ? DType::float32 : inputs[0].dtype(), reversed});
    }
  };
#ifdef __CUDACC__
  if (out.values().is_cuda()) {
    std::vector<AffineChain> made;
    std::vector<const void*> parts;
    for (int64_t i = 0; i < out.size(); ++i) chains(i, made, parts);
    if (made.empty()) return;
    parts.push_back(nullptr);
    const CudaTable<const void*> part_table(parts);
    for (size_t n = 0; n < made.size(); ++n) made[n].parts = part_table.data() + n * inputs.size();
    const CudaTable<AffineChain> table(made);
    const int64_t count = static_cast<int64_t>(made.size());
    run_chains<<<static_cast<unsigned>((count + 63) / 64), 64, 0, current_cuda_stream()>>>(table.data(), count);
    return check_launch(op);
  }
#endif
  launch_cpu(op, out.size(), 200.0, {}, [=](int64_t i) {
    std::vector<AffineChain> made;
    std::vector<const void*> parts;
    chains(i, made, parts);
    for (size_t n = 0; n < made.size(); ++n) {
      made[n].parts = parts.data() + n * inputs.size();
      run_chain(made[n]);
    }
  });
}

}  // namespace ndd
