// SPDX-License-Identifier: Apache-2.0
// NumPy broadcasting of a contiguous sample to the shape of a result. Neighboring dimensions are merged, so most samples end up with one
// dimension and need no division per element.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "ndd/error.h"
#include "ndd/hd.h"

namespace ndd {

// Maps the elements of the result, in order, to offsets in an operand. Dimension 0 is the innermost one.
struct Broadcast {
  static constexpr int kMaxDims = 8;  // after merging

  int64_t count = 1;
  int ndim = 0;
  int64_t extent[kMaxDims] = {}, stride[kMaxDims] = {};

  bool operator==(const Broadcast& other) const {
    return count == other.count && ndim == other.ndim && std::equal(extent, extent + ndim, other.extent) &&
           std::equal(stride, stride + ndim, other.stride);
  }

  // The number of elements after which the operand repeats: all of them for a contiguous operand, 1 for a single number, 0 if it does not repeat
  // periodically.
  int64_t period() const {
    int64_t volume = 1;
    int d = 0;
    for (; d < ndim && stride[d] == volume; ++d) volume *= extent[d];
    for (; d < ndim; ++d)
      if (stride[d] != 0) return 0;
    return volume;
  }

  // The operand's offset for element i of the result.
  NDD_HD int64_t locate(int64_t i) const {
    int64_t offset = 0;
    for (int d = 0; d + 1 < ndim; ++d) {
      const int64_t rest = i / extent[d];
      offset += (i - rest * extent[d]) * stride[d];
      i = rest;
    }
    return ndim ? offset + i * stride[ndim - 1] : offset;
  }
};

inline std::string shape_text(const int64_t* shape, int64_t ndim) {
  std::string text;
  for (int64_t d = 0; d < ndim; ++d) text += (d ? " x " : "") + std::to_string(shape[d]);
  return ndim ? text : "scalar";
}

// Returns false if the shapes are incompatible.
inline bool broadcast(const int64_t* shape, int64_t ndim, const int64_t* out_shape, int64_t out_ndim, Broadcast& result) {
  result = {};
  int64_t volume = 1;
  if (ndim > out_ndim) return false;
  for (int64_t d = 1; d <= out_ndim; ++d) {
    const int64_t out = out_shape[out_ndim - d], extent = d <= ndim ? shape[ndim - d] : 1;
    if (extent != out && extent != 1) return false;
    const int64_t stride = extent == 1 ? 0 : volume;
    volume *= extent;
    result.count *= out;
    if (out == 1) continue;
    const int last = result.ndim - 1;
    if (last >= 0 && stride == result.stride[last] * result.extent[last]) {
      result.extent[last] *= out;
      continue;
    }
    if (result.ndim == Broadcast::kMaxDims) fail("an operand is broadcast along too many dimensions");
    result.extent[result.ndim] = out;
    result.stride[result.ndim++] = stride;
  }
  return true;
}

}  // namespace ndd
