// SPDX-License-Identifier: Apache-2.0
// Boxes through an affine map of the plane: the box around the mapped corners, cut off at the border of the new image. On the host, in the call: how
// many boxes are left decides about the shapes of the outputs.
#include <algorithm>
#include <cmath>

#include "ndd/args.h"
#include "ndd/host_numbers.h"
#include "ndd/kernel.h"
#include "ndd/python_interface.h"

namespace ndd {
namespace {

// The size of a mapped box: that of the mapped corners, its own, or the middle of both.
NDD_ENUM("boxes.Mode", BoxMode, int64_t, expand, halfway, fixed);

// A row of the table, all in pixels: the map from the old image to the new one, their sizes.
struct BoxMap {
  double m[6], in[2], out[2];
};

struct BoxRule {
  BoxMode mode;
  bool normalized, with_size, cut;
  double threshold;

  // Maps a box; false if less than `threshold` of its area remains in the image.
  bool operator()(const BoxMap& map, const float* box, float* mapped) const {
    double low[2], high[2];
    for (int d = 0; d < 2; ++d) {
      const double unit = normalized ? map.in[d] : 1.0, start = box[d], end = with_size ? start + box[d + 2] : box[d + 2];
      low[d] = start * unit;
      high[d] = end * unit;
    }
    const double center[2] = {(low[0] + high[0]) * 0.5, (low[1] + high[1]) * 0.5},
                 half[2] = {std::abs(high[0] - low[0]) * 0.5, std::abs(high[1] - low[1]) * 0.5};
    // Turned by more than 45 degrees, a box of its own size changes width and height.
    const bool turned = std::abs(map.m[3]) > std::abs(map.m[0]);
    double left = 1.0, whole = 1.0;
    for (int d = 0; d < 2; ++d) {
      const double* row = map.m + 3 * d;
      const double middle = row[0] * center[0] + row[1] * center[1] + row[2];
      // Half of the extent of the mapped corners: |M| times half of the box.
      double reach = std::abs(row[0]) * half[0] + std::abs(row[1]) * half[1];
      const double own = half[turned ? 1 - d : d];
      if (mode == BoxMode::fixed) reach = own;
      if (mode == BoxMode::halfway) reach = (reach + own) * 0.5;
      low[d] = middle - reach;
      high[d] = middle + reach;
      whole *= high[d] - low[d];
      if (cut) {
        low[d] = std::min(std::max(low[d], 0.0), map.out[d]);
        high[d] = std::min(std::max(high[d], 0.0), map.out[d]);
      }
      left *= high[d] - low[d];
    }
    for (int d = 0; d < 2; ++d) {
      const double unit = normalized ? map.out[d] : 1.0;
      mapped[d] = static_cast<float>(low[d] / unit);
      mapped[d + 2] = static_cast<float>((with_size ? high[d] - low[d] : high[d]) / unit);
    }
    return !cut || left / whole >= threshold;  // not where a number is NaN, or for a box without an area
  }
};

// `table` is double (1 or N, 10). `kept` is bool, one for each box, `counts` int64, how many of each sample are.
void map_boxes_on_host(const Tensor& boxes, const MaybeTensor& boxes_shapes, const Tensor& table, int64_t mode, bool normalized, bool with_size,
                       bool cut, double threshold, const Tensor& mapped, const Tensor& kept, const Tensor& counts) {
  const Samples in(boxes, boxes_shapes);
  if (in.dtype() != DType::float32) fail(Error::Type, "map_boxes: boxes must be float32");
  const bool shared = table.size(0) == 1;
  const auto* rows = reinterpret_cast<const BoxMap*>(host_numbers<const double>("map_boxes", "the table", table, 10 * (shared ? 1 : in.size())));
  // `boxes` may have more elements than its samples.
  auto* out = host_numbers<float>("map_boxes", "the output", mapped, boxes.numel());
  auto* keep = host_numbers<bool>("map_boxes", "the mask", kept, boxes.numel() / 4);
  auto* count = host_numbers<int64_t>("map_boxes", "the table of counts", counts, in.size());
  const BoxRule rule{static_cast<BoxMode>(mode), normalized, with_size, cut, threshold};
  launch_cpu("map_boxes", in.size(), 3.0 * in.mean_volume(), {}, [=](int64_t i) {
    const BoxMap map = rows[shared ? 0 : i];
    const auto* box = static_cast<const float*>(in.data(i));
    int64_t k = in.offset(i) / 4;
    count[i] = 0;
    for (const int64_t end = k + in.volume(i) / 4; k < end; ++k, box += 4) count[i] += keep[k] = rule(map, box, out + 4 * k);
  });
}

// The table of rotations about the image's center, which becomes the center of the new image. `angles`, in degrees, is double (1 or N, 1); `planes` and
// `canvases`, height and width of the old and the new image, are (1 or N, 2); `table` is (1 or N, 10). In torch this took thirty operators, half of the
// time of a call with cold caches.
void rotation_maps_on_host(const Tensor& angles, const Tensor& planes, const Tensor& canvases, const Tensor& table) {
  const Args<double> angle(angles), plane(planes), canvas(canvases);
  const int64_t count = table.size(0);
  auto* maps = reinterpret_cast<BoxMap*>(host_numbers<double>("rotation_maps", "the table", table, 10 * count));
  for (int64_t i = 0; i < count; ++i) {
    const double turn = static_cast<float>(angle(i)) * (M_PI / 180.0), cos = std::cos(turn), sin = std::sin(turn);
    const double height = plane(i, 0), width = plane(i, 1), new_height = canvas(i, 0), new_width = canvas(i, 1);
    maps[i] = {{cos, sin, new_width / 2 - cos * (width / 2) - sin * (height / 2), -sin, cos, new_height / 2 + sin * (width / 2) - cos * (height / 2)},
               {width, height},
               {new_width, new_height}};
  }
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(map_boxes, CPU, ndd::map_boxes_on_host)
NDD_KERNEL(rotation_maps, CPU, ndd::rotation_maps_on_host)
