// SPDX-License-Identifier: Apache-2.0
// Chooses how to resample a sample on the CPU: copies for nearest neighbors, fixed point for bytes, float for the rest.
#include "ndd/resample/cpu.h"

#include <cstdint>
#include <cstring>
#include <limits>

#include "ndd/resample/float.h"
#include "ndd/resample/two_passes.h"
#include "ndd/resample/u8.h"
#include "ndd/resample/up.h"

namespace ndd {
namespace {

// Copies `width` pixels of a fixed size: a size known at compile time becomes one load and one store.
template <int64_t kBytes>
void pick(const char* row, const int32_t* at, int64_t width, int64_t bytes, char* out) {
  const int64_t size = kBytes ? kBytes : bytes;
  for (int64_t x = 0; x < width; ++x) std::memcpy(out + x * size, row + at[x] * size, size);
}

// Copies three-byte pixels as overlapping 4-byte words, which halves the instructions. Reads a byte past each pixel, so it must not be used for the
// row that ends the sample.
void pick_rgb(const char* row, const int32_t* at, int64_t width, int64_t, char* out) {
  for (int64_t x = 0; x + 1 < width; ++x) std::memcpy(out + x * 3, row + at[x] * 3, 4);
  std::memcpy(out + (width - 1) * 3, row + at[width - 1] * 3, 3);
}

// Skipped rows break the pattern that the hardware prefetcher would follow.
void prefetch(const char* row, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at);
}

void nearest(const ResampleJob& job, const AxisTable* const* tables) {
  const AxisTable &d = *tables[0], &v = *tables[1], &h = *tables[2];
  const int64_t bytes = job.channels * item_bytes(job.in_type), in_row = h.axis.in * bytes, row = h.axis.out * bytes;
  const auto picker = bytes == 1 ? pick<1> : bytes == 2 ? pick<2> : bytes == 3 ? pick<3> : bytes == 4 ? pick<4> : bytes == 12 ? pick<12> : pick<0>;
  // pick_rgb() must not read beyond the end of the input: the last row of the last plane is copied pixel by pixel.
  char* out = static_cast<char*>(job.out);
  const char* const last_row = static_cast<const char*>(job.in) + (job.outer * d.axis.in * v.axis.in - 1) * in_row;
  for (int64_t o = 0; o < job.outer; ++o) {
    const char* in = static_cast<const char*>(job.in) + o * d.axis.in * v.axis.in * in_row;
    for (int64_t z = 0; z < d.axis.out; ++z) {
      for (int64_t y = 0; y < v.axis.out; ++y, out += row) {
        const char* from = in + (d.start[z] * v.axis.in + v.start[y]) * in_row;
        if (y + 1 < v.axis.out) prefetch(in + (d.start[z] * v.axis.in + v.start[y + 1]) * in_row, in_row);
        // An enlarged image repeats rows: copying the one above is cheaper than picking again.
        if (y > 0 && v.start[y] == v.start[y - 1]) std::memcpy(out, out - row, row);
        else (bytes == 3 && from != last_row ? pick_rgb : picker)(from, h.start.data(), h.axis.out, bytes, out);
      }
    }
  }
}

// Resamples `count` dense images, one after the other.
template <class Arithmetic>
void planes(const Arithmetic& arith, const ResampleJob& job, int64_t count, const AxisTable& v, const AxisTable& h) {
  const int64_t in_plane = v.axis.in * h.axis.in * job.channels * item_bytes(job.in_type);
  const int64_t out_plane = v.axis.out * h.axis.out * job.channels * item_bytes(job.out_type);
  for (int64_t i = 0; i < count; ++i)
    resample_plane(arith, {static_cast<const char*>(job.in) + i * in_plane, static_cast<char*>(job.out) + i * out_plane, job.channels}, v, h);
}

// Whether to resample columns before rows. Rows first is a single tiled pass without an intermediate image, but it is wasteful if a wide, low source
// becomes a narrow, high output.
bool columns_first_pays(const AxisTable& v, const AxisTable& h) {
  const double in_height = static_cast<double>(v.axis.in), in_width = static_cast<double>(h.axis.in);
  const double out_height = static_cast<double>(v.axis.out), out_width = static_cast<double>(h.axis.out);
  // Multiplications of both orders. Rows first is preferred unless it takes six times as many.
  const double rows_first = out_height * (in_width * v.most + out_width * h.most),
               columns_first = out_width * (in_height * h.most + out_height * v.most);
  return rows_first > 6 * columns_first;
}

void columns_first(const ResampleJob& job, const AxisTable& v, const AxisTable& h) {
  ResampleJob first = job, second = job;
  first.out = scratch<float>(4, job.outer * v.axis.in * h.axis.out * job.channels);
  first.out_type = second.in_type = DType::float32;
  second.in = first.out;
  planes(Floats{job.in_type, DType::float32}, first, job.outer, axis_table(3, unchanged_axis(v.axis.in)), h);
  planes(Floats{DType::float32, job.out_type}, second, job.outer, v, axis_table(4, unchanged_axis(h.axis.out)));
}

// Resamples volumes: each output plane is first mixed from input planes, into a float plane of the source's size.
void volumes(const ResampleJob& job, const AxisTable& d, const AxisTable& v, const AxisTable& h) {
  const int64_t plane = v.axis.in * h.axis.in * job.channels, out_plane = v.axis.out * h.axis.out * job.channels * item_bytes(job.out_type);
  float* mixed = scratch<float>(4, plane);
  char* out = static_cast<char*>(job.out);
  for (int64_t o = 0; o < job.outer; ++o) {
    for (int64_t z = 0; z < d.axis.out; ++z, out += out_plane) {
      for_dtype(job.in_type, [&](auto tag) {
        using In = typename decltype(tag)::type;
        const In* in = static_cast<const In*>(job.in) + (o * d.axis.in + d.start[z]) * plane;
        mix_to_float(in, plane, d.weights(z), d.count[z], mixed, plane);
      });
      resample_plane(Floats{DType::float32, job.out_type}, {mixed, out, job.channels}, v, h);
    }
  }
}

// Whether resampling along an axis copies each element. Zero weights beside it do not matter.
bool keeps_all(const AxisTable& table) {
  if (table.axis.in != table.axis.out) return false;
  for (int64_t x = 0; x < table.axis.out; ++x)
    for (int32_t k = 0; k < table.count[x]; ++k)
      if (table.weights(x)[k] != (table.start[x] + k == x ? 1.0f : 0.0f)) return false;
  return true;
}

// The width does not change, as when features are stretched in time: each row of the output is mixed from rows of the input, without a plane between.
void rows_only(const ResampleJob& job, const AxisTable& v, int64_t width) {
  const int64_t row = width * job.channels;
  float* out = static_cast<float*>(job.out);
  for_dtype(job.in_type, [&](auto tag) {
    const auto* in = static_cast<const typename decltype(tag)::type*>(job.in);
    for (int64_t o = 0; o < job.outer; ++o, in += v.axis.in * row)
      for (int64_t y = 0; y < v.axis.out; ++y, out += row) mix_to_float(in + v.start[y] * row, row, v.weights(y), v.count[y], out, row);
  });
}

// Elements of a row below which rows are joined, see below.
constexpr int64_t kNarrow = 256;

}  // namespace

void resample_cpu(const ResampleJob& job) {
  AxisTable* tables[3];
  // The paths below, from the most special to the general one, all compute the same within rounding.
  int64_t in_volume = job.outer * job.channels, out_volume = in_volume;
  bool all_nearest = job.in_type == job.out_type;
  for (const Axis& a : job.axes) in_volume *= a.in, out_volume *= a.out;
  if (out_volume == 0) return;
  // An output without a source is black.
  if (in_volume == 0) {
    std::memset(job.out, 0, out_volume * item_bytes(job.out_type));
    return;
  }
  for (int i = 0; i < 3; ++i) {
    tables[i] = &axis_table(i, job.axes[i]);
    all_nearest = all_nearest && job.axes[i].filter == Filter::nearest;
  }
  const AxisTable& only = *tables[2];
  const auto single = [](const AxisTable& table) { return table.axis.in == 1 && table.axis.out == 1; };
  if (job.outer > 1 && single(*tables[0]) && single(*tables[1]) && only.axis.in * job.channels < kNarrow &&
      job.outer < std::numeric_limits<int32_t>::max()) {
    // Rows of a few elements, as when channels are resampled, are treated as the rows of one image: with an image for each, 8 images of 321x213 took
    // 2.4 times as long.
    ResampleJob rows = job;
    rows.axes[1] = unchanged_axis(job.outer);
    rows.axes[1].rule = only.axis.rule;
    rows.outer = 1;
    return resample_cpu(rows);
  }
  AxisTable &d = *tables[0], &v = *tables[1], &h = *tables[2];
  if (all_nearest) return nearest(job, tables);
  if (d.axis.in != 1 || d.axis.out != 1) return volumes(job, d, v, h);
  // torch and Pillow round to bytes between the passes; for floats all rules are the same.
  if (h.axis.rule != Rule::dali && job.in_type == DType::uint8 && job.out_type == DType::uint8) return resample_in_two_passes(job, v, h);
  if (job.out_type == DType::float32 && keeps_all(h)) return rows_only(job, v, h.axis.out);
  if (columns_first_pays(v, h)) return columns_first(job, v, h);
#if defined(__x86_64__)
  const int64_t row = h.axis.in * job.channels;
  // Fixed point with 14-bit weights. Vectors need rows of 32 or 64 bytes, and the error, which grows with the taps, is bounded for kMaxTaps.
  if (job.in_type == DType::uint8 && job.out_type == DType::uint8 && cpu_isa() != Isa::base && row >= 32 &&
      std::max(v.most, h.most) <= u8::kMaxTaps) {
    v.build_weights14();
    h.build_weights14();
    if (u8::resample_up(job, v, h)) return;
    if (cpu_isa() == Isa::avx512 && row >= 64) return planes(u8::Avx512{}, job, job.outer, v, h);
    return planes(u8::Avx2{}, job, job.outer, v, h);
  }
#endif
  planes(Floats{job.in_type, job.out_type}, job, job.outer, v, h);
}

}  // namespace ndd
