// SPDX-License-Identifier: Apache-2.0
// Random crop windows in the call, on the host: a window takes 0.3 us, and decoders and kernels need it at once.
#include "ndd/kernel.h"
#include "ops/random/random_window.h"

namespace ndd {
namespace {

// `shapes` is int64 (N, columns) with heights and widths first, `out` int64 (N, 4).
void random_crop_windows(const Tensor& shapes, const Tensor& words, double area_low, double area_high, double aspect_low, double aspect_high,
                         int64_t num_attempts, const Tensor& out) {
  const auto* shape = static_cast<const int64_t*>(shapes.data_ptr());
  const auto* call = static_cast<const int64_t*>(words.data_ptr());
  auto* row = static_cast<int64_t*>(out.data_ptr());
  const int64_t columns = shapes.size(1);
  const WindowLimits limits{{area_low, area_high}, {aspect_low, aspect_high}, num_attempts};
  for (int64_t i = 0; i < shapes.size(0); ++i, shape += columns, row += 4) {
    const Window window = random_window({call, i}, shape[0], shape[1], limits);
    row[0] = window.y;
    row[1] = window.x;
    row[2] = window.height;
    row[3] = window.width;
  }
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(random_crop_windows, CPU, ndd::random_crop_windows)
