// SPDX-License-Identifier: Apache-2.0
// laplacian on the CPU, by the cheapest of three algorithms that give the same sum of partial derivatives (filter_image chooses).
#include "ops/filters/laplacian.h"

#include <algorithm>

#include "ndd/elementwise/rows.h"
#include "ndd/kernel.h"
#include "ndd/stencil/cpu.h"
#include "ndd/stencil/rows.h"
#include "ndd/stream/stream.h"

namespace ndd {
namespace {

// A VGA image with windows of 3 takes 0.2 ms.
constexpr double kNanosecondsPerElement = 0.25;

// Both derivatives of an image in one pass: each row is smoothed and differentiated along the width, then these two rows are differentiated and smoothed
// along the height. The image is read once, and only rows are kept in between.
void filter_plane(const Grid& grid, const std::vector<laplacian::Partial>& partials, const void* in, DType in_dtype, void* out, DType out_dtype) {
  using namespace stencil;
  const std::array<SymmetricWindow, 3> along_height = laplacian::windows(partials[0]), along_width = laplacian::windows(partials[1]);
  // The derivative along the height is smoothed along the width, and the other way round.
  const Taps<float> smooth_x(along_height[2]), derive_x(along_width[2]), derive_y(along_height[1]), smooth_y(along_width[1]);
  const int64_t row = grid.row(), inner = grid.inner;
  const int32_t reach_x = static_cast<int32_t>(std::max(along_height[2].radius(), along_width[2].radius()));
  const int32_t reach_y = static_cast<int32_t>(std::max(along_height[1].radius(), along_width[1].radius()));
  const Buffer<float> padded(row + 2 * reach_x * inner), result(row);
  const LoadRow load = row_loader(in_dtype);
  const StoreRow store = row_storer(out_dtype);

  // Pointers to the operands of the taps. The two of a pair are symmetric about the center, where both point at the same row.
  struct Pairs {
    std::vector<const float*> lo, hi;
  };
  const auto shifted = [&](const Taps<float>& taps) {
    Pairs pairs;
    for (size_t k = 0; k < taps.weight.size(); ++k) {
      pairs.lo.push_back(padded.get() + (reach_x - static_cast<int64_t>(k)) * inner);
      pairs.hi.push_back(padded.get() + (reach_x + static_cast<int64_t>(k)) * inner);
    }
    return pairs;
  };
  // Shifting the operands makes a convolution along the width a weighted sum of rows, like one along the height.
  const Pairs smoothed = shifted(smooth_x), derived = shifted(derive_x);
  Taps<float> both = derive_y;  // of the smoothed rows, then of the derived ones
  both.weight.insert(both.weight.end(), smooth_y.weight.begin(), smooth_y.weight.end());
  Pairs near{std::vector<const float*>(both.weight.size()), std::vector<const float*>(both.weight.size())};
  for_rows<float>(
      // A staged row holds the smoothed pixels and, behind them, the derived ones.
      grid, grid, Reach{}, Reach{2 * reach_y + 1, reach_y}, Border::reflect_101, 2 * row,
      [&](int64_t k, float* staged) {
        float* pixels = padded.get() + reach_x * inner;
        const char* source = static_cast<const char*>(in) + k * row * item_bytes(in_dtype);
        prefetch_row(source + 2 * row * item_bytes(in_dtype), row * item_bytes(in_dtype));
        load(source, row, pixels);
        pad_row(pixels, grid.width, inner, reach_x, reach_x, Border::reflect_101, 0.0f);
        weighted_sum(smoothed.lo.data(), smoothed.hi.data(), smooth_x, row, staged);
        weighted_sum(derived.lo.data(), derived.hi.data(), derive_x, row, staged + row);
      },
      [&](const float* const* rows, int64_t k) {
        for (size_t t = 0; t < both.weight.size(); ++t) {
          const bool second = t >= derive_y.weight.size();
          const int64_t distance = static_cast<int64_t>(second ? t - derive_y.weight.size() : t);
          // The second half of a staged row has the derived pixels.
          near.lo[t] = rows[reach_y - distance] + second * row;
          near.hi[t] = rows[reach_y + distance] + second * row;
        }
        weighted_sum(near.lo.data(), near.hi.data(), both, row, result.get());
        store(result.get(), row, static_cast<char*>(out) + k * row * item_bytes(out_dtype));
      });
}

void filter_image(const Grid& grid, const std::vector<laplacian::Partial>& partials, const void* in, DType in_dtype, void* out, DType out_dtype) {
  // Three algorithms: a small window as a whole, two dimensions in one pass, or one convolution for each derivative.
  const laplacian::Sum sum(partials);
  if (sum.taps <= laplacian::kMaxTaps) return correlate(grid, grid, {sum.reach, sum.weight}, Border::reflect_101, 0.0f, in, in_dtype, out, out_dtype);
  if (partials.size() == 2) return filter_plane(grid, partials, in, in_dtype, out, out_dtype);
  const int64_t volume = grid.volume();
  const stencil::Buffer<float> total(volume), derivative(volume);
  for (size_t k = 0; k < partials.size(); ++k) {
    convolve_separable(grid, laplacian::windows(partials[k]), in, in_dtype, k == 0 ? total.get() : derivative.get(), DType::float32);
    for (int64_t e = 0; k > 0 && e < volume; ++e) total.get()[e] += derivative.get()[e];
  }
  row_storer(out_dtype)(total.get(), volume, out);
}

void laplacian_cpu(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& scale, const MaybeTensor& smoothing_size,
                   const Tensor& window_size, bool normalized_kernel, int64_t first_spatial, int64_t spatial, const Tensor& output,
                   const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  check_outputs("laplacian", out, in);
  const laplacian::Arguments arguments(scale, smoothing_size, window_size, normalized_kernel, {first_spatial, spatial});
  launch_cpu("laplacian", in.size(), kNanosecondsPerElement * in.mean_volume(), {input}, [=](int64_t i) {
    const Grid grid = arguments.axes.grid(in, i);
    const char* src = static_cast<const char*>(in.data(i));
    char* dst = static_cast<char*>(out.data(i));
    for (int64_t image = 0; image < arguments.axes.images(in, i); ++image) {
      filter_image(grid, arguments.partials(in, i, image), src, in.dtype(), dst, out.dtype());
      src += grid.volume() * in.item_bytes();
      dst += grid.volume() * out.item_bytes();
    }
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(laplacian, CPU, ndd::laplacian_cpu)
