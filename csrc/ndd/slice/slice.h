// SPDX-License-Identifier: Apache-2.0
// Slice driver: an output, or a part of it, is a window of the input, optionally mirrored along some axes, with its axes permuted, normalized and
// converted, and filled where the window leaves the input. crop, flip, transpose, cat and others differ only in the Slices that they make.
//
// The kernel supplies make(i, batch), which appends the slices of sample i, and calls run_slices(). The driver guarantees that the input is read only
// inside [begin, end) and the output written only inside its extent, for any alignment and any pair of types. Slices of different samples may run
// concurrently, so their outputs must not overlap.
//
// Use it wherever elements only move: a new operator of this kind says where each axis begins, ends and steps, and has no loop of its own.
// Several boxes on top of each other are layers.h; positions that depend on the data are ops/shape or the warp driver.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ndd/hd.h"
#include "ndd/samples.h"
#include "ndd/stream/stream.h"

namespace ndd {

constexpr int kSliceDims = 8;

// What happens to the elements of one channel.
struct Channel {
  float mean = 0.0f, scale = 1.0f, shift = 0.0f, fill = 0.0f;

  // Three separate roundings, so every instruction set and the GPU give the same result.
  NDD_HD float operator()(float v) const {
#ifdef __CUDA_ARCH__
    return __fadd_rn(__fmul_rn(__fsub_rn(v, mean), scale), shift);
#else
    return (v - mean) * scale + shift;
#endif
  }

  bool identity() const { return mean == 0.0f && scale == 1.0f && shift == 0.0f; }
};

// Positions, extents and strides are in elements. Axes are those of the output, which must be contiguous if a part of it is filled.
struct Slice {
  const void* in = nullptr;
  void* out = nullptr;
  int ndim = 0;
  int channel = -1;  // the channel axis, -1 if all elements are treated alike
  bool placed = false;  // the output is a part of something larger
  bool cached = false;  // the output is in the caches: just written, or the whole call's output fits in the last-level cache
  bool copies = true;  // elements are only moved: no arithmetic, equal types
  bool batched = false;  // axis 0 counts samples, which may be in memory of their own: only what lies between the elements of one may be read
  int64_t channels = 0;  // index of the first of its Channels in SliceBatch::channels: one per channel, or a single one if channel is -1
  int64_t origin = 0;  // the source of position 0 of the output; may lie outside the input
  int64_t extent[kSliceDims];  // of the output
  int64_t stride[kSliceDims];  // in the input; negative if mirrored, 0 if repeated
  int64_t out_stride[kSliceDims];  // set by the caller if `placed`, otherwise by the driver
  int64_t begin[kSliceDims];  // output positions [begin, end) lie inside the input
  int64_t end[kSliceDims];

  // Appends an axis: the window [start, start + extent) of an input axis.
  void add_axis(int64_t extent_, int64_t in_extent, int64_t in_stride, int64_t start, bool mirrored) {
    // A window that lies outside the input is filled, however far away it is.
    start = std::clamp(start, -extent_, in_extent);
    // In positions of the output: where the input begins and ends in the window, seen from the other side if it is mirrored.
    const int64_t first = mirrored ? start + extent_ - in_extent : -start, last = mirrored ? start + extent_ : in_extent - start;
    // Unsigned, where it may wrap around: of arrays without elements, one extent of the output and another one of the input can be anything.
    origin = static_cast<int64_t>(static_cast<uint64_t>(origin) +
                                  static_cast<uint64_t>(mirrored ? start + extent_ - 1 : start) * static_cast<uint64_t>(in_stride));
    extent[ndim] = extent_;
    stride[ndim] = mirrored ? -in_stride : in_stride;
    begin[ndim] = std::clamp<int64_t>(first, 0, extent_);
    end[ndim] = std::clamp<int64_t>(last, begin[ndim], extent_);
    ++ndim;
  }

  void set_out_strides() {
    if (placed) return;
    int64_t step = 1;
    for (int d = ndim - 1; d >= 0; step *= extent[d--]) out_stride[d] = step;
  }

  NDD_HD int64_t volume() const {
    int64_t n = 1;
    for (int d = 0; d < ndim; ++d) n *= extent[d];
    return n;
  }

  // Whether a part of the output lies outside the input.
  bool filled() const {
    for (int d = 0; d < ndim; ++d)
      if (begin[d] > 0 || end[d] < extent[d]) return true;
    return false;
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

inline void check_slice_dims(int64_t ndim) {
  if (ndim > kSliceDims) fail(Error::Value, "samples with more than 8 dimensions are not supported");
}

// A window of an array. start(axis) and mirrored(axis) are called for each input axis; axis d of the output is axis order[d] of the input.
template <class Start, class Mirrored>
Slice window_slice(const void* in, const int64_t* in_shape, void* out, const int64_t* out_shape, const int* order, int ndim, Start start,
                   Mirrored mirrored) {
  check_slice_dims(ndim);
  int64_t strides[kSliceDims];
  int64_t stride = 1;
  for (int a = ndim - 1; a >= 0; --a) {
    strides[a] = stride;
    stride *= in_shape[a];
  }
  Slice slice;
  slice.in = in;
  slice.out = out;
  unsigned taken = 0;
  for (int d = 0; d < ndim; ++d) {
    const int a = order ? order[d] : d;
    // An axis that is not there, or is there twice, would be read beside the array.
    if (a < 0 || a >= ndim || (taken >> a & 1) != 0) fail(Error::Value, "the axes of a slice must be those of its input in some order");
    taken |= 1u << a;
    slice.add_axis(out_shape[d], in_shape[a], strides[a], start(a), mirrored(a));
  }
  return slice;
}

// `count` runs of `length` elements, adjacent in the input and `out_step` apart in the output.
inline Slice run_slice(const void* in, void* out, int64_t count, int64_t length, int64_t out_step) {
  Slice slice;
  slice.in = in;
  slice.out = out;
  slice.add_axis(count, count, length, 0, false);
  slice.add_axis(length, length, 1, 0, false);
  slice.placed = true;
  slice.out_stride[0] = out_step;
  slice.out_stride[1] = 1;
  return slice;
}

// csrc/ndd/slice/slice.cpp
void run_slice_cpu(const Slice& slice, const Channel* channels, DType in, DType out);

// csrc/ndd/slice/slice.cu
void launch_slices(const std::string& op, SliceBatch batch, DType in, DType out);

// Throws unless a slice lies in the memory of the output. Kernels find its place from shapes that only Python has compared.
inline void check_inside(const std::string& op, const Slice& slice, const char* begin, const char* end, int64_t item_bytes) {
  int64_t first = 0, last = 0;
  for (int d = 0; d < slice.ndim; ++d) {
    if (slice.extent[d] <= 0) return;
    const int64_t way = (slice.extent[d] - 1) * slice.out_stride[d];
    (way < 0 ? first : last) += way;
  }
  const char* const out = static_cast<const char*>(slice.out);
  if (first < -((out - begin) / item_bytes) || last >= (end - out) / item_bytes)
    fail(Error::Value, op, ": the output is smaller than what is written to it");
}

// The largest result that is kept in the caches. 16 VGA images exceed it: flipping them vertically takes 0.4 ms instead of 1.0 when they are written
// past the caches.
constexpr double kCachedBytes = 12 << 20;

// Runs the slices of every sample. make(i, batch) appends those of sample i; slices of different samples must not overlap. `copies`: elements are
// only moved.
template <class Make>
static void run_slices(const std::string& op, int64_t samples, const Samples& in, const Samples& out, bool copies, Make make) {
  if (copies && in.dtype() != out.dtype()) fail(Error::Type, op, ": the output must have the type of the input");
  const auto* const begin = static_cast<const char*>(out.values().data_ptr());
  const char* const end = begin + out.values().numel() * out.item_bytes();
#ifdef NDD_CUDA
  if (in.values().is_cuda()) {
    SliceBatch batch;
    batch.slices.reserve(static_cast<size_t>(samples));  // they are large: growing took 4 % of the host's time for a flip of 16 images
    for (int64_t i = 0; i < samples; ++i) make(i, batch);
    for (Slice& slice : batch.slices) {
      slice.set_out_strides();
      check_inside(op, slice, begin, end, out.item_bytes());
    }
    return launch_slices(op, std::move(batch), in.dtype(), out.dtype());
  }
#endif
  // uint8 rows move at 40 GB/s from the L2 cache; deinterleaving with normalization produces 15 GB/s of floats.
  const double each = copies ? 0.025 * static_cast<double>(out.item_bytes()) : 0.3;
  const double cost = samples > 0 ? each * out.mean_volume() * static_cast<double>(out.size()) / static_cast<double>(samples) : 0;
  // Cropping 16 images of 256x320x3 floats to 224 takes 0.2 ms instead of 0.36 if the result stays in the caches.
  const bool cached = out.mean_volume() * static_cast<double>(out.size() * out.item_bytes()) < kCachedBytes;
  launch_cpu(op, samples, cost, {}, [=](int64_t i) {
    static thread_local SliceBatch batch;
    batch.clear();
    make(i, batch);
    for (Slice& slice : batch.slices) {
      slice.set_out_strides();
      check_inside(op, slice, begin, end, out.item_bytes());
      slice.cached = slice.cached || cached;
      run_slice_cpu(slice, batch.channels.data() + slice.channels, in.dtype(), out.dtype());
    }
  });
}

template <class Make>
static void run_slices(const std::string& op, const Samples& in, const Samples& out, bool copies, Make make) {
  run_slices(op, out.size(), in, out, copies, make);
}

}  // namespace ndd
