// SPDX-License-Identifier: Apache-2.0
// CUDA side of the stencil driver: what correlation.cu and separable.cu launch for a whole ragged batch. The borders are those of the CPU side.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/stencil/stencil.h"

namespace ndd {
namespace stencil {

// An element for a thread in the first dimension of the grid, an image for every block in the second.
inline dim3 blocks(int64_t elements, int64_t images, int64_t threads = 256) {
  return dim3(static_cast<unsigned>(std::clamp<int64_t>((elements + threads - 1) / threads, 1, 65536)),
              static_cast<unsigned>(std::min<int64_t>(images, 65535)));
}

// An image to be correlated with a window of weights. A weight of 0 takes no part.
struct Correlation {
  const void* in;
  void* out;
  const void* weight;  // of a type of their own: a filter is an input
  const void* fill;    // one number of the type `fill_type`, or null
  Grid in_grid, out_grid;
  Reach reach[3];
};

}  // namespace stencil

// Images that tiles in shared memory are made for go in one launch, others in a second one. correlation.cu
void launch_correlation(const char* op, const std::vector<stencil::Correlation>& images, Border border, DType in, DType out, DType weights,
                        DType fill_type);

// An image and its windows along depth, height and width.
struct SeparableImage {
  Grid grid;
  const void* in;
  void* out;
  const float* add;  // floats to add to the result, or null
  std::array<Window, 3> windows;
};

// Convolves the images along their last `spatial` axes. separable.cu
void launch_separable(const char* op, const std::vector<SeparableImage>& images, int64_t spatial, DType in, DType out);

}  // namespace ndd
