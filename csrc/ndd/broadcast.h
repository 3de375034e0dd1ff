// SPDX-License-Identifier: Apache-2.0
// NumPy's broadcasting of two contiguous samples, with neighbouring dimensions merged: most pairs end with one dimension.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "ndd/error.h"
#include "ndd/hd.h"
#include "ndd/samples.h"

namespace ndd {

// The result's elements in order, and where the operands have theirs. Dimension 0 is the innermost one.
struct Broadcast {
  static constexpr int kMaxDims = 8;  // after merging

  int64_t count = 1;
  int ndim = 0;
  int64_t extent[kMaxDims] = {}, stride[2][kMaxDims] = {};

  bool scalar(int operand) const {
    return std::all_of(stride[operand], stride[operand] + ndim, [](int64_t s) { return s == 0; });
  }

  // The number of elements after which an operand repeats: all of them for a contiguous one, 0 when it does not simply repeat.
  int64_t period(int operand) const {
    int64_t volume = 1;
    int d = 0;
    for (; d < ndim && stride[operand][d] == volume; ++d) volume *= extent[d];
    for (; d < ndim; ++d)
      if (stride[operand][d] != 0) return 0;
    return volume;
  }

  // Where element i of the result has its operands.
  NDD_HD void locate(int64_t i, int64_t& left, int64_t& right) const {
    left = right = 0;
    for (int d = 0; d + 1 < ndim; ++d) {
      const int64_t rest = i / extent[d], index = i - rest * extent[d];
      left += index * stride[0][d];
      right += index * stride[1][d];
      i = rest;
    }
    left += i * stride[0][ndim - 1];
    right += i * stride[1][ndim - 1];
  }
};

inline std::string shape_text(const int64_t* shape, int64_t ndim) {
  std::string text;
  for (int64_t d = 0; d < ndim; ++d) text += (d ? " x " : "") + std::to_string(shape[d]);
  return ndim ? text : "scalar";
}

// Sample i of a result with its operands; an operand of one sample serves all of them.
inline Broadcast broadcast(const std::string& op, const Samples& left, const Samples& right, const Samples& out, int64_t i) {
  const Samples* operands[2] = {&left, &right};
  const int64_t* shapes[2];
  for (int k = 0; k < 2; ++k) shapes[k] = operands[k]->shape(operands[k]->size() == 1 ? 0 : i);
  const int64_t* out_shape = out.shape(i);
  Broadcast made;
  int64_t volume[2] = {1, 1};
  for (int64_t d = 1; d <= out.ndim(); ++d) {
    int64_t extents[2], strides[2];
    for (int k = 0; k < 2; ++k) {
      const int64_t ndim = operands[k]->ndim();
      extents[k] = d <= ndim ? shapes[k][ndim - d] : 1;
      strides[k] = extents[k] == 1 ? 0 : volume[k];
      volume[k] *= extents[k];
    }
    const int64_t extent = out_shape[out.ndim() - d];
    if ((extents[0] != extent && extents[0] != 1) || (extents[1] != extent && extents[1] != 1))
      throw Error(Error::Runtime, op + ": Can't broadcast shapes " + shape_text(shapes[0], left.ndim()) + " and " + shape_text(shapes[1], right.ndim()) +
                                      (out.size() > 1 ? " (sample_idx=" + std::to_string(i) + ")" : ""));
    made.count *= extent;
    if (extent == 1) continue;
    const int last = made.ndim - 1;
    if (last >= 0 && strides[0] == made.stride[0][last] * made.extent[last] && strides[1] == made.stride[1][last] * made.extent[last]) {
      made.extent[last] *= extent;
      continue;
    }
    if (made.ndim == Broadcast::kMaxDims) throw Error(Error::Runtime, op + ": the operands alternate in too many dimensions");
    made.extent[made.ndim] = extent;
    for (int k = 0; k < 2; ++k) made.stride[k][made.ndim] = strides[k];
    ++made.ndim;
  }
  if (made.ndim == 0) made.extent[made.ndim++] = 1;
  return made;
}

}  // namespace ndd
