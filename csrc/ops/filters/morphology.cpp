// SPDX-License-Identifier: Apache-2.0
// Dilation and erosion: the maximum and the minimum of a rectangle. Rows are reduced along their width when they are staged, by doubling: windows of 2,
// 4, 8... pixels, until two overlapping ones cover the mask, which costs log2 of its width. Then the rows of a window are compared.
#include "ops/filters/morphology.h"

#include <array>
#include <utility>

#include "ndd/kernel.h"
#include "ndd/stencil/keys.h"
#include "ndd/stencil/rows.h"
#include "ndd/stream/stream.h"

namespace ndd {
namespace {

// A VGA image of uint8 with a mask of 3 takes 90 us.
constexpr double kNanosecondsPerByte = 0.1;

template <bool maximum, class K>
NDD_HD K better(K a, K b) {
  return (a > b) == maximum ? a : b;
}

// out[i] = the better of a[i] and b[i]; `out` may be `a`, and `b` may be ahead in it.
template <bool maximum, class K>
void better_row(const K* a, const K* b, int64_t n, K* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const K *first = a, *second = b;
    K* dst = out;
    const int64_t count = n;
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) dst[i] = better<maximum>(first[i], second[i]);
  });
}

// The best of P rows and, to continue, of `out` itself.
template <bool maximum, class K, int P, bool Accumulate>
void best_of(const K* const* rows, int64_t n, K* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const K* row[P];
    for (int p = 0; p < P; ++p) row[p] = rows[p];
    K* __restrict dst = out;
    const int64_t count = n;
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      K best = Accumulate ? better<maximum>(dst[i], row[0][i]) : row[0][i];
#pragma GCC unroll 8
      for (int p = 1; p < P; ++p) best = better<maximum>(best, row[p][i]);
      dst[i] = best;
    }
  });
}

template <bool maximum, class K>
void best_of_rows(const K* const* rows, int64_t count, int64_t n, K* out) {
  // Up to four rows at first, which do not read `out`; then the others, four at a time.
  int64_t done = std::min<int64_t>(count, 4);
  constexpr std::array first{best_of<maximum, K, 1, false>, best_of<maximum, K, 2, false>, best_of<maximum, K, 3, false>,
                             best_of<maximum, K, 4, false>};
  first[done - 1](rows, n, out);
  for (; done + 4 <= count; done += 4) best_of<maximum, K, 4, true>(rows + done, n, out);
  for (; done < count; ++done) best_of<maximum, K, 1, true>(rows + done, n, out);
}

template <bool maximum, class K>
void filter_image(const Grid& grid, const Reach& height, const Reach& width, Border border, const void* in, void* out, DType dtype) {
  // The neutral element: a constant border and NaN never win.
  constexpr K worst = maximum ? K{} : static_cast<K>(~K{});
  const stencil::KeyRows<K> keys = stencil::key_rows<K>(dtype);
  const int64_t row = grid.row(), inner = grid.inner, row_bytes = row * static_cast<int64_t>(sizeof(K)), after = width.size - 1 - width.before;
  const stencil::Buffer<K> result(row);
  stencil::for_rows<K>(
      grid, grid, Reach{}, height, border, row + (width.size - 1) * inner,
      [&](int64_t k, K* staged) {
        // A row of the constant border. Only the part that is compared is filled.
        if (k < 0) return static_cast<void>(std::fill_n(staged, row, worst));
        K* pixels = staged + width.before * inner;
        const char* source = static_cast<const char*>(in) + k * row_bytes;
        stencil::prefetch_row(source + 2 * row_bytes, row_bytes);
        keys.load(source, row, worst, pixels);
        stencil::pad_row(pixels, grid.width, inner, width.before, after, border, worst);
        // Doubles the window in place: pixel i becomes the best of [i, i + 2 span).
        int64_t span = 1;  // pixels in the window so far
        for (; 2 * span <= width.size; span *= 2) better_row<maximum>(staged, staged + span * inner, row + (width.size - 2 * span) * inner, staged);
        // Two windows of `span` pixels that overlap cover the mask.
        if (span < width.size) better_row<maximum>(staged, staged + (width.size - span) * inner, row, staged);
      },
      [&](const K* const* rows, int64_t k) {
        char* target = static_cast<char*>(out) + k * row_bytes;
        K* best = keys.same ? reinterpret_cast<K*>(target) : result.get();
        best_of_rows<maximum>(rows, height.size, row, best);
        if (!keys.same) keys.store(best, row, target);
      });
}

template <bool maximum>
void morphology_cpu(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& anchor, const Tensor& mask_size, int64_t iterations,
                    int64_t border, int64_t first_spatial, const Tensor& output, const MaybeTensor& output_shapes) {
  constexpr const char* op = morphology::kName<maximum>;
  const Samples in(input, input_shapes), out(output, output_shapes);
  check_same(op, out, in);
  const morphology::Arguments arguments{op,         AxisArgs<int64_t>(op, anchor), AxisArgs<int64_t>(op, mask_size),
                                        iterations, static_cast<Border>(border),   {first_spatial, 2}};
  launch_cpu(op, in.size(), kNanosecondsPerByte * in.mean_volume() * static_cast<double>(in.item_bytes()), {input}, [=](int64_t i) {
    const Grid grid = arguments.axes.grid(in, i);
    const int64_t bytes = grid.volume() * in.item_bytes();
    for (int64_t image = 0; image < arguments.axes.images(in, i); ++image) {
      const int64_t frame = arguments.axes.frame(in, i, image);
      const Reach height = arguments.reach(i, frame, 1, grid.height), width = arguments.reach(i, frame, 0, grid.width);
      if (bytes == 0) continue;  // after the check of its arguments
      for_key(in.dtype(), [&](auto tag) {
        filter_image<maximum, typename decltype(tag)::type>(grid, height, width, arguments.border,
                                                            static_cast<const char*>(in.data(i)) + image * bytes,
                                                            static_cast<char*>(out.data(i)) + image * bytes, in.dtype());
      });
    }
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(experimental_dilate, CPU, ndd::morphology_cpu<true>)
NDD_KERNEL(experimental_erode, CPU, ndd::morphology_cpu<false>)
