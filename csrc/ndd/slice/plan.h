// SPDX-License-Identifier: Apache-2.0
// How the GPU executes a Slice: its axes, merged where both sides are contiguous, become rows of pixels for the kernels in slice.cu.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "ndd/slice/slice.h"

namespace ndd::slice_gpu {

constexpr int kRowAxes = 4;  // axes that count rows: three of a sample, and the batch
constexpr int kMaxPixel = 8;  // elements of a pixel
constexpr int kMaxPitch = 16;  // elements from one pixel to the next in the input
constexpr int64_t kLeastRow = 16;  // in pixels; shorter rows would leave half a warp idle
constexpr int kRowBytes = 4096;  // of the output, copied by a warp at a time
constexpr int kRunBytes = 2048;  // of the input's row, so at least two rows fit in the stage
constexpr int kStageBytes = 4096;  // of the input, held by a warp in shared memory: several short rows, all of whose loads are in flight together
constexpr int kGroupBytes =
    4096;  // of several rows that a warp copies together: eight loads of each thread, and the 200 instructions of finding them
constexpr int kMisaligned = 32;  // bytes of the stage lost because a row begins and ends within 16-byte units
constexpr int kPlaneRows = 32;  // rows of a tile that a warp transposes
constexpr int kPlaneBytes = 96;  // of such a row: 32 pixels of 3 bytes, 8 of 12
constexpr int kMaxPlanePixel = 24;  // bytes

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

// What slices of equal shapes share. Strides are in bytes, extents and positions in pixels and elements. A pixel has `pixel` elements, `pixel_in`
// apart in the input; without pixels it is a single element. Where planes are transposed, `pixel` is in bytes.
struct Plan {
  int64_t first, last;  // the readable range of the input, from position 0 on
  int64_t channels;  // index of the slice's first Channel
  int64_t length, begin, end, in_step, out_step;  // of a row, in pixels
  int64_t pixel_in, pixel_out;
  RowAxis axes[kRowAxes];
  uint32_t tiles, tile;  // tiles per row; pixels per tile
  uint32_t groups, group;  // groups of rows along the last axis; rows per group
  uint32_t units;  // tiles of groups of rows
  uint32_t inverse;  // for dividing a number below 2^16 by `pixel`: the quotient is the upper half of their product
  int16_t row_axes, pixel, pixel_begin, pixel_end;
  int16_t channel;  // the row axis of the channels, kPixelAxis, or -1
  int16_t item;  // bytes of an element of the input
  int16_t run_bytes;  // of the stage for each element of a pixel if these lie apart in the input, else 0
  int16_t row_bytes;  // of the stage for a row
  int16_t batched;  // whether the first row axis counts samples, each with a readable range of its own
};

// A slice: all that differs between samples of equal shapes.
struct Place {
  const char* in;  // the source of position 0; may lie outside the input
  char* out;
  uint32_t plan, first_unit;  // the number of units in earlier slices
};

constexpr int16_t kPixelAxis = kRowAxes;

struct Axis {
  int64_t extent, in, out, begin, end;  // strides in elements
  bool channel;
};

// The axes that remain after dropping those of extent 1 and merging contiguous ones; at least one. The channel axis is never merged.
// An output that lies outside the input along any axis has nothing inside: the last axis then says so for all.
inline int merged_axes(const Slice& slice, Axis* axes) {
  int count = 0;
  bool outside = false;
  for (int d = 0; d < slice.ndim; ++d) {
    const Axis axis{slice.extent[d], slice.stride[d], slice.out_stride[d], slice.begin[d], slice.end[d], d == slice.channel};
    outside = outside || axis.begin >= axis.end;
    if (axis.extent == 1) continue;
    Axis* outer = count > 0 ? &axes[count - 1] : nullptr;
    const bool full = axis.begin == 0 && axis.end == axis.extent;
    // A window that covers the inner axis completely is a window of the merged axis; a narrower one would have gaps in it.
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
  // From now on strides count items of a whole pixel.
  for (Axis* a = axes; a != axes + count - 1; ++a) a->in /= n, a->out /= n;
  --count;
  return bytes;
}

// Sets the readable range: from the first to the last element that the slice uses, in one sample if axis 0 counts these. Wide loads must stay
// inside it.
inline void set_readable(Plan& plan, const Axis* axes, int count, int64_t item) {
  int64_t least = 0, most = 0;
  for (const Axis* a = axes + plan.batched; a != axes + count; ++a) {
    if (a->begin >= a->end) return;
    // A mirrored axis has a negative stride, so its last position has the lowest address.
    const int64_t first = a->begin * a->in, last = (a->end - 1) * a->in;
    least += std::min(first, last);
    most += std::max(first, last);
  }
  plan.first = least * item;
  plan.last = (most + 1) * item;
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
  // Elements further apart would fill the stage with bytes that are not used.
  return std::abs(axes[row].in) <= kMaxPitch && axes[row].extent >= kLeastRow && !axes[row].channel;
}

inline bool add_row_axis(Plan& plan, const Axis& axis, int64_t in_item, int64_t out_item) {
  if (plan.row_axes == kRowAxes || axis.extent > INT32_MAX) return false;
  if (axis.channel) plan.channel = plan.row_axes;
  plan.axes[plan.row_axes++] = {axis.in * in_item, axis.out * out_item, static_cast<uint32_t>(axis.extent), static_cast<uint32_t>(axis.begin),
                                static_cast<uint32_t>(axis.end)};
  return true;
}

// Finds the planes to transpose: `row` is contiguous in the output and `column` in the input, both in steps of a pixel, which is the last axis or a
// single element.
inline bool find_planes(const Axis* axes, int count, int64_t item, int& row, int& column, int& pixel) {
  const Axis& last = axes[count - 1];
  // Whole pixels are moved together only if they are contiguous on both sides.
  const bool pixels = count >= 3 && last.extent <= kMaxPixel && last.in == 1 && last.out == 1 && last.begin == 0 && last.end == last.extent;
  const int64_t elements = pixels ? last.extent : 1;
  pixel = pixels ? count - 1 : -1;
  row = pixels ? count - 2 : count - 1;
  column = -1;
  for (int d = 0; d < row; ++d)
    if (axes[d].in == elements) column = d;
  // Narrower planes would leave most lanes of a tile idle.
  return column >= 0 && elements * item <= kMaxPlanePixel && axes[column].extent >= kPlaneRows / 4 && axes[row].extent >= kPlaneRows / 4 &&
         axes[row].out == elements && !axes[row].channel;
}

// Adds all axes but these.
inline bool add_row_axes(Plan& plan, const Axis* axes, int count, int row, int pixel, int column, int64_t in_item, int64_t out_item) {
  for (int d = 0; d < count; ++d)
    if (d != row && d != pixel && d != column && !add_row_axis(plan, axes[d], in_item, out_item)) return false;
  return true;
}

// Sets tiles of about equal length, at most `most` pixels and a multiple of 16 so that they are all aligned alike. False if a launch cannot count them.
inline bool set_tiles(Plan& plan, int64_t most) {
  const int64_t tiles = (plan.length + most - 1) / most;
  if (tiles > INT32_MAX) return false;
  plan.tile = static_cast<uint32_t>(std::min(most, ((plan.length + tiles - 1) / tiles + 15) / 16 * 16));
  plan.tiles = static_cast<uint32_t>((plan.length + plan.tile - 1) / plan.tile);
  return true;
}

// Sets groups of up to `together` rows. False if there are more units than a launch can count.
inline bool set_groups(Plan& plan, int64_t together) {
  plan.groups = plan.group = 1;
  int64_t units = plan.tiles;
  for (int d = 0; d < plan.row_axes; ++d) {
    const uint32_t extent = plan.axes[d].extent;
    // Only rows along the last axis are grouped: their distance is the same within a group.
    if (d == plan.row_axes - 1) {
      plan.group = d == plan.channel ? 1 : static_cast<uint32_t>(std::clamp<int64_t>(together, 1, extent));
      plan.groups = (extent + plan.group - 1) / plan.group;
      units *= plan.groups;
    } else {
      units *= extent;
    }
    // Checked after each factor, so the product cannot overflow.
    if (units > INT32_MAX) return false;
  }
  plan.units = static_cast<uint32_t>(units);
  return true;
}

// A row of single elements along an axis.
inline void set_row(Plan& plan, const Axis& along, int64_t in_item, int64_t out_item) {
  plan.length = along.extent;
  plan.begin = along.begin;
  plan.end = along.end;
  plan.in_step = along.in * in_item;
  plan.out_step = along.out * out_item;
  plan.pixel = plan.pixel_end = 1;
}

// Rows that are contiguous on both sides, in bytes.
inline bool plan_copy(Plan& plan, const Axis* axes, int count, int64_t item) {
  if (!add_row_axes(plan, axes, count, count - 1, -1, -1, item, item)) return false;
  set_row(plan, axes[count - 1], item, item);
  // In bytes, whatever the type: copying needs no elements.
  plan.length *= item;
  plan.begin *= item;
  plan.end *= item;
  plan.in_step = plan.out_step = 1;
  return set_tiles(plan, kRowBytes) && set_groups(plan, kGroupBytes / plan.tile);
}

// Groups of rows are along the input's last axis.
inline bool plan_planes(Plan& plan, const Axis* axes, int count, int row, int column, int pixel, int64_t item) {
  if (!add_row_axes(plan, axes, count, row, pixel, column, item, item)) return false;
  set_row(plan, axes[row], item, item);
  const int64_t bytes = (pixel < 0 ? 1 : axes[pixel].extent) * item;
  if (pixel >= 0 && axes[pixel].channel) plan.channel = kPixelAxis;
  plan.pixel = static_cast<int16_t>(bytes);
  return add_row_axis(plan, axes[column], item, item) && set_tiles(plan, kPlaneRows) && set_groups(plan, kPlaneBytes / bytes);
}

inline bool plan_rows(Plan& plan, const Axis* axes, int count, int row, int pixel, int64_t in_item, int64_t out_item) {
  if (!add_row_axes(plan, axes, count, row, pixel, -1, in_item, out_item)) return false;
  set_row(plan, axes[row], in_item, out_item);
  int64_t run = kRunBytes - kMisaligned, row_pixel = 1, runs = 1;
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
      runs = p.extent;
      // The elements of a pixel lie in runs of their own, which share the stage; each begins at a multiple of 16 bytes.
      run = kRunBytes / runs / 16 * 16 - kMisaligned;
    }
  }
  // The reciprocal, rounded up: the upper half of its product with a number below 2^16 is the exact quotient, without a division on the GPU.
  plan.inverse = plan.pixel > 1 ? 0xFFFFFFFFu / static_cast<uint32_t>(plan.pixel) + 1 : 0;
  const int64_t pitch = std::abs(plan.in_step), rest = run - row_pixel * in_item;
  if (!set_tiles(plan, pitch > 0 ? rest / pitch + 1 : kRowBytes)) return false;
  // The bytes of a run, which may begin and end anywhere within 16.
  const int64_t most = std::min<int64_t>(plan.tile, plan.length), span = (most - 1) * pitch + row_pixel * in_item,
                staged = (span + 15 + 15) / 16 * 16;
  plan.run_bytes = static_cast<int16_t>(runs > 1 ? staged : 0);
  plan.row_bytes = static_cast<int16_t>(staged * runs);
  const int64_t written = kRowBytes * 4 / std::max<int64_t>(1, plan.pixel * out_item * plan.tile);  // up to 16 KB: one byte read may become four
  return set_groups(plan, std::min<int64_t>(kStageBytes / plan.row_bytes, std::max<int64_t>(1, written)));
}

// Sets `item` to the size of what is moved, if elements are only moved.
inline Kind make_plan(const Slice& slice, int64_t in_item, int64_t out_item, int64_t& item, Plan& plan) {
  Axis axes[kSliceDims];
  int count = merged_axes(slice, axes), row = 0, pixel = -1, column = -1;
  plan = Plan{};
  plan.channels = slice.channels;
  plan.channel = -1;
  item = in_item;
  // Samples one behind the other may have become a single axis, which can be read as a whole.
  const bool batched = slice.batched && count > 1 && axes[0].extent == slice.extent[0];
  const auto planned = [&](Kind kind, auto add) {
    plan.batched = batched && row != 0 && pixel != 0 && column != 0;
    set_readable(plan, axes, count, in_item);
    return add() ? kind : Kind::general;
  };
  const Axis& last = axes[count - 1];
  // From the cheapest kind to the most general one; the first that fits is taken.
  if (slice.copies && last.in == 1 && last.out == 1 && last.extent >= kLeastRow && !last.channel) {
    row = count - 1;
    return planned(Kind::copy, [&] { return plan_copy(plan, axes, count, in_item); });
  }
  if (slice.copies) {
    const auto in = reinterpret_cast<uintptr_t>(slice.in) + slice.origin * in_item, out = reinterpret_cast<uintptr_t>(slice.out);
    item = in_item = out_item = merge_pixel(axes, count, in, out, in_item);
  }
  plan.item = static_cast<int16_t>(item);
  if (find_row(axes, count, row, pixel)) return planned(Kind::rows, [&] { return plan_rows(plan, axes, count, row, pixel, in_item, out_item); });
  if (!slice.copies || !find_planes(axes, count, item, row, column, pixel)) return Kind::general;
  return planned(Kind::planes, [&] { return plan_planes(plan, axes, count, row, column, pixel, item); });
}

}  // namespace ndd::slice_gpu
