// SPDX-License-Identifier: Apache-2.0
// The canvases of pasted and of rotated images, in repeated calls. torch_ndd/ops/geometry/paste.py and _canvas.py compute the same on columns, for graphs,
// and raise the errors; with a torch operation for each step, 16 canvases take them 200 us.
#include <algorithm>
#include <cmath>
#include <cstdint>

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
  if (!(ratio >= 1 && ratio < 2147483648.0) || !(std::abs(least) < 2147483648.0)) return false;
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

// Fills `starts`, where paste() begins to read, before the image, and the shapes of the canvases, both int64 (samples, 3). `extents` has rows of as many
// numbers, `extent_stride` apart. Returns whether all arguments are valid.
NDD_EXPORT(keep, bool, ndd_paste_canvases,
           (const void* arguments, const int64_t* extents, int64_t extent_stride, int64_t samples, int64_t* starts, int64_t* canvases)) {
  const auto& numbers = *static_cast<const ndd::PasteArguments*>(arguments);
  for (int64_t i = 0; i < samples; ++i, extents += extent_stride, starts += 3, canvases += 3)
    if (!ndd::paste_sample(numbers, i, extents, starts, canvases)) return false;
  return true;
}

// Fills the shapes of rotated images, int64 (samples, ndim), whose height is the extent `first`. `angles` are AxisNumbers, in degrees.
NDD_EXPORT(keep, bool, ndd_rotated_canvases,
           (const void* angles, const int64_t* extents, int64_t extent_stride, int64_t samples, int64_t ndim, int64_t first, int64_t* canvases)) {
  const auto& angle = *static_cast<const ndd::AxisNumbers*>(angles);
  for (int64_t i = 0; i < samples; ++i, extents += extent_stride, canvases += ndim) {
    // In float32, like DALI: near 45 degrees the rounding decides which of two sides is larger.
    const double turn = ndd::single(ndd::single(angle(i)) * ndd::single(M_PI / 180));
    if (!std::isfinite(turn)) return false;
    const double cosine = std::abs(std::cos(turn)), sine = std::abs(std::sin(turn));
    const int64_t height = extents[first], width = extents[first + 1];
    std::copy_n(extents, ndim, canvases);
    canvases[first] = ndd::rotated_side(cosine, sine, height, width);
    canvases[first + 1] = ndd::rotated_side(cosine, sine, width, height);
  }
  return true;
}
