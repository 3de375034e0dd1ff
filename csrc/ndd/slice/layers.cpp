// SPDX-License-Identifier: Apache-2.0
// The layers driver on the CPU: each box is a Slice, copied from the lowest to the uppermost.
#include "ndd/slice/layers.h"

namespace ndd {

void run_layers_cpu(const Layers& stack, DType in, DType out) {
  const int64_t item = item_bytes(out), channels = stack.channel < 0 ? 1 : stack.extent[stack.channel];
  const Channel unchanged;
  std::vector<char> fills(channels * item);
  // A layer below a box that covers it completely need not be written.
  const auto covers = [&](const Layer& layer) {
    for (int d = 0; d < stack.ndim; ++d)
      if (layer.begin[d] > 0 || layer.end[d] < stack.extent[d]) return false;
    return true;
  };
  size_t first = stack.layers.size();
  while (first > 1 && !covers(stack.layers[first - 1])) --first;
  for (size_t k = first - 1; k < stack.layers.size(); ++k) {
    const Layer& layer = stack.layers[k];
    Slice slice;
    slice.ndim = stack.ndim;
    slice.placed = true;
    slice.cached = k >= first;
    slice.in = layer.in ? layer.in : fills.data();
    slice.origin = layer.in ? layer.origin : 0;
    slice.copies = !layer.in || in == out;
    int64_t to = 0, step = 1;
    for (int d = stack.ndim - 1; d >= 0; step *= stack.extent[d--]) {
      slice.extent[d] = slice.end[d] = layer.end[d] - layer.begin[d];
      slice.begin[d] = 0;
      slice.stride[d] = layer.in ? layer.stride[d] : d == stack.channel ? 1 : 0;
      slice.out_stride[d] = step;
      to += layer.begin[d] * step;
    }
    if (!layer.in) {
      for (int64_t c = 0; c < channels; ++c) store_element(stack.fills[layer.fills + c], fills.data(), out, c);
      if (stack.channel >= 0) slice.origin = layer.begin[stack.channel];
    }
    slice.out = static_cast<char*>(stack.out) + to * item;
    run_slice_cpu(slice, &unchanged, layer.in ? in : out, out);
  }
}

}  // namespace ndd
