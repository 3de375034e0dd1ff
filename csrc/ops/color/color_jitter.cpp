// SPDX-License-Identifier: Apache-2.0
// color_jitter on the CPU: all steps of a tile of pixels while it is in the first-level cache. Contrast needs the mean of the whole image after the steps
// before it, which makes the work two passes.
#include "ops/color/color_jitter.h"

#include <algorithm>

#include "ndd/color/planes.h"
#include "ndd/elementwise/lut.h"
#include "ndd/kernel.h"
#include "ndd/simd.h"
#include "ndd/stream/stream.h"
#include "ops/color/bytes.h"

namespace ndd {
namespace {

using namespace color_jitter;

template <bool whole>
void apply_step(const Step& step_argument, float mean, const Levels& levels_argument, int64_t channels, int64_t n, ColorTile& tile) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    float* __restrict red = tile.channel[0];
    float* __restrict green = tile.channel[1];
    float* __restrict blue = tile.channel[2];
    const Step step = step_argument;
    const Levels levels = levels_argument;
    // Copies in local variables: through the references that a lambda captures, the compiler could not tell that the stores leave them unchanged.
    const float middle = mean;
    const int64_t count = n;
    // Saturation and hue leave gray images unchanged; add_step() has dropped them.
    if (channels == 1) {
      for (int64_t i = 0; i < count; ++i) red[i] = blend<whole>(red[i], step.kind == kContrast ? middle : 0.0f, step, levels.white);
    } else if (step.kind == kHue) {
      for (int64_t i = 0; i < count; ++i) turn<whole>(red[i], green[i], blue[i], step.factor, levels);
    } else if (step.kind == kSaturation) {
      for (int64_t i = 0; i < count; ++i) apply<whole>({kSaturation, step.factor, step.rest}, 0.0f, levels, 3, red[i], green[i], blue[i]);
    } else {
      const float with = step.kind == kContrast ? middle : 0.0f;
      for (int64_t i = 0; i < count; ++i) {
        red[i] = blend<whole>(red[i], with, step, levels.white);
        green[i] = blend<whole>(green[i], with, step, levels.white);
        blue[i] = blend<whole>(blue[i], with, step, levels.white);
      }
    }
  });
}

// The sum of the gray values of a tile, in 16 lanes of float: each adds 64 values, which is exact for integers of 16 bits.
template <bool whole>
double gray_sum(const ColorTile& tile, int64_t channels, int64_t n) {
  constexpr int64_t kLanes = 16;
  alignas(64) float lanes[kLanes] = {};
  with_simd([&]() NDD_ALWAYS_INLINE {
    const float* __restrict red = tile.channel[0];
    const float* __restrict green = tile.channel[1];
    const float* __restrict blue = tile.channel[2];
    float* __restrict sums = lanes;
    const int64_t count = n, vectors = count / kLanes * kLanes;
    const bool colored = channels == 3;
    for (int64_t i = 0; i < vectors; i += kLanes)
      for (int64_t k = 0; k < kLanes; ++k) sums[k] += colored ? gray_level<whole>(red[i + k], green[i + k], blue[i + k]) : red[i + k];
    for (int64_t i = vectors; i < count; ++i) sums[i - vectors] += colored ? gray_level<whole>(red[i], green[i], blue[i]) : red[i];
  });
  double sum = 0.0;
  // In double: the sum of a large image exceeds the 24 bits of a float.
  for (float lane : lanes) sum += lane;
  return sum;
}

// Composes the steps into one table, if none of them mixes channels.
void level_table(const Steps& steps, float mean, const Levels& levels, uint8_t* table) {
  // In the arithmetic of the steps: a table must give the same levels.
  for (int v = 0; v < kLevels; ++v) {
    auto value = static_cast<float>(v);
    for (int k = 0; k < steps.count; ++k) value = blend<true>(value, steps.step[k].kind == kContrast ? mean : 0.0f, steps.step[k], levels.white);
    table[v] = static_cast<uint8_t>(value);
  }
}

// One step that does not mix channels needs no tiles.
void blend_floats(const float* in, int64_t count, const Step& step_argument, float mean, float white, float* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const float* from = in;  // may be the output
    float* to = out;
    const Step step = step_argument;
    const float middle = step.kind == kContrast ? mean : 0.0f, limit = white;
    const int64_t n = count;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) to[i] = blend<false>(from[i], middle, step, limit);
  });
}

template <bool whole>
void jitter(const ColorImage& image, const Steps& steps, const Levels& levels, DType dtype, const void* in, void* out) {
  // Two passes where there is a contrast: the first one adds up gray values after the steps before it, the second one applies the rest with the
  // mean.
  const ColorRows rows(dtype);
  ColorTile tile;
  if (image.channels == 1)
    for (int c = 1; c < 3; ++c) std::fill_n(tile.channel[c], ColorTile::kPixels, 0.0f);
  const auto for_tiles = [&](auto visit) {
    for (int64_t first = 0; first < image.pixels; first += ColorTile::kPixels) visit(first, std::min(ColorTile::kPixels, image.pixels - first));
  };
  const auto apply_steps = [&](int begin, int end, float mean, int64_t n) {
    for (int k = begin; k < end; ++k) apply_step<whole>(steps.step[k], mean, levels, image.channels, n, tile);
  };
  // A lookup takes half the time of the arithmetic.
  bool mixes = false;
  for (int k = 0; k < steps.count; ++k) mixes |= steps.step[k].kind > kContrast;
  const bool looked_up = whole && dtype == DType::uint8 && !mixes && image.volume() >= 4096 && cpu_isa() != Isa::base;
  float mean = 0.0f;
  const void* from = in;
  int done = 0;
  if (steps.contrast < steps.count) {  // the mean of what the steps before it make, which is stored meanwhile
    double sum = 0.0;
    // With a table the steps before contrast are part of it, and the image is read once more from the input.
    const bool stored = steps.contrast > 0 && !looked_up;
    for_tiles([&](int64_t first, int64_t n) {
      rows.load(image, in, first, n, tile);
      apply_steps(0, steps.contrast, 0.0f, n);
      sum += gray_sum<whole>(tile, image.channels, n);
      if (stored) rows.store(image, tile, first, n, out);
    });
    mean = static_cast<float>(sum / static_cast<double>(std::max<int64_t>(image.pixels, 1)));
    if (stored) {
      from = out;
      done = steps.contrast;
    }
  }
  if (looked_up) {
    uint8_t table[kLevels];
    level_table(steps, mean, levels, table);
    return map_levels(static_cast<const uint8_t*>(in), image.volume(), 1, table, static_cast<uint8_t*>(out));
  }
  if (!whole && dtype == DType::float32 && steps.count - done == 1 && !mixes) {
    blend_floats(static_cast<const float*>(from), image.volume(), steps.step[done], mean, levels.white, static_cast<float*>(out));
    return;
  }
  for_tiles([&](int64_t first, int64_t n) {
    rows.load(image, from, first, n, tile);
    apply_steps(done, steps.count, mean, n);
    rows.store(image, tile, first, n, out);
  });
}

// A VGA image of uint8 takes 1 ms with all four steps.
constexpr double kNanosecondsPerElement = 1.0;

void color_jitter_cpu(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& brightness, const MaybeTensor& contrast,
                      const MaybeTensor& saturation, const MaybeTensor& hue, const Tensor& order, bool planar, bool frames, const Tensor& output,
                      const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  check_same("color_jitter", out, in);
  const Arguments arguments(brightness, contrast, saturation, hue, order);
  const ColorImages images{planar, frames};
  const Levels levels(in.dtype());
  launch_cpu("color_jitter", in.size(), kNanosecondsPerElement * in.mean_volume(), {}, [=](int64_t i) {
    const ColorImage image = images.image("color_jitter", in, i);
    const char* from = static_cast<const char*>(in.data(i));
    char* to = static_cast<char*>(out.data(i));
    const int64_t bytes = image.volume() * in.item_bytes();
    for (int64_t f = 0; f < images.frames(in, i); ++f, from += bytes, to += bytes) {
      const Steps steps = arguments.steps(i, f, image.channels);
      (levels.whole ? jitter<true> : jitter<false>)(image, steps, levels, in.dtype(), from, to);
    }
  });
}

}  // namespace

void jitter_bytes(const ColorImage& image, int32_t kind, double factor, const uint8_t* in, uint8_t* out) {
  Steps steps;
  if (add_step(steps, kind, factor, image.channels)) return jitter<true>(image, steps, Levels(DType::uint8), DType::uint8, in, out);
  std::copy_n(in, image.volume(), out);
}

}  // namespace ndd
NDD_KERNEL(color_jitter, CPU, ndd::color_jitter_cpu)
