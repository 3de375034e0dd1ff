// SPDX-License-Identifier: Apache-2.0
// Layers driver: an output is made of boxes that lie on each other, each a window of some input or filled. erase and multi_paste are such stacks.
// On the CPU the boxes are copied one after the other; on the GPU every element looks for the uppermost box that it lies in.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "ndd/elements.cuh"
#include "ndd/slice.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#endif

namespace ndd {

// The box [begin, end) of the output.
struct Layer {
  const void* in = nullptr;  // null where the box is filled
  int64_t origin = 0;        // where the box's first element comes from
  int64_t fills = 0;         // the first of its values in Layers::fills: one for each channel, or one for all
  int64_t begin[kSliceDims], end[kSliceDims];
  int64_t stride[kSliceDims];  // in the input

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

struct Layers {
  void* out = nullptr;
  int ndim = 0;
  int channel = -1;  // the axis along which the fills differ
  int64_t extent[kSliceDims];
  std::vector<Layer> layers;  // the uppermost last
  std::vector<float> fills;

  // All of the output, filled or from an input of the same shape.
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

// csrc/ndd/layers_cpu.cpp
void run_layers_cpu(const Layers& stack, DType in, DType out);

#ifdef __CUDACC__
namespace layers_detail {

struct LayersTable {
  void* out;
  int ndim, channel;
  int64_t extent[kSliceDims];
  int64_t first, count, volume;  // layers
  int64_t fills;                 // its first fill
};

// Bound by the lookup where there are many layers: 60 % of the bandwidth is expected for up to four of them and elements of one byte.
static __global__ void run_layers_gpu(const LayersTable* samples, int64_t count, const Layer* layers, const float* fills, DType in, DType out) {
  for (int64_t i = blockIdx.y; i < count; i += gridDim.y) {
    const LayersTable s = samples[i];
    for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < s.volume; e += int64_t{gridDim.x} * blockDim.x) {
      int64_t at[kSliceDims], rest = e;
      for (int d = s.ndim - 1; d >= 0; --d) {
        const int64_t outer = rest / s.extent[d];
        at[d] = rest - outer * s.extent[d];
        rest = outer;
      }
      int64_t k = s.first + s.count - 1;
      while (k > s.first && !layers[k].contains(at, s.ndim)) --k;
      const Layer& layer = layers[k];
      if (layer.in == nullptr) store_element(fills[s.fills + layer.fills + (s.channel < 0 ? 0 : at[s.channel])], s.out, out, e);
      else if (in == out) copy_element(layer.in, layer.source(at, s.ndim), s.out, e, out);
      else store_element(load_element(layer.in, in, layer.source(at, s.ndim)), s.out, out, e);
    }
  }
}

template <class Make>
void launch_layers(const std::string& op, int64_t samples, DType in, DType out, Make make) {
  std::vector<LayersTable> table;
  std::vector<Layer> layers;
  std::vector<float> fills;
  int64_t most = 0;
  for (int64_t i = 0; i < samples; ++i) {
    const Layers stack = make(i);
    LayersTable row{stack.out, stack.ndim, stack.channel, {}, static_cast<int64_t>(layers.size()), static_cast<int64_t>(stack.layers.size()), 1,
                    static_cast<int64_t>(fills.size())};
    for (int d = 0; d < stack.ndim; ++d) row.volume *= row.extent[d] = stack.extent[d];
    most = std::max(most, row.volume);
    table.push_back(row);
    layers.insert(layers.end(), stack.layers.begin(), stack.layers.end());
    fills.insert(fills.end(), stack.fills.begin(), stack.fills.end());
  }
  if (most == 0) return;
  if (fills.empty()) fills.push_back(0.0f);
  const CudaTable<LayersTable> rows(table);
  const CudaTable<Layer> boxes(layers);
  const CudaTable<float> values(fills);
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>((most + 1023) / 1024, 1 << 16)), static_cast<unsigned>(std::min<int64_t>(samples, 65535)));
  run_layers_gpu<<<grid, 256, 0, current_cuda_stream()>>>(rows.data(), samples, boxes.data(), values.data(), in, out);
  check_launch(op.c_str());
}

}  // namespace layers_detail
#endif

// make(i) gives the layers of sample i; the lowest one is all of the output.
template <class Make>
void run_layers(const std::string& op, const Samples& in, const Samples& out, Make make) {
#ifdef __CUDACC__
  if (in.values().is_cuda()) return layers_detail::launch_layers(op, out.size(), in.dtype(), out.dtype(), make);
#endif
  const double each = in.dtype() == out.dtype() ? 0.05 * static_cast<double>(out.item_bytes()) : 0.3;
  launch_cpu(op, out.size(), each * out.mean_volume(), {}, [=](int64_t i) { run_layers_cpu(make(i), in.dtype(), out.dtype()); });
}

}  // namespace ndd
