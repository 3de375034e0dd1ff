// SPDX-License-Identifier: Apache-2.0
// Slice driver: an output is a window of the input, mirrored along some axes, with its axes in another order, normalised and converted, and filled
// where the window leaves the input. crop, flip and crop_mirror_normalize differ only in the Slices that they make.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ndd/hd.h"
#include "ndd/samples.h"
#include "ndd/stream.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#include "ndd/slice.cuh"
#endif

namespace ndd {

constexpr int kSliceDims = 6;

// What happens to the elements of one channel.
struct Channel {
  float mean = 0.0f, scale = 1.0f, shift = 0.0f, fill = 0.0f;

  // Three roundings everywhere, so that every instruction set and the GPU give the same.
  NDD_HD float operator()(float v) const {
#ifdef __CUDA_ARCH__
    return __fadd_rn(__fmul_rn(__fsub_rn(v, mean), scale), shift);
#else
    return (v - mean) * scale + shift;
#endif
  }

  bool identity() const { return mean == 0.0f && scale == 1.0f && shift == 0.0f; }
};

// Positions, extents and strides are in elements; axes are those of the output, which is contiguous.
struct Slice {
  const void* in = nullptr;
  void* out = nullptr;
  int ndim = 0;
  int channel = -1;               // the axis of channels, -1 when all elements are treated alike
  bool copies = true;             // elements are not changed, only moved: no arithmetic, equal types
  int64_t channels = 0;           // the first of its Channels in SliceBatch::channels: one for each channel, or one for all when channel is -1
  int64_t origin = 0;             // where position 0 of the output comes from; may lie outside the input
  int64_t extent[kSliceDims];     // of the output
  int64_t stride[kSliceDims];     // in the input, negative where mirrored
  int64_t begin[kSliceDims];      // output positions [begin, end) lie inside the input
  int64_t end[kSliceDims];

  // The next axis: the window [start, start + extent) of an input axis.
  void add_axis(int64_t extent_, int64_t in_extent, int64_t in_stride, int64_t start, bool mirrored) {
    const int64_t first = mirrored ? start + extent_ - in_extent : -start, last = mirrored ? start + extent_ : in_extent - start;
    origin += (mirrored ? start + extent_ - 1 : start) * in_stride;
    extent[ndim] = extent_;
    stride[ndim] = mirrored ? -in_stride : in_stride;
    begin[ndim] = std::clamp<int64_t>(first, 0, extent_);
    end[ndim] = std::clamp<int64_t>(last, begin[ndim], extent_);
    ++ndim;
  }

  NDD_HD int64_t volume() const {
    int64_t n = 1;
    for (int d = 0; d < ndim; ++d) n *= extent[d];
    return n;
  }
};

struct SliceBatch {
  std::vector<Slice> slices;
  std::vector<Channel> channels;

  void clear() {
    slices.clear();
    channels.clear();
  }
};

// A window of an array: start(axis) and mirrored(axis) are asked for each axis of the input; axis d of the output is axis order[d] of the input.
template <class Start, class Mirrored>
Slice window_slice(const void* in, const int64_t* in_shape, void* out, const int64_t* out_shape, const int* order, int ndim, Start start, Mirrored mirrored) {
  if (ndim > kSliceDims) throw Error(Error::Value, "samples with more than 6 dimensions are not supported");
  int64_t strides[kSliceDims];
  int64_t stride = 1;
  for (int a = ndim - 1; a >= 0; --a) {
    strides[a] = stride;
    stride *= in_shape[a];
  }
  Slice slice;
  slice.in = in;
  slice.out = out;
  for (int d = 0; d < ndim; ++d) {
    const int a = order ? order[d] : d;
    slice.add_axis(out_shape[d], in_shape[a], strides[a], start(a), mirrored(a));
  }
  return slice;
}

// csrc/ndd/slice_cpu.cpp
void run_slice_cpu(const Slice& slice, const Channel* channels, DType in, DType out);

// The slices of every sample: make(i, batch) appends those of sample i. Where `copies` the elements are only moved.
template <class Make>
void run_slices(const std::string& op, const Samples& in, const Samples& out, bool copies, Make make) {
#ifdef __CUDACC__
  if (in.values().is_cuda()) {
    SliceBatch batch;
    for (int64_t i = 0; i < in.size(); ++i) make(i, batch);
    return launch_slices(op, batch, in.dtype(), out.dtype());
  }
#endif
  // Rows of uint8 move at 30 GB/s from the second-level cache; deinterleaving with normalisation gives 15 GB/s of floats.
  const double each = copies ? 0.03 * static_cast<double>(out.item_bytes()) : 0.3;
  const double cost = each * out.mean_volume();
  launch_cpu(op, in.size(), cost, {}, [=](int64_t i) {
    static thread_local SliceBatch batch;
    batch.clear();
    make(i, batch);
    for (const Slice& slice : batch.slices) run_slice_cpu(slice, batch.channels.data() + slice.channels, in.dtype(), out.dtype());
  });
}

}  // namespace ndd
