// SPDX-License-Identifier: Apache-2.0
// Applies the steps that a policy has drawn for each uint8 image, one after the other while the image is in the second-level cache. The steps call the
// functions of the operators (bytes.h), so the results are the same.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "ndd/args.h"
#include "ndd/elementwise/lut.h"
#include "ndd/kernel.h"
#include "ndd/python_interface.h"
#include "ndd/stream/stream.h"
#include "ndd/warp/cpu.h"
#include "ops/color/bytes.h"

namespace ndd {
namespace {

NDD_ENUM("byte_steps.Kind", Kind, int64_t, none, warp, brightness, contrast, saturation, sharpness, posterize, solarize, autocontrast, equalize,
         invert);
constexpr int64_t kNumbers = 7;  // of a step: the kind, then its parameter, or the six numbers of a matrix from output to input

constexpr double kNanosecondsPerElement = 0.8;

struct Image {
  int64_t height, width, channels;
  bool planar;

  int64_t pixels() const { return height * width; }
  int64_t volume() const { return pixels() * channels; }
  ColorImage colors() const { return {pixels(), channels, planar}; }
  // Planes are processed as separate images of one channel.
  int64_t planes() const { return planar ? channels : 1; }
  int64_t inner() const { return planar ? 1 : channels; }
};

struct Fill {
  std::vector<float> values;
  Interp interp;
  bool fades;
};

void warp(const Image& image, const float (&matrix)[6], const Fill& fill, const uint8_t* in, uint8_t* out) {
  const int64_t inner = image.inner(), plane = image.pixels() * inner;
  WarpItem<2, AffineMap<2>> item{};
  const bool single = fill.values.size() == 1;
  item.src = {in,
              {image.width, image.height},
              {inner, inner * image.width},
              inner,
              WarpBorder::constant,
              single ? fill.values[0] : 0.0f,
              single ? nullptr : fill.values.data(),
              fill.fades};
  for (int k = 0; k < 6; ++k) item.map.m[k / 3][k % 3] = matrix[k];
  item.out = out;
  item.size[0] = image.width;
  item.size[1] = image.height;
  item.interp = fill.interp;
  warp_cpu(item, DType::uint8, DType::uint8, {image.planes(), plane, plane});
}

template <class Level>
void map_bytes(const uint8_t* in, int64_t count, uint8_t* out, Level level) {
  uint8_t table[kLevels];
  for (int v = 0; v < kLevels; ++v) table[v] = static_cast<uint8_t>(level(v));
  map_levels(in, count, 1, table, out);
}

void apply(const Image& image, Kind kind, const float (&numbers)[kNumbers - 1], double factor, const Fill& fill, const uint8_t* in, uint8_t* out) {
  const int64_t pixels = image.pixels(), inner = image.inner();
  const auto for_planes = [&](auto f) {
    for (int64_t p = 0; p < image.planes(); ++p) f(in + p * pixels * inner, out + p * pixels * inner);
  };
  switch (kind) {
    case Kind::none: std::memcpy(out, in, image.volume()); return;
    case Kind::warp: return warp(image, numbers, fill, in, out);
    case Kind::brightness: return jitter_bytes(image.colors(), 0, factor, in, out);
    case Kind::contrast: return jitter_bytes(image.colors(), 1, factor, in, out);
    case Kind::saturation: return jitter_bytes(image.colors(), 2, factor, in, out);
    case Kind::sharpness: return for_planes([&](auto* from, auto* to) { sharpen_bytes(from, image.height, image.width, inner, factor, to); });
    case Kind::posterize: {
      const int dropped = 8 - static_cast<int>(std::clamp(factor, 0.0, 8.0));
      return map_bytes(in, image.volume(), out, [=](int v) { return v >> dropped << dropped; });
    }
    case Kind::solarize: return map_bytes(in, image.volume(), out, [=](int v) { return static_cast<float>(v) >= numbers[0] ? 255 - v : v; });
    case Kind::autocontrast: return for_planes([&](auto* from, auto* to) { stretch_bytes(from, pixels, inner, to); });
    case Kind::equalize: return for_planes([&](auto* from, auto* to) { equalize_bytes(from, pixels, inner, to); });
    case Kind::invert: return map_bytes(in, image.volume(), out, [](int v) { return 255 - v; });
  }
  fail("byte_steps: unknown kind of step: ", static_cast<int64_t>(kind));
}

// `steps` has rows of kNumbers for each sample. `fill_value` is one number or one for each channel, `fades` as in warp_affine.
void byte_steps(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& steps, const Tensor& fill_value, int64_t interp_type, bool fades,
                bool planar, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const Args<double> rows(steps);
  const Args<float> fills(fill_value);
  const int64_t count = rows.cols() / kNumbers;
  launch_cpu("byte_steps", in.size(), kNanosecondsPerElement * static_cast<double>(count) * in.mean_volume(), {}, [=](int64_t i) {
    static thread_local std::vector<uint8_t> buffers[2];
    const int64_t* shape = in.shape(i);
    const Image image{shape[planar ? 1 : 0], shape[planar ? 2 : 1], shape[planar ? 0 : 2], planar};
    const auto* from = static_cast<const uint8_t*>(in.data(i));
    auto* const to = static_cast<uint8_t*>(out.data(i));
    if (image.volume() == 0) return;
    Fill fill{{}, static_cast<Interp>(interp_type), fades};
    for (int64_t k = 0; k < fills.rows(); ++k) fill.values.push_back(fills(k));
    if (fill.values.size() > 1 && static_cast<int64_t>(fill.values.size()) != image.channels)
      fail("byte_steps: fill_value has ", fill.values.size(), " numbers, the image has ", image.channels, " channels, sample ", i);
    int64_t last = count - 1;
    const auto kind_of = [&](int64_t step) { return static_cast<Kind>(rows(i, step * kNumbers)); };
    while (last > 0 && kind_of(last) == Kind::none) --last;
    int buffer_index = 0;
    for (int64_t s = 0; s <= last; ++s) {
      const Kind kind = kind_of(s);
      if (kind == Kind::none && s != last) continue;
      float numbers[kNumbers - 1];
      for (int64_t k = 0; k + 1 < kNumbers; ++k) numbers[k] = static_cast<float>(rows(i, s * kNumbers + 1 + k));
      uint8_t* target = to;
      if (s != last) {
        std::vector<uint8_t>& buffer = buffers[buffer_index ^= 1];
        if (static_cast<int64_t>(buffer.size()) < image.volume()) buffer.resize(image.volume());
        target = buffer.data();
      }
      apply(image, kind, numbers, rows(i, s * kNumbers + 1), fill, from, target);
      from = target;
    }
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(byte_steps, CPU, ndd::byte_steps)
