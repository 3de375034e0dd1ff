// SPDX-License-Identifier: Apache-2.0
// CPU side of the stencil driver: walks the output rows of an image and passes on the input rows that each of them depends on. Every input row is
// staged once (converted, and padded beyond its ends) in a ring of as many rows as the window covers.
//
// A filter therefore supplies just two functions on contiguous rows, which vectorize whatever the number of channels: stage() and combine() of
// for_rows below. They never see a border.
#pragma once

#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

#include "ndd/stencil/stencil.h"

namespace ndd::stencil {

// Uninitialized memory that starts on a cache line: 32-byte loads from other rows would touch two lines and cost twice as much.
template <class S>
class Buffer {
 public:
  explicit Buffer(int64_t size) : data_(static_cast<S*>(::operator new(static_cast<size_t>(size) * sizeof(S), kLine))) {}
  ~Buffer() { ::operator delete(data_, kLine); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  S* get() const { return data_; }

 private:
  static constexpr std::align_val_t kLine{64};
  S* data_;
};

// Rounds a number of elements up to whole cache lines.
template <class S>
int64_t whole_lines(int64_t elements) {
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(S));
  return (elements + kLine - 1) / kLine * kLine;
}

// Extends a staged row of `width` pixels by `before` pixels to the left and `after` to the right. `row` is its first pixel.
template <class S>
void pad_row(S* row, int64_t width, int64_t inner, int64_t before, int64_t after, Border border, S fill) {
  const auto put = [&](int64_t at) {
    const int64_t from = border_index(border, at, width);
    if (from < 0) std::fill_n(row + at * inner, inner, fill);
    else std::copy_n(row + from * inner, inner, row + at * inner);
  };
  for (int64_t k = 1; k <= before; ++k) put(-k);
  for (int64_t k = 0; k < after; ++k) put(width + k);
}

// Prefetches a row that will be staged soon: otherwise the processor waits for memory between rows instead of loading while it computes one.
inline void prefetch_row(const void* row, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(static_cast<const char*>(row) + at);
}

// stage(k, S* staged) prepares input row k (planes one after the other), or for k = -1 a row of the constant border, as `length` elements.
// combine(rows, k) computes output row k from the staged rows in its window, upper rows first, planes outermost.
template <class S, class Stage, class Combine>
void for_rows(const Grid& in, const Grid& out, const Reach& depth, const Reach& height, Border border, int64_t length, Stage stage, Combine combine) {
  // Rows and planes are counted from the first one that a window covers, border included. For a volume, whole planes are kept.
  const int64_t planes = depth.size, slots = planes > 1 ? out.height + height.size - 1 : height.size;
  const int64_t stride = whole_lines<S>(length);
  const Buffer<S> ring(planes * slots * stride);
  std::vector<const S*> rows(planes * height.size);
  // The ring is indexed modulo the number of planes and rows that it holds.
  const auto slot = [&](int64_t z, int64_t y) { return ring.get() + (z % planes * slots + y % slots) * stride; };
  const auto fill = [&](int64_t z, int64_t y) {
    const int64_t plane = border_index(border, z - depth.before, in.depth), row = border_index(border, y - height.before, in.height);
    stage(plane < 0 || row < 0 ? -1 : plane * in.height + row, slot(z, y));
  };
  for (int64_t z = 0, ready_planes = 0; z < out.depth; ++z) {
    // Volumes stage whole planes, because the next output plane needs them again.
    if (planes > 1) {
      for (; ready_planes < z + planes; ++ready_planes)
        for (int64_t y = 0; y < slots; ++y) fill(ready_planes, y);
    }
    for (int64_t y = 0, ready = 0; y < out.height; ++y) {
      if (planes == 1)
        for (; ready < y + height.size; ++ready) fill(z, ready);
      for (int64_t dz = 0; dz < planes; ++dz)
        for (int64_t dy = 0; dy < height.size; ++dy) rows[dz * height.size + dy] = slot(z + dz, y + dy);
      combine(rows.data(), z * out.height + y);
    }
  }
}

}  // namespace ndd::stencil
