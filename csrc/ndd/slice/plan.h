// SPDX-License-Identifier: Apache-2.0
// How the GPU executes a Slice: its axes, merged where both sides are contiguous, become rows of pixels for the kernels in slice.cu.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "ndd/slice/slice.h"

namespace ndd::slice_gpu {

constexpr int kRowAxes = 3;  // axes that count rows; a batch of 256 plans stays below 64 KB, which the driver copies without waiting for the device
constexpr int kMaxPixel = 8;  // elements of a pixel
constexpr int kMaxPitch = 16;  // elements from one pixel to the next in the input
constexpr int64_t kLeastRow = 16;  // in pixels; shorter rows would leave half a warp idle
constexpr int kRowBytes = 4096;  // of the output, copied by a warp at a time
constexpr int kStageBytes = 2048;  // of the input, held by a warp in shared memory
constexpr int kGroupBytes = 4096;  // of several rows that a warp copies one after the other, to share the 200 instructions of finding them
constexpr int kPlane = 32;  // rows and columns of a tile that a warp transposes
constexpr int kMisaligned = 32;  // bytes of the stage lost because a row begins and ends within 16-byte units

enum class Kind {
  copy,  // rows that are contiguous on both sides, moved unchanged
  rows,  // pixels of up to 8 elements, or single elements, in any order within their rows
  planes,  // rows of the input become columns of the output
  general,  // everything else, element by element
};

struct RowAxis {
  int64_t in, out;  // strides in bytes
  uint32_t extent, begin, end;
};

// Strides are in bytes, extents and positions in pixels and elements. A pixel has `pixel` elements, `pixel_in` apart in the input; without pixels it
// is a single element.
struct Plan {
  const char* in;  // the source of position 0; may lie outside the input
  char* out;
  const char *first, *last;  // the readable range of the input
  int64_t channels;  // index of the slice's first Channel
  int64_t length, begin, end, in_step, out_step;  // of a row, in pixels
  int64_t pixel_in, pixel_out;
  RowAxis axes[kRowAxes];
  uint32_t tiles, tile;  // tiles per row; pixels per tile
  uint32_t groups, group;  // groups of rows along the last axis; rows per group
  uint32_t units, first_unit;  // tiles of groups of rows; the number of units in earlier slices
  uint32_t inverse;  // for dividing a number below 2^16 by `pixel`: the quotient is the upper half of their product
  int16_t row_axes, pixel, pixel_begin, pixel_end;
  int16_t channel;  // the row axis of the channels, kPixelAxis, or -1
  int16_t run_bytes;  // of the stage for each element of a pixel if these lie apart in the input, else 0
};

constexpr int16_t kPixelAxis = kRowAxes;

struct Axis {
  int64_t extent, in, out, begin, end;  // strides in elements
  bool channel;
};

// The axes that remain after dropping those of extent 1 and merging contiguous ones; at least one. The channel axis is never merged.
inline int merged_axes(const Slice& slice, Axis* axes) {
  int count = 0;
  bool outside = false;
  for (int d = 0; d < slice.ndim; ++d) {
    const Axis axis{slice.extent[d], slice.stride[d], slice.out_stride[d], slice.begin[d], slice.end[d], d == slice.channel};
    outside = outside || axis.begin >= axis.end;
    if (axis.extent == 1) continue;
    Axis* outer = count > 0 ? &axes[count - 1] : nullptr;
    const bool full = axis.begin == 0 && axis.end == axis.extent;
    if (outer && full && !axis.channel && !outer->channel && outer->in == axis.extent * axis.in && outer->out == axis.extent * axis.out)
      *outer = {outer->extent * axis.extent, axis.in, axis.out, outer->begin * axis.extent, outer->end * axis.extent, false};
    else axes[count++] = axis;
  }
  if (count == 0) axes[count++] = {1, 1, 1, 0, 1, false};
  if (outside) axes[count - 1].begin = axes[count - 1].end = 0;
  return count;
}

// Treats a whole pixel of 2, 4 or 8 aligned bytes that is only moved as a single item. Returns the size of an item in bytes.
inline int64_t merge_pixel(Axis* axes, int& count, uintptr_t in, uintptr_t out, int64_t item) {
  const Axis& last = axes[count - 1];
  const int64_t bytes = last.extent * item, n = last.extent;
  if (count < 2 || last.in != 1 || last.out != 1 || last.begin != 0 || last.end != n || last.channel) return item;
  if ((bytes != 2 && bytes != 4 && bytes != 8) || in % bytes != 0 || out % bytes != 0) return item;
  if (std::any_of(axes, axes + count - 1, [&](const Axis& a) { return a.in % n != 0 || a.out % n != 0; })) return item;
  for (Axis* a = axes; a != axes + count - 1; ++a) a->in /= n, a->out /= n;
  --count;
  return bytes;
}

// Sets the readable range: from the first to the last element that the slice uses. Wide loads must stay inside it.
inline void set_readable(Plan& plan, const Axis* axes, int count, int64_t item) {
  int64_t least = 0, most = 0;
  for (const Axis* a = axes; a != axes + count; ++a) {
    if (a->begin >= a->end) return;
    const int64_t first = a->begin * a->in, last = (a->end - 1) * a->in;
    least += std::min(first, last);
    most += std::max(first, last);
  }
  plan.first = plan.in + least * item;
  plan.last = plan.in + (most + 1) * item;
}

// Whether the axes form rows of pixels; sets `row`, and `pixel` if there is one.
inline bool find_row(const Axis* axes, int count, int& row, int& pixel) {
  row = count - 1;
  pixel = -1;
  if (count >= 2 && axes[row].extent <= kMaxPixel) {
    pixel = row--;  // channels last in the output
  } else if (std::abs(axes[row].in) > 1) {
    for (int d = 0; d < row; ++d)
      if (axes[d].in == 1 && axes[d].extent <= kMaxPixel) pixel = d;  // channels last in the input only
  }
  return std::abs(axes[row].in) <= kMaxPitch && axes[row].extent >= kLeastRow && !axes[row].channel;
}

inline bool add_row_axis(Plan& plan, const Axis& axis, int64_t in_item, int64_t out_item) {
  if (plan.row_axes == kRowAxes || axis.extent > INT32_MAX) return false;
  if (axis.channel) plan.channel = plan.row_axes;
  plan.axes[plan.row_axes++] = {axis.in * in_item, axis.out * out_item, static_cast<uint32_t>(axis.extent), static_cast<uint32_t>(axis.begin),
                                static_cast<uint32_t>(axis.end)};
  return true;
}

// Finds the axis that is contiguous in the input when the last one is contiguous in the output: planes spanned by the two are transposed.
inline bool find_column(const Axis* axes, int count, int& column) {
  for (int d = 0; d < count - 1; ++d)
    if (axes[d].in == 1) column = d;
  return column >= 0 && column < count - 1 && axes[column].in == 1 && axes[column].extent >= kPlane / 4 && axes[count - 1].extent >= kPlane / 4 &&
         axes[count - 1].out == 1 && !axes[count - 1].channel;
}

// Adds all axes except these two.
inline bool add_row_axes(Plan& plan, const Axis* axes, int count, int row, int pixel, int64_t in_item, int64_t out_item) {
  for (int d = 0; d < count; ++d)
    if (d != row && d != pixel && !add_row_axis(plan, axes[d], in_item, out_item)) return false;
  return true;
}

// Sets tiles of about equal length, at most `most` pixels and a multiple of 16 so that they are all aligned alike, and groups of rows with about
// `group` pixels together. False if there are more units than a launch can count.
inline bool set_units(Plan& plan, int64_t most, int64_t group) {
  const int64_t tiles = (plan.length + most - 1) / most;
  plan.tile = static_cast<uint32_t>(std::min(most, ((plan.length + tiles - 1) / tiles + 15) / 16 * 16));
  plan.tiles = static_cast<uint32_t>((plan.length + plan.tile - 1) / plan.tile);
  plan.groups = plan.group = 1;
  int64_t units = plan.tiles;
  for (int d = 0; d < plan.row_axes; ++d) {
    const uint32_t extent = plan.axes[d].extent;
    if (d == plan.row_axes - 1) {
      const int64_t together = std::clamp<int64_t>(group / plan.tile, 1, extent);
      plan.group = d == plan.channel ? 1 : static_cast<uint32_t>(together);
      plan.groups = (extent + plan.group - 1) / plan.group;
      units *= plan.groups;
    } else {
      units *= extent;
    }
    if (units > INT32_MAX) return false;
  }
  plan.units = static_cast<uint32_t>(units);
  return tiles <= INT32_MAX;
}

// Sets `item` to the size of what is moved, if elements are only moved.
inline Kind make_plan(const Slice& slice, int64_t in_item, int64_t out_item, int64_t& item, Plan& plan) {
  Axis axes[kSliceDims];
  int count = merged_axes(slice, axes), row = 0, pixel = 0;
  plan = Plan{};
  plan.in = static_cast<const char*>(slice.in) + slice.origin * in_item;
  plan.out = static_cast<char*>(slice.out);
  plan.channels = slice.channels;
  plan.channel = -1;
  set_readable(plan, axes, count, in_item);
  item = in_item;
  const bool contiguous =
      slice.copies && axes[count - 1].in == 1 && axes[count - 1].out == 1 && axes[count - 1].extent >= kLeastRow && !axes[count - 1].channel;
  if (slice.copies && !contiguous)
    item = in_item = out_item = merge_pixel(axes, count, reinterpret_cast<uintptr_t>(plan.in), reinterpret_cast<uintptr_t>(plan.out), in_item);
  const bool planes = !find_row(axes, count, row, pixel);
  if (planes) {
    row = count - 1;
    if (!slice.copies || item > 4 || !find_column(axes, count, pixel)) return Kind::general;
  }
  if (!add_row_axes(plan, axes, count, row, pixel, in_item, out_item)) return Kind::general;
  const Axis& along = axes[row];
  plan.length = along.extent;
  plan.begin = along.begin;
  plan.end = along.end;
  plan.in_step = along.in * in_item;
  plan.out_step = along.out * out_item;
  plan.pixel = plan.pixel_end = 1;
  if (contiguous && pixel < 0) {  // from here on in bytes
    plan.length *= item;
    plan.begin *= item;
    plan.end *= item;
    plan.in_step = plan.out_step = 1;
    return set_units(plan, kRowBytes, kGroupBytes) ? Kind::copy : Kind::general;
  }
  if (planes) {  // a group of rows along the input's last axis
    plan.pixel = plan.pixel_end = 1;
    return add_row_axis(plan, axes[pixel], in_item, out_item) && set_units(plan, kPlane, kPlane * kPlane) ? Kind::planes : Kind::general;
  }
  int64_t stage = kStageBytes - kMisaligned, row_pixel = 1;
  if (pixel >= 0) {
    const Axis& p = axes[pixel];
    plan.pixel = static_cast<int16_t>(p.extent);
    plan.pixel_begin = static_cast<int16_t>(p.begin);
    plan.pixel_end = static_cast<int16_t>(p.end);
    plan.pixel_in = p.in * in_item;
    plan.pixel_out = p.out * out_item;
    if (p.channel) plan.channel = kPixelAxis;
    if (p.in == 1) {
      row_pixel = p.extent;
    } else {
      plan.run_bytes = static_cast<int16_t>(kStageBytes / p.extent / 16 * 16);
      stage = plan.run_bytes - kMisaligned;
    }
  }
  const int64_t pitch = std::abs(plan.in_step), rest = stage - row_pixel * in_item;
  plan.inverse = plan.pixel > 1 ? 0xFFFFFFFFu / static_cast<uint32_t>(plan.pixel) + 1 : 0;
  return set_units(plan, pitch > 0 ? rest / pitch + 1 : kStageBytes, kGroupBytes / (plan.pixel * std::max(in_item, out_item))) ? Kind::rows
                                                                                                                               : Kind::general;
}

}  // namespace ndd::slice_gpu
