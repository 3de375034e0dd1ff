// SPDX-License-Identifier: Apache-2.0
// Linear maps along an axis: out[m] = sum over k of weights[m, k] * in[k]. Rows are bands: weights outside of `count` inputs from `first` on are zero and
// are not stored.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ndd/kernel.h"

namespace ndd::audio {

struct BandRow {
  int32_t first, count;  // of the inputs
  int64_t offset;  // of its weights
};

struct Bands {
  int64_t inputs = 0;
  std::vector<BandRow> rows;
  std::vector<float> weights;
};

using BandsPtr = std::shared_ptr<const Bands>;

// Returns the map for an axis of this extent. Called by any thread.
using BandsOf = std::function<BandsPtr(int64_t)>;

// The shape of a sample around an axis: the product of the extents before it, its own, and the product of those behind it.
struct AxisShape {
  int64_t outer = 1, extent = 1, inner = 1;
  AxisShape(const Samples& samples, int64_t i, int64_t axis) {
    for (int64_t d = 0; d < samples.ndim(); ++d) (d < axis ? outer : d == axis ? extent : inner) *= samples.shape(i)[d];
  }
};

// Applies bands_of(extent of the axis) to every sample. The tensors are float32.
void apply_bands_cpu(const std::string& op, const Samples& in, const Samples& out, int64_t axis, double mean_weights, BandsOf bands_of);
#ifdef NDD_CUDA
void apply_bands_gpu(const std::string& op, const Samples& in, const Samples& out, int64_t axis, const BandsOf& bands_of);
#endif

// `mean_weights`: weights per row of the map, from which the cost is estimated. `outputs_of`: the rows of the map for an axis of this extent. Static,
// because it differs between the CPU's and CUDA's objects.
template <class OutputsOf>
static inline void apply_bands(const std::string& op, const Samples& in, const Samples& out, int64_t axis, double mean_weights, OutputsOf outputs_of,
                               BandsOf bands_of) {
  if (in.dtype() != DType::float32 || out.dtype() != DType::float32) fail(Error::Type, op, ": input and output must be float32");
  if (axis < 0 || axis >= in.ndim()) fail(Error::Value, op, ": axis must be from 0 to ", in.ndim() - 1, ", got ", axis);
  check_outputs(op.c_str(), out, in.size(), [&](int64_t i) {
    const AxisShape shape(in, i, axis);
    const int64_t extents[] = {shape.outer, std::max<int64_t>(outputs_of(shape.extent), 0), shape.inner};
    return count_elements(extents, 1, 3);
  });
#ifdef NDD_CUDA
  if (in.values().is_cuda()) return apply_bands_gpu(op, in, out, axis, bands_of);
#endif
  apply_bands_cpu(op, in, out, axis, mean_weights, std::move(bands_of));
}

}  // namespace ndd::audio
