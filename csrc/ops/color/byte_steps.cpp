// SPDX-License-Identifier: Apache-2.0
// Applies the steps that a policy has drawn for each uint8 image, one after the other while the image is in the second-level cache. The steps call the
// functions of the operators (bytes.h), so the results are the same.
#include "ops/color/byte_steps.h"

#include <cstring>
#include <vector>

#include "ndd/color/matrix.h"
#include "ndd/elementwise/lut.h"
#include "ndd/kernel.h"
#include "ndd/reduce/cpu.h"
#include "ndd/stencil/cpu.h"
#include "ndd/stream/stream.h"
#include "ndd/warp/cpu.h"
#include "ops/color/bytes.h"
#include "ops/color/twist.h"

namespace ndd {
namespace {

using namespace byte_steps;

constexpr double kNanosecondsPerElement = 0.8;

void warp(const Arguments& arguments, const Image& image, const Step& step, const std::vector<float>& fills, const uint8_t* in, uint8_t* out) {
  const int64_t plane = image.pixels() * image.inner();
  const bool single = fills.size() == 1;
  const auto item = arguments.warp(image, step, single ? fills[0] : 0.0f, single ? nullptr : fills.data(), in, out);
  warp_cpu(item, DType::uint8, DType::uint8, {image.planes(), plane, plane});
}

void map_bytes(const Step& step, float mean, const uint8_t* in, int64_t count, uint8_t* out) {
  uint8_t table[kLevels];
  for (int v = 0; v < kLevels; ++v) table[v] = level_after(step, mean, v);
  map_levels(in, count, 1, table, out);
}

float gray_mean(const Image& image, const uint8_t* in) {
  const int64_t shape[] = {image.pixels(), image.channels};
  std::vector<float> means(image.channels);
  reduce::reduce_sample(reduce::Fold::mean, Reduction(shape, 2, 1), {Finish::mean, image.pixels()}, in, DType::uint8, {}, means.data(),
                        DType::float32);
  return gray_of_means(means.data(), image.channels);
}

// 3 x 3 weights, in the way of the operator `filter`.
void correlate_bytes(const Image& image, const Step& step, const uint8_t* in, uint8_t* out) {
  const Grid grid{1, image.height, image.width, image.channels};
  const TapWindow window{{Reach{}, Reach{3, 1}, Reach{3, 1}}, {step.numbers, step.numbers + kParameters}};
  correlate(grid, grid, window, Border::reflect_101, 0.0f, in, DType::uint8, out, DType::uint8);
}

void apply(const Arguments& arguments, const Image& image, const Step& step, const std::vector<float>& fills, const uint8_t* in, uint8_t* out) {
  const int64_t pixels = image.pixels(), inner = image.inner();
  const ColorImage colors{pixels, image.channels, image.planar};
  const auto for_planes = [&](auto f) {
    for (int64_t p = 0; p < image.planes(); ++p) f(in + p * pixels * inner, out + p * pixels * inner);
  };
  switch (step.kind) {
    case Kind::none: std::memcpy(out, in, image.volume()); return;
    case Kind::warp: return warp(arguments, image, step, fills, in, out);
    case Kind::contrast:
    case Kind::saturation: return jitter_bytes(colors, jitter_step(step).kind, step.factor, in, out);
    case Kind::sharpness: return for_planes([&](auto* from, auto* to) { sharpen_bytes(from, image.height, image.width, inner, step.factor, to); });
    case Kind::autocontrast: return for_planes([&](auto* from, auto* to) { stretch_bytes(from, pixels, inner, to); });
    case Kind::equalize:
    case Kind::equalize_opencv:
      return for_planes([&](auto* from, auto* to) { equalize_bytes(from, pixels, inner, step.kind == Kind::equalize, to); });
    case Kind::scale_saturation:
      return color_matrix_detail::run_cpu({in, out, image.volume(), color::twist(1.0, 1.0, step.numbers[0], 0.0, 0.0)}, {3, 3}, DType::uint8,
                                          DType::uint8);
    case Kind::filter: return correlate_bytes(image, step, in, out);
    // All other steps map levels to levels, whatever the channel.
    default: return map_bytes(step, step.kind == Kind::scale_contrast ? gray_mean(image, in) : 0.0f, in, image.volume(), out);
  }
}

// `steps` has rows of kNumbers for each sample. `fill_value` is one number or one for each channel, `border` and `fades` as in warp_affine.
void byte_steps_cpu(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& steps, const Tensor& fill_value, int64_t interp_type,
                    int64_t border, bool fades, bool planar, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  if (in.dtype() != DType::uint8) fail(Error::Type, "byte_steps: images must be uint8");
  check_same("byte_steps", out, in);
  const Arguments arguments(in, steps, fill_value, interp_type, border, fades, planar);
  launch_cpu("byte_steps", in.size(), kNanosecondsPerElement * static_cast<double>(arguments.turns()) * in.mean_volume(), {}, [=](int64_t i) {
    static thread_local std::vector<uint8_t> buffers[2];
    const Image image = arguments.image(i);
    const int64_t volume = image.volume();
    if (volume == 0) return;
    std::vector<Step> steps = arguments.steps(i);
    if (steps.empty()) steps.push_back({});  // a copy
    const std::vector<float> fills = arguments.fills(i);
    for (int64_t f = 0; f < arguments.frames(i); ++f) {
      const uint8_t* from = static_cast<const uint8_t*>(in.data(i)) + f * volume;
      for (size_t k = 0; k < steps.size(); ++k) {
        uint8_t* to = static_cast<uint8_t*>(out.data(i)) + f * volume;
        if (k + 1 < steps.size()) {
          // A step reads only what the one before has written, so two buffers are enough; the last step writes the output.
          std::vector<uint8_t>& buffer = buffers[k % 2];
          if (static_cast<int64_t>(buffer.size()) < volume) buffer.resize(volume);
          to = buffer.data();
        }
        apply(arguments, image, steps[k], fills, from, to);
        from = to;
      }
    }
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(byte_steps, CPU, ndd::byte_steps_cpu)
