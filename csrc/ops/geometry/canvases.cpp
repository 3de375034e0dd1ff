// SPDX-License-Identifier: Apache-2.0
// The canvases of pasted and of rotated images, in repeated calls. torch_ndd/ops/geometry/paste.py and _canvas.py compute the same on columns, for graphs,
// and raise the errors; with a torch operation for each step, 16 canvases take them 200 us.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ndd/derive.h"
#include "ndd/python_interface.h"
#include "ops/geometry/axis_numbers.h"

namespace ndd {
namespace {

constexpr double kMaxExtent = 9007199254740992.0;  // 2^53

// In Python four `AxisNumbers`.
struct PasteArguments {
  AxisNumbers ratio, min_canvas_size, paste_y, paste_x;
};

bool paste_sample(const PasteArguments& arguments, int64_t i, const int64_t* extents, int64_t* starts, int64_t* canvas) {
  const double ratio = single(arguments.ratio(i)), least = single(arguments.min_canvas_size(i));
  const double positions[] = {single(arguments.paste_y(i)), single(arguments.paste_x(i))};
  if (!(ratio >= 1 && ratio < 2147483648.0) || !(least >= 0 && least < 2147483648.0)) return false;
  for (int d = 0; d < 2; ++d) {
    const double extent = std::max(single(ratio * static_cast<double>(extents[d])), least);
    if (!(positions[d] >= 0 && positions[d] <= 1) || !(extent < kMaxExtent)) return false;
    canvas[d] = static_cast<int64_t>(extent);
    starts[d] = -static_cast<int64_t>(single(positions[d] * static_cast<double>(canvas[d] - extents[d])));
  }
  starts[2] = 0;
  canvas[2] = extents[2];
  return true;
}

// A side of the canvas. `along` and `across` are the parts of the image's sides that lie along it.
int64_t rotated_side(double along, double across, int64_t extent, int64_t other) {
  // Minus 0.01: rounding must not add a pixel to a rotation by 90 degrees.
  const double sum = along * static_cast<double>(extent) + across * static_cast<double>(other);
  const auto whole = static_cast<int64_t>(std::ceil(sum - 0.01));
  // The parity of the side that contributes most keeps pixel centers on pixel centers.
  return whole + (whole + (across > along ? other : extent)) % 2;
}

}  // namespace
}  // namespace ndd

// Fills where paste() begins to read, before the image, int64 (samples, 3), and the shapes of the canvases.
NDD_DERIVE(ndd_paste_canvases) {
  if (ndim != 3) return false;
  const auto& numbers = *static_cast<const ndd::PasteArguments*>(arguments);
  auto* starts = static_cast<int64_t*>(first);
  for (int64_t i = 0; i < samples; ++i, extents += stride, starts += 3, shapes += 3)
    if (!ndd::paste_sample(numbers, i, extents, starts, shapes)) return false;
  return true;
}

// Fills the shapes of rotated images. Options: the extent that is their height, and whether they keep their size. The angles are in degrees.
NDD_DERIVE(ndd_rotated_canvases) {
  const auto& angle = *static_cast<const ndd::AxisNumbers*>(arguments);
  for (int64_t i = 0; i < samples; ++i, extents += stride, shapes += ndim) {
    // In float32, like DALI: near 45 degrees the rounding decides which of two sides is larger.
    const double degrees = ndd::single(angle(i));
    if (!std::isfinite(degrees)) return false;
    std::copy_n(extents, ndim, shapes);
    if (options[1] != 0) continue;
    const double turn = ndd::single(degrees * ndd::single(M_PI / 180));
    const double cosine = std::abs(std::cos(turn)), sine = std::abs(std::sin(turn));
    const int64_t height = extents[options[0]], width = extents[options[0] + 1];
    shapes[options[0]] = ndd::rotated_side(cosine, sine, height, width);
    shapes[options[0] + 1] = ndd::rotated_side(cosine, sine, width, height);
  }
  return true;
}
