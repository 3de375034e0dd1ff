// SPDX-License-Identifier: Apache-2.0
// Color steps with the roundings of OpenCV on the CPU: all steps of a tile of pixels while it is in the first-level cache. A contrast needs the mean of the
// whole image after the steps before it, which divides the steps into passes.
#include "ops/color/opencv_colors.h"

#include <algorithm>

#include "ndd/elementwise/lut.h"
#include "ndd/kernel.h"
#include "ndd/samples.h"
#include "ndd/simd.h"
#include "ndd/stream/stream.h"

namespace ndd::opencv_colors {
namespace {

constexpr double kNanosecondsPerElement = 1.0;  // with four steps

// Local copies and __restrict pointers: otherwise each store could change `step`, and the loop would not vectorize.
template <class Change>
void change_tile(ColorTile& tile, int64_t n, const Step& step_argument, Change change) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    float* __restrict red = tile.channel[0];
    float* __restrict green = tile.channel[1];
    float* __restrict blue = tile.channel[2];
    const Step step = step_argument;
    const int64_t count = n;
    for (int64_t i = 0; i < count; ++i) change(step, red[i], green[i], blue[i]);
  });
}

// In integers, so the mean does not depend on the order of summation.
int64_t gray_sum(const ColorTile& tile, int64_t n) {
  // A tile is small enough for 32 bits; a vector holds twice as many of those as of 64.
  int32_t sum = 0;
  with_simd([&]() NDD_ALWAYS_INLINE {
    const float* __restrict red = tile.channel[0];
    const float* __restrict green = tile.channel[1];
    const float* __restrict blue = tile.channel[2];
    const int64_t count = n;
    int32_t total = 0;
    for (int64_t i = 0; i < count; ++i) total += static_cast<int32_t>(gray_of(red[i], green[i], blue[i]));
    sum = total;
  });
  return sum;
}

int64_t level_sum(const uint8_t* levels, int64_t count) {
  int64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += levels[i];
  return sum;
}

// The table of the steps begin to end, which map levels.
void make_table(const Steps& steps, int32_t begin, int32_t end, double mean, uint8_t* table) {
  for (int v = 0; v < kLevels; ++v) {
    table[v] = static_cast<uint8_t>(v);
    for (int32_t k = begin; k < end; ++k) table[v] = map_level(steps.step[k], table[v], mean);
  }
}

// Steps begin to end of an image of `channels` channels, from `in` to `out`, which may be the same; only the first of them may be a contrast, about
// `mean`. Returns the sum of the gray image if `summed`.
int64_t run_steps(const Steps& steps, int32_t begin, int32_t end, double mean, bool summed, const ColorImage& image, const uint8_t* in,
                  uint8_t* out) {
  // Neighboring steps that map levels are one table.
  struct Part {
    int32_t begin, end;
    uint8_t table[kLevels];
  };
  Part parts[kMaxSteps];
  int count = 0;
  for (int32_t k = begin; k < end;) {
    Part& part = parts[count++];
    part.begin = k++;
    if (steps.step[part.begin].maps_levels(image.channels)) {
      while (k < end && steps.step[k].maps_levels(image.channels)) ++k;
      make_table(steps, part.begin, k, mean, part.table);
    }
    part.end = k;
  }
  const ColorRows rows(DType::uint8);
  const bool colored = image.channels == 3;
  ColorTile tile;
  int64_t sum = 0;
  for (int64_t first = 0; first < image.pixels; first += ColorTile::kPixels) {
    const int64_t n = std::min(ColorTile::kPixels, image.pixels - first), bytes = n * image.channels, at = first * image.channels;
    // Between a table and a change of colors, the pixels go through `out`, whose part for this tile is in the first-level cache.
    bool in_tile = false;  // the pixels are in the tile; otherwise they are bytes at `from`
    const uint8_t* from = in + at;
    for (int p = 0; p < count; ++p) {
      const Step& step = steps.step[parts[p].begin];
      if (step.maps_levels(image.channels)) {
        if (in_tile) rows.store(image, tile, first, n, out);
        map_levels(in_tile ? out + at : from, bytes, 1, parts[p].table, out + at);
        in_tile = false, from = out + at;
        continue;
      }
      if (!in_tile) rows.load(image, from - at, first, n, tile);
      in_tile = true;
      if (step.kind == Kind::saturation)
        change_tile(tile, n, step, [](const Step& s, float& r, float& g, float& b) NDD_ALWAYS_INLINE { saturate_color(s, r, g, b); });
      else if (step.kind == Kind::hsv)
        change_tile(tile, n, step, [](const Step& s, float& r, float& g, float& b) NDD_ALWAYS_INLINE { shift_hsv(s, r, g, b); });
      else change_tile(tile, n, step, [](const Step& s, float& r, float& g, float& b) NDD_ALWAYS_INLINE { mix_color(s, r, g, b); });
    }
    if (in_tile) rows.store(image, tile, first, n, out);
    if (summed && colored && !in_tile) rows.load(image, from - at, first, n, tile);
    if (summed) sum += colored ? gray_sum(tile, n) : level_sum(in_tile ? out + at : from, n);
  }
  return sum;
}

void change_colors(const Steps& steps, const ColorImage& image, const uint8_t* in, uint8_t* out) {
  if (steps.count == 0) {
    std::copy_n(in, image.volume(), out);
    return;
  }
  double mean = 0.0;
  const uint8_t* from = in;
  // A pass ends before the next contrast and adds up the gray image that it needs.
  for (int32_t begin = 0, end = steps.next_contrast(0);; end = steps.next_contrast(begin + 1)) {
    const bool summed = end < steps.count;  // for the contrast that follows
    const int64_t sum = run_steps(steps, begin, end, mean, summed, image, from, out);
    if (!summed) return;
    if (begin < end) from = out;
    mean = static_cast<double>(sum) / static_cast<double>(std::max<int64_t>(image.pixels, 1));
    begin = end;
  }
}

// `input` is uint8 (N, H, W, C) or ragged, of one or three channels; `steps` is float64 (N, T * kNumbers).
void opencv_colors(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& steps, const Tensor& output,
                   const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const Args<double> numbers(steps);
  check_arguments(in, out, numbers);
  if (in.size() == 0) return;
  launch_cpu("opencv_colors", in.size(), kNanosecondsPerElement * static_cast<double>(in.volume(0)), {input}, [=](int64_t i) {
    const ColorImage image = ColorImages{false, false}.image("opencv_colors", in, i);
    change_colors(read_steps(numbers, i, image.channels), image, static_cast<const uint8_t*>(in.data(i)), static_cast<uint8_t*>(out.data(i)));
  });
}

}  // namespace
}  // namespace ndd::opencv_colors
NDD_KERNEL(opencv_colors, CPU, ndd::opencv_colors::opencv_colors)
