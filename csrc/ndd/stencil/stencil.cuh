// SPDX-License-Identifier: Apache-2.0
// CUDA side of the stencil driver: what correlation.cu and separable.cu launch for a whole ragged batch. Borders are handled as on the CPU.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/stencil/stencil.h"

namespace ndd {
namespace stencil {

// An image to be correlated with a window of weights. A weight of 0 has no effect.
struct Correlation {
  const void* in;
  void* out;
  const void* weight;  // they have a type of their own, because a filter is an input
  const void* fill;    // one value of type `fill_type`, or null
  Grid in_grid, out_grid;
  Reach reach[3];
};

}  // namespace stencil

// Images that fit in shared-memory tiles go in one launch, the others in a second one. Defined in correlation.cu.
void launch_correlation(const char* op, const std::vector<stencil::Correlation>& images, Border border, DType in, DType out, DType weights,
                        DType fill_type);

// An image and its windows along depth, height and width.
struct SeparableImage {
  Grid grid;
  const void* in;
  void* out;
  const float* add;  // floats to add to the result, or null
  std::array<SymmetricWindow, 3> windows;
};

// Convolves the images along their last `spatial` axes. Defined in separable.cu.
void launch_separable(const char* op, const std::vector<SeparableImage>& images, int64_t spatial, DType in, DType out);

}  // namespace ndd
