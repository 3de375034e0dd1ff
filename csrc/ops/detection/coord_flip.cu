// SPDX-License-Identifier: Apache-2.0
// coord_flip: x -> 2 * center - x.
#include "ndd/kernel.h"
#include "ops/detection/rows.h"

namespace ndd::coord_flip_kernels {
namespace {

constexpr int kAxes = 3;

struct FlipPoint {
  int dims;
  bool flipped[kAxes];
  float twice[kAxes];

  NDD_HD void operator()(const float* in, float* out) const {
    for (int d = 0; d < dims; ++d) out[d] = flipped[d] ? twice[d] - in[d] : in[d];
  }
};

// `layout` has the axis of every coordinate; without it x comes first.
void coord_flip(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& center_x, const Tensor& center_y, const Tensor& center_z,
                const Tensor& flip_x, const Tensor& flip_y, const Tensor& flip_z, const std::string& layout, const Tensor& output,
                const MaybeTensor& output_shapes) {
  const std::vector<Args<float>> centers{Args<float>(center_x), Args<float>(center_y), Args<float>(center_z)};
  const std::vector<Args<int64_t>> flips{Args<int64_t>(flip_x), Args<int64_t>(flip_y), Args<int64_t>(flip_z)};
  const Samples in(input, input_shapes);
  if (in.ndim() != 2) fail(Error::Value, "coord_flip: the input must have rows and columns");
  const std::string axes = layout.empty() ? "xyz" : layout;
  if (axes.size() > kAxes || axes.find_first_not_of("xyz") != axes.npos)
    fail(Error::Value, "coord_flip: layout must have the axes x, y and z, got \"", layout, "\"");
  const auto width = [in](int64_t i) { return in.shape(i)[1]; };
  for (int64_t i = 0; i < (in.dense() ? std::min<int64_t>(in.size(), 1) : in.size()); ++i)
    if (width(i) > static_cast<int64_t>(axes.size()) || (!layout.empty() && width(i) != static_cast<int64_t>(axes.size())))
      fail("coord_flip: sample ", i, " has ", width(i), " columns, layout is \"", layout, "\"");
  map_rows("coord_flip", in, {output, output_shapes}, width, [=](int64_t i) {
    FlipPoint point{static_cast<int>(width(i)), {}, {}};
    for (int64_t d = 0; d < point.dims; ++d) {
      const size_t axis = static_cast<size_t>(axes[d] - 'x');
      point.flipped[d] = flips[axis](i) != 0;
      point.twice[d] = 2.0f * centers[axis](i);
    }
    return point;
  });
}

}  // namespace
}  // namespace ndd::coord_flip_kernels
NDD_KERNELS(coord_flip, ndd::coord_flip_kernels::coord_flip)
