// SPDX-License-Identifier: Apache-2.0
// Layers driver: an output composed of stacked boxes, each a window of some input or filled. erase and multi_paste are such stacks. On the CPU the
// boxes are copied one after the other; on the GPU every element is taken from the uppermost box that contains it, so nothing is written twice.
//
// The kernel supplies the layers of each sample. Boxes must lie inside the output, and their windows inside their inputs: the driver does not check
// this.
//
// Use it where boxes overlap or leave a background; a single window is a Slice.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "ndd/elementwise/elements.cuh"
#include "ndd/slice/slice.h"

namespace ndd {

// The box [begin, end) of the output.
struct Layer {
  const void* in = nullptr;  // null for a filled box
  int64_t origin = 0;        // the input element of the box's first element
  int64_t fills = 0;         // index of its first value in Layers::fills: one per channel, or one for all
  int64_t begin[kSliceDims], end[kSliceDims];
  int64_t stride[kSliceDims];  // of the input

  NDD_HD bool contains(const int64_t* at, int ndim) const {
    for (int d = 0; d < ndim; ++d)
      if (at[d] < begin[d] || at[d] >= end[d]) return false;
    return true;
  }
  NDD_HD int64_t source(const int64_t* at, int ndim) const {
    int64_t from = origin;
    for (int d = 0; d < ndim; ++d) from += (at[d] - begin[d]) * stride[d];
    return from;
  }
};

// A sample. `layers` and `fills` live on the host; on the GPU the driver uploads those of the whole batch together.
struct Layers {
  void* out = nullptr;
  int ndim = 0;
  int channel = -1;  // the axis along which the fills differ, or -1
  int64_t extent[kSliceDims];
  std::vector<Layer> layers;  // the uppermost last
  std::vector<float> fills;

  // A layer that covers the whole output, filled or from an input of the same shape.
  Layer whole(const void* in) const {
    Layer layer;
    layer.in = in;
    int64_t stride = 1;
    for (int d = ndim - 1; d >= 0; stride *= extent[d--]) {
      layer.begin[d] = 0;
      layer.end[d] = extent[d];
      layer.stride[d] = stride;
    }
    return layer;
  }
};

// csrc/ndd/slice/layers.cpp
void run_layers_cpu(const Layers& stack, DType in, DType out);
#ifdef NDD_CUDA
// csrc/ndd/slice/layers.cu
void run_layers_cuda(const std::string& op, const std::vector<Layers>& stacks, DType in, DType out);
#endif

// make(i) returns the layers of sample i. The lowest layer must cover the whole output.
template <class Make>
static void run_layers(const std::string& op, const Samples& in, const Samples& out, Make make) {
#ifdef NDD_CUDA
  if (in.values().is_cuda()) {
    std::vector<Layers> stacks;
    for (int64_t i = 0; i < out.size(); ++i) stacks.push_back(make(i));
    return run_layers_cuda(op, stacks, in.dtype(), out.dtype());
  }
#endif
  const double each = in.dtype() == out.dtype() ? 0.025 * static_cast<double>(out.item_bytes()) : 0.3;
  launch_cpu(op, out.size(), each * out.mean_volume(), {}, [=](int64_t i) { run_layers_cpu(make(i), in.dtype(), out.dtype()); });
}

}  // namespace ndd
