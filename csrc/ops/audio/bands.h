// SPDX-License-Identifier: Apache-2.0
// Linear maps along an axis: out[m] = sum over k of weights[m, k] * in[k], of which a row needs only the k from first to last.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ndd/kernel.h"

namespace ndd::audio {

struct BandRow {
  int32_t first, count;  // of the inputs
  int64_t offset;        // of the first one's weight
};

struct Bands {
  int64_t inputs = 0;
  std::vector<BandRow> rows;
  std::vector<float> weights;
};

using BandsPtr = std::shared_ptr<const Bands>;

// The map for so many inputs. Called by any thread.
using BandsOf = std::function<BandsPtr(int64_t)>;

// Extents before and behind the axis, and of it.
struct AxisShape {
  int64_t outer = 1, extent = 1, inner = 1;
  AxisShape(const Samples& samples, int64_t i, int64_t axis) {
    for (int64_t d = 0; d < samples.ndim(); ++d) (d < axis ? outer : d == axis ? extent : inner) *= samples.shape(i)[d];
  }
};

// Applies bands_of(extent of the axis) to every sample. The tensors are of float32.
void apply_bands_cpu(const std::string& op, const Samples& in, const Samples& out, int64_t axis, double mean_weights, BandsOf bands_of);
#ifdef NDD_CUDA
void apply_bands_gpu(const std::string& op, const Samples& in, const Samples& out, int64_t axis, const BandsOf& bands_of);
#endif

static inline void apply_bands(const std::string& op, const Samples& in, const Samples& out, int64_t axis, double mean_weights, BandsOf bands_of) {
  if (in.dtype() != DType::float32 || out.dtype() != DType::float32) fail(Error::Type, op, ": input and output must be of float32");
  if (axis < 0 || axis >= in.ndim()) fail(Error::Value, op, ": there is no axis ", axis);
#ifdef NDD_CUDA
  if (in.values().is_cuda()) return apply_bands_gpu(op, in, out, axis, bands_of);
#endif
  apply_bands_cpu(op, in, out, axis, mean_weights, std::move(bands_of));
}

}  // namespace ndd::audio
