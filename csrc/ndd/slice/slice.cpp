// SPDX-License-Identifier: Apache-2.0
// The slice driver on the CPU. Whatever lies outside the input is filled; the rest is a box with strides on both sides. Its axes are merged where
// they are contiguous, which makes rows as long as possible: crops and vertical flips become memcpy. Where rows of the input are columns of the
// output, planes are transposed.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ndd/elementwise/elements.cuh"
#include "ndd/elementwise/rows.h"
#include "ndd/simd.h"
#include "ndd/slice/rows.h"
#include "ndd/slice/slice.h"
#include "ndd/slice/transpose.h"

namespace ndd {
namespace {

struct Axis {
  int64_t extent, in, out;  // strides in elements
};

// The elements of a slice that come from its input, with as few and as long axes as possible, the outermost first. `src` and `dst` point at the
// first of them.
struct Box {
  const char* src = nullptr;
  char* dst = nullptr;
  int ndim = 0;
  int channel = -1;
  Axis axes[kSliceDims];
  bool empty = false;

  const Axis& last() const { return axes[ndim - 1]; }
};

// The part of the output that comes from the input. Axes of extent 1 are dropped and contiguous ones merged; a channel axis stays separate.
Box inner_box(const Slice& slice, bool keep_channel, int64_t in_bytes, int64_t out_bytes) {
  Box box;
  int64_t from = slice.origin, to = 0;
  for (int d = 0; d < slice.ndim; ++d) {
    const Axis axis{slice.end[d] - slice.begin[d], slice.stride[d], slice.out_stride[d]};
    // Positions move to the first element inside before the axis may be dropped.
    from += slice.begin[d] * axis.in;
    to += slice.begin[d] * axis.out;
    box.empty = box.empty || axis.extent <= 0;
    if (axis.extent == 1) continue;
    const bool is_channel = keep_channel && d == slice.channel;
    if (box.ndim > 0 && !is_channel && box.channel != box.ndim - 1) {
      Axis& outer = box.axes[box.ndim - 1];
      // Both sides step over exactly one inner axis, so the two axes together are one longer axis.
      if (outer.in == axis.extent * axis.in && outer.out == axis.extent * axis.out) {
        outer = {outer.extent * axis.extent, axis.in, axis.out};
        continue;
      }
    }
    if (is_channel) box.channel = box.ndim;
    box.axes[box.ndim++] = axis;
  }
  // Channels that are last only because all other axes have extent 1 (planes of one pixel) must not be treated as interleaved.
  if (box.ndim == 0 || (box.channel == box.ndim - 1 && box.last().out != 1)) box.axes[box.ndim++] = {1, 1, 1};
  if (box.empty) return box;
  box.src = static_cast<const char*>(slice.in) + from * in_bytes;
  box.dst = static_cast<char*>(slice.out) + to * out_bytes;
  return box;
}

// Calls f(element offset in the input, in the output, channel) for every position of the first `outer` axes.
template <class F>
void for_each_row(const Box& box, int outer, F f) {
  int64_t at[kSliceDims] = {}, from = 0, to = 0;
  for (;;) {
    f(from, to, box.channel >= 0 && box.channel < outer ? at[box.channel] : 0);
    // An odometer: the last axis advances first, and an axis that is full returns to its begin and advances the one before it. Offsets follow by
    // additions.
    int d = outer - 1;
    for (; d >= 0; --d) {
      const Axis& axis = box.axes[d];
      from += axis.in;
      to += axis.out;
      if (++at[d] < axis.extent) break;
      from -= axis.in * axis.extent;
      to -= axis.out * axis.extent;
      at[d] = 0;
    }
    if (d < 0) return;
  }
}

// Transposes planes if an axis before `row` is contiguous in the input, in items of `bytes`, and `row` is contiguous in the output. False, without
// effect, otherwise.
bool transpose_box(const Box& box, int row, int64_t item, int64_t bytes) {
  const Axis last = box.axes[row];
  if (last.in * item == bytes || last.in == 0 || last.out * item != bytes) return false;
  // The axis that is contiguous in the input. Reading along it and writing along `row` keeps both sides in whole cache lines.
  int side = row - 1;
  while (side >= 0 && box.axes[side].in * item != bytes) --side;
  if (side < 0 || !transpose::has_items_of(bytes)) return false;
  const Axis columns = box.axes[side];
  // What is left after taking both axes of the plane out: the positions at which planes begin.
  Box planes = box;
  std::copy(box.axes + side + 1, box.axes + row, planes.axes + side);
  for_each_row(planes, row - 1, [&](int64_t from, int64_t to, int64_t) {
    transpose::move_plane({box.src + from * item, last.in * item, box.dst + to * item, columns.out * item, last.extent, columns.extent}, bytes);
  });
  return true;
}

// In bytes.
constexpr int64_t kLongRow = 1 << 16;

// `cached`: the output is in the caches. Non-temporal stores would evict it: pasting three float32 images takes 1.1 ms instead of 0.75.
// In this order: transpositions, results that bypass the caches, mirrored rows, contiguous rows, repeated elements, and items with any strides.
void copy_box(const Box& box, int64_t item, bool cached) {
  int row = box.ndim - 1;
  int64_t bytes = item;
  if (row > 0 && box.last().in == 1 && box.last().out == 1 && box.last().extent * item <= 16) bytes *= box.axes[row--].extent;  // a pixel is one item
  if (transpose_box(box, row, item, bytes)) return;
  const Axis& axis = box.axes[row];
  const int64_t length = axis.extent * bytes, ahead = row > 0 ? slice::kRowsAhead * box.axes[row - 1].in : 0;
  // The prefetcher recognizes rows in memory order, even with gaps. Prefetching them explicitly as well made cropping 16 float32 VGA images take 4.7
  // to 10 ms instead of 2.8 to 4.2.
  const bool forward = ahead == 0 || (ahead > 0 && axis.in > 0);
  // Gaps or long rows: the hardware's prefetcher follows them, or has time to start over in each row.
  const bool foreseen = std::abs(axis.in * item) != bytes || length >= kLongRow || forward;
  const int64_t lowest = std::min<int64_t>(axis.in, 0) * (axis.extent - 1) + ahead;
  // Longer rows are left to memcpy, which chooses the best way itself.
  if (!cached && axis.out * item == bytes && length < kLongRow && slice::streams(box.axes[0].extent * box.axes[0].out * item)) {
    for_each_row(box, row, [&](int64_t from, int64_t to, int64_t) {
      if (!foreseen) slice::fetch(box.src + (from + lowest) * item, length);
      slice::move_streamed(box.src + from * item, axis.in * item, box.dst + to * item, axis.extent, bytes);
    });
    return slice::finish_stream();
  }
  // The functions below take all rows of a plane together, which saves a call for each row and lets them fetch the next rows ahead.
  const Axis rows = row > 0 ? box.axes[row - 1] : Axis{1, 0, 0};
  const int64_t fetched = foreseen ? 0 : ahead * item;
  if (slice::mirrors(axis.in * item, axis.out * item, bytes)) {
    for_each_row(box, std::max(row - 1, 0), [&](int64_t from, int64_t to, int64_t) {
      slice::mirror_rows(box.src + from * item, rows.in * item, box.dst + to * item, rows.out * item, rows.extent, axis.extent, bytes, fetched);
    });
    return;
  }
  if (axis.in * item == bytes && axis.out * item == bytes) {
    for_each_row(box, std::max(row - 1, 0), [&](int64_t from, int64_t to, int64_t) {
      slice::copy_rows(box.src + from * item, rows.in * item, box.dst + to * item, rows.out * item, rows.extent, length, fetched);
    });
    return;
  }
  // Strides of zero repeat one element, as in a broadcast.
  if (axis.in == 0 && axis.out * item == bytes) {
    for_each_row(box, std::max(row - 1, 0), [&](int64_t from, int64_t to, int64_t) {
      slice::repeat_rows(box.src + from * item, rows.in * item, box.dst + to * item, rows.out * item, rows.extent, axis.extent, bytes);
    });
    return;
  }
  for_each_row(box, row, [&](int64_t from, int64_t to, int64_t) {
    if (!foreseen) slice::fetch(box.src + (from + lowest) * item, length);
    slice::move_items(box.src + from * item, axis.in * item, box.dst + to * item, axis.out * item, axis.extent, bytes);
  });
}

// Elements staged in the L1 cache; pixels with more channels make the rows longer.
constexpr int64_t kStaged = 2048;

void normalize(const float* in, int64_t n, const Channel& channel, float* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const float* __restrict src = in;
    float* __restrict dst = out;
    const int64_t count = n;
    const Channel f = channel;
    for (int64_t i = 0; i < count; ++i) dst[i] = f(src[i]);
  });
}

// The same with values that repeat along the row: the members of Channel, each in a row of its own.
void normalize(const float* in, int64_t n, const float* mean, const float* scale, float shift, float* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const float* __restrict src = in, * __restrict means = mean, * __restrict scales = scale;
    float* __restrict dst = out;
    const int64_t count = n;
    const float add = shift;
    for (int64_t i = 0; i < count; ++i) dst[i] = Channel{means[i], scales[i], add, 0.0f}(src[i]);
  });
}

// Any types and strides: gathers, converts to float, normalizes, converts and scatters.
void convert_box(const Box& box, const Channel* channels, DType in, DType out) {
  const int64_t in_bytes = item_bytes(in), out_bytes = item_bytes(out);
  const bool channels_last = box.channel == box.ndim - 1;
  const int64_t width = channels_last ? box.last().extent : 1, channel_in = channels_last ? box.last().in : 1;
  const int row = channels_last ? box.ndim - 2 : box.ndim - 1;
  const Axis axis = row >= 0 ? box.axes[row] : Axis{1, width, width};
  const int64_t chunk = std::min(axis.extent, std::max<int64_t>(1, kStaged / width)), staged = chunk * width;

  thread_local std::vector<float> floats;
  thread_local std::vector<char> items;
  floats.resize(4 * staged);
  const int64_t gathered_bytes = (staged * in_bytes + 7) / 8 * 8;  // so that the converted items after them are aligned
  items.resize(gathered_bytes + staged * out_bytes);
  float *values = floats.data(), *normalized = values + staged, *mean = normalized + staged, *scale = mean + staged;
  char *gathered = items.data(), *converted = gathered + gathered_bytes;
  if (channels_last) {
    for (int64_t k = 0; k < staged; ++k) {
      // Repeated along the row, so the loop that normalizes needs no index modulo the number of channels and is vectorized.
      mean[k] = k < width ? channels[k].mean : mean[k - width];
      scale[k] = k < width ? channels[k].scale : scale[k - width];
    }
  }
  const LoadRow load = row_loader(in);
  const StoreRow store = row_storer(out);
  // Rows that are contiguous on a side are loaded or stored in place, without the copy into `items`.
  const bool direct_in = axis.in == width && channel_in == 1, direct_out = axis.out == width;
  if (direct_in && direct_out && !channels_last && in == DType::float32 && out == DType::float32) {
    for_each_row(box, std::max(row, 0), [&](int64_t from, int64_t to, int64_t channel) {
      normalize(reinterpret_cast<const float*>(box.src) + from, axis.extent * width, channels[channel], reinterpret_cast<float*>(box.dst) + to);
    });
    return;
  }
  for_each_row(box, std::max(row, 0), [&](int64_t from, int64_t to, int64_t channel) {
    for (int64_t x = 0; x < axis.extent; x += chunk) {
      const int64_t pixels = std::min(chunk, axis.extent - x), n = pixels * width;
      const char* src = box.src + (from + x * axis.in) * in_bytes;
      char* dst = box.dst + (to + x * axis.out) * out_bytes;
      if (channel_in == 1 && !direct_in) {
        slice::move_items(src, axis.in * in_bytes, gathered, width * in_bytes, pixels, width * in_bytes);
      } else if (!direct_in) {
        // Channels that lie apart in the input are gathered one by one into whole pixels.
        for (int64_t c = 0; c < width; ++c)
          slice::move_items(src + c * channel_in * in_bytes, axis.in * in_bytes, gathered + c * in_bytes, width * in_bytes, pixels, in_bytes);
      }
      load(direct_in ? src : gathered, n, values);
      if (channels_last) normalize(values, n, mean, scale, channels[0].shift, normalized);
      else normalize(values, n, channels[channel], normalized);
      store(normalized, n, direct_out ? dst : converted);
      if (!direct_out) slice::move_items(converted, width * out_bytes, dst, axis.out * out_bytes, pixels, width * out_bytes);
    }
  });
}

// uint8 pixels of three channels to planes: the usual last step before a network.
bool splits_pixels(const Box& box, DType in) {
  if (in != DType::uint8 || box.channel < 0 || box.channel == box.ndim - 1) return false;
  const Axis &channel = box.axes[box.channel], &last = box.last();
  return channel.extent == 3 && channel.in == 1 && (last.in == 3 || last.in == -3) && last.out == 1;
}

void split_box(const Box& box, const Channel* channels, DType out) {
  const int64_t plane = box.axes[box.channel].out, out_bytes = item_bytes(out);
  const Axis last = box.last();
  const slice::Planes planes{{channels[0], channels[1], channels[2]}, last.in < 0};
  Box rows = box;
  // Without the channel axis: all three planes are written at each position of the others.
  std::copy(rows.axes + box.channel + 1, rows.axes + box.ndim, rows.axes + box.channel);
  rows.ndim -= 1;
  rows.channel = -1;
  const StoreRow store = row_storer(out);
  for_each_row(rows, rows.ndim - 1, [&](int64_t from, int64_t to, int64_t) {
    const auto* src = reinterpret_cast<const uint8_t*>(box.src) + from;
    if (out == DType::float32) {
      float* dst = reinterpret_cast<float*>(box.dst) + to;
      slice::split_pixels(planes, src, last.extent, {dst, dst + plane, dst + 2 * plane});
      return;
    }
    constexpr int64_t kChunk = 512;
    alignas(64) float staged[3][kChunk];
    for (int64_t x = 0; x < last.extent; x += kChunk) {
      const int64_t n = std::min(kChunk, last.extent - x);
      slice::split_pixels(planes, src + x * last.in, n, {staged[0], staged[1], staged[2]});
      for (int c = 0; c < 3; ++c) store(staged[c], n, box.dst + (to + x + c * plane) * out_bytes);
    }
  });
}

// Fills what lies outside the input, in memory order and in runs as long as the output's layout allows. Short rows are filled completely, including
// the part that the input overwrites afterwards: separate runs for their ends take longer than writing them twice. Fills that differ by channel
// repeat with a period that divides each run's offset, so runs are copied from a row that holds several periods.
class Outside {
 public:
  Outside(const Slice& slice, const Channel* channels, DType out) : slice_(slice), bytes_(item_bytes(out)) {
    int64_t volume = 1;
    for (int d = slice.ndim - 1; d >= 0; --d) {
      inner_[d] = volume;
      volume *= slice.extent[d];
      // The last axis that leaves the input. Everything after it is written in one run.
      if (deepest_ < 0 && (slice.begin[d] != 0 || slice.end[d] != slice.extent[d])) deepest_ = d;
    }
    if (volume == 0) deepest_ = -1;
    if (deepest_ < 0) return;
    covers_ = deepest_ > 0 && slice.extent[deepest_] * inner_[deepest_] * bytes_ <= kShortRow;
    if (covers_) --deepest_;
    const int64_t count = slice.channel < 0 ? 1 : slice.extent[slice.channel];
    items_.resize(count);
    // Converted once; from here on fills are bytes of the output's type.
    for (int64_t c = 0; c < count; ++c) store_element(channels[c].fill, &items_[c], out, 0);
    const bool same = std::all_of(&items_[0], &items_[0] + count, [&](int64_t item) { return std::memcmp(&item, &items_[0], bytes_) == 0; });
    if (!same) channel_ = slice.channel;
    if (same || deepest_ > channel_) return;  // each run lies within one channel
    const int64_t run = inner_[channel_], period = count * run * bytes_;
    if (period >= kPattern) return;  // the period is as long as a run of a single value needs to be
    pattern_.resize((kPattern + period - 1) / period * period);
    char* to = pattern_.data();
    for (int64_t c = 0; c < count; ++c, to += run * bytes_) slice::repeat_item(reinterpret_cast<const char*>(&items_[c]), to, run, bytes_);
    const auto written = static_cast<size_t>(to - pattern_.data());
    for (size_t k = written; k < pattern_.size(); ++k) pattern_[k] = pattern_[k - written];
  }

  void fill() const {
    if (deepest_ >= 0) fill(0, 0, 0);
  }

 private:
  static constexpr int64_t kPattern = 4096;
  static constexpr int64_t kShortRow = 64;  // 8 images of 321x213 padded from three channels to four take 0.26 ms instead of 2.1

  // Fills axis d from element `start` on, and recursively what the later axes leave out of its inner part.
  void fill(int d, int64_t start, int64_t channel) const {
    const int64_t begin = slice_.begin[d], end = slice_.end[d], step = inner_[d];
    if (covers_ && d == deepest_) return write(d, start, 0, slice_.extent[d], channel);
    if (d + 1 == deepest_ && !covers_ && (channel_ < 0 || d > channel_) && begin < end) return fill_between_rows(d, start, channel);
    // In front of the input, then what deeper axes leave out within it, then behind the input: in the order of the memory.
    write(d, start, 0, begin, channel);
    if (d < deepest_)
      for (int64_t k = begin; k < end; ++k) fill(d + 1, start + k * step, d == channel_ ? k : channel);
    write(d, start, end, slice_.extent[d], channel);
  }

  // The same if the rows are those of the deepest axis and have one value: the end of a row and the beginning of the next form a single run.
  void fill_between_rows(int d, int64_t start, int64_t channel) const {
    const int64_t row = inner_[d], before = slice_.begin[d + 1] * inner_[d + 1], after = row - slice_.end[d + 1] * inner_[d + 1];
    const int64_t first = slice_.begin[d] * row + before, last = slice_.end[d] * row - after, all = slice_.extent[d] * row;
    const char* const item = reinterpret_cast<const char*>(&items_[channel]);
    char* const out = static_cast<char*>(slice_.out) + start * bytes_;
    slice::repeat_item(item, out, first, bytes_);
    const int64_t at = first + row - before - after;
    slice::repeat_rows(item, 0, out + at * bytes_, row * bytes_, (last - at + row - 1) / row, before + after, bytes_);
    slice::repeat_item(item, out + last * bytes_, all - last, bytes_);
  }

  // Fills the positions [first, last) of axis d.
  void write(int d, int64_t start, int64_t first, int64_t last, int64_t channel) const {
    if (first >= last) return;
    char* to = static_cast<char*>(slice_.out) + (start + first * inner_[d]) * bytes_;
    const int64_t count = (last - first) * inner_[d];
    if (channel_ < 0 || d > channel_) return slice::repeat_item(reinterpret_cast<const char*>(&items_[channel]), to, count, bytes_);
    const int64_t run = inner_[channel_], channels = static_cast<int64_t>(items_.size());
    int64_t at = d == channel_ ? first : 0;  // in runs
    if (pattern_.empty()) {
      for (int64_t left = count / run; left > 0; --left, to += run * bytes_, at = (at + 1) % channels)
        slice::repeat_item(reinterpret_cast<const char*>(&items_[at]), to, run, bytes_);
      return;
    }
    const auto size = static_cast<int64_t>(pattern_.size());
    int64_t left = count * bytes_, from = at * run * bytes_;
    for (; left > 0; from = 0) {
      const int64_t n = std::min(left, size - from);
      std::memcpy(to, pattern_.data() + from, n);
      to += n, left -= n;
    }
  }

  const Slice& slice_;
  int64_t bytes_, inner_[kSliceDims];
  int deepest_ = -1;  // the last axis along which the slice leaves the input, or the one before if its rows are short
  bool covers_ = false;  // whole rows of the deepest axis are filled
  int channel_ = -1;  // the axis along which the fills differ
  std::vector<int64_t> items_;
  std::vector<char> pattern_;
};

}  // namespace

void run_slice_cpu(const Slice& slice, const Channel* channels, DType in, DType out) {
  // First, because short rows are filled completely and the input then overwrites its part of them.
  Outside(slice, channels, out).fill();
  const Box box = inner_box(slice, !slice.copies, item_bytes(in), item_bytes(out));
  if (box.empty) return;
  if (slice.copies) copy_box(box, item_bytes(in), slice.cached);
  else if (splits_pixels(box, in)) split_box(box, channels, out);
  else convert_box(box, channels, in, out);
}

}  // namespace ndd
