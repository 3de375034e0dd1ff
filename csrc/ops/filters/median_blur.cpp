// SPDX-License-Identifier: Apache-2.0
// Median of a rectangle. Windows of 3x3 and 5x5 are sorted by networks, first along the height, where neighboring pixels share the work. For other sizes
// the bits of the median are found from the highest on, by counting how many elements of the window are not below a candidate. Neither branches on the
// data, so both vectorize; elements are compared as unsigned keys whose order is that of the values (order_keys.h).
#include "ops/filters/median_blur.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "ndd/kernel.h"
#include "ndd/stencil/keys.h"
#include "ndd/stencil/rows.h"
#include "ndd/stream/stream.h"

namespace ndd {
namespace {

using namespace median_blur;

// Rows sorted column by column: sorted[r] has the r-th smallest of the n rows.
template <int n, class K>
void sort_columns(const K* const* rows, int64_t count, int64_t stride, K* sorted) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const K* row[n];
    K* rank[n];
    for (int r = 0; r < n; ++r) row[r] = rows[r], rank[r] = sorted + r * stride;
    const int64_t columns = count;
#pragma GCC ivdep
    for (int64_t i = 0; i < columns; ++i) {
      K v[n];
#pragma GCC unroll 8
      for (int r = 0; r < n; ++r) v[r] = row[r][i];
      sort<n>(v);
#pragma GCC unroll 8
      for (int r = 0; r < n; ++r) rank[r][i] = v[r];
    }
  });
}

// The median of 3x3 is that of the largest minimum, the middle of the middles, and the smallest maximum of its columns.
template <class K>
void median_3x3(const K* sorted, int64_t stride, int64_t inner, int64_t n, K* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const K *lo = sorted, *mid = sorted + stride, *hi = sorted + 2 * stride;
    K* __restrict dst = out;
    const int64_t count = n, a = inner, b = 2 * inner;
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i)
      dst[i] =
          middle(larger(larger(lo[i], lo[i + a]), lo[i + b]), middle(mid[i], mid[i + a], mid[i + b]), smaller(smaller(hi[i], hi[i + a]), hi[i + b]));
  });
}

// With columns and then rows in order, the element at (r, c) has at least (r + 1) (c + 1) - 1 others not above it: of 25, 13 may be the median and six
// are certainly on either side.
template <class K>
void median_5x5(const K* sorted, int64_t stride, int64_t inner, int64_t n, K* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const K* rank[5];
    for (int r = 0; r < 5; ++r) rank[r] = sorted + r * stride;
    K* __restrict dst = out;
    const int64_t count = n, step = inner;
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      K v[5][5];
#pragma GCC unroll 8
      for (int r = 0; r < 5; ++r) {
#pragma GCC unroll 8
        for (int c = 0; c < 5; ++c) v[r][c] = rank[r][i + c * step];
        sort<5>(v[r]);
      }
      K rest[13] = {v[0][3], v[0][4], v[1][2], v[1][3], v[1][4], v[2][1], v[2][2], v[2][3], v[3][0], v[3][1], v[3][2], v[4][0], v[4][1]};
      sort<13>(rest);
      dst[i] = rest[6];
    }
  });
}

// above[i] += how many of P rows are not below tried[i]. A function of its own: inside of the loop over taps gcc merges iterations of that loop and
// then has no vectors left (250 instead of 4 ms for a window of 7x7).
template <int P, class K, class Count>
void count_above(const K* const* rows, const K* tried, int64_t n, Count* above) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const K* row[P];
    for (int p = 0; p < P; ++p) row[p] = rows[p];
    const K* __restrict limit = tried;
    Count* __restrict counts = above;
    const int64_t count = n;
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      Count sum = counts[i];
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) sum = static_cast<Count>(sum + (row[p][i] >= limit[i]));
      counts[i] = sum;
    }
  });
}

// The largest number that enough of the `count` elements are not below, bit by bit.
template <class K, class Count>
void select_row(const K* const* taps, int64_t count, int64_t n, K* out) {
  // Rows that one loop counts.
  constexpr int kTogether = 7;
  // Columns whose candidates and counts stay in the first-level cache while all rows of the window are counted.
  constexpr int64_t kBlock = 2048 / sizeof(Count);
  K tried[kBlock];
  Count above[kBlock];
  // The median is the largest key that at least this many elements reach.
  const Count enough = static_cast<Count>(count - count / 2);
  std::vector<const K*> rows(taps, taps + count);
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t block = std::min(kBlock, n - begin);
    K* found = out + begin;
    std::fill_n(found, block, K{});
    // From the highest bit down: a bit is set if enough elements reach the number with it.
    for (K bit = static_cast<K>(K{1} << (8 * sizeof(K) - 1)); bit != 0; bit = static_cast<K>(bit >> 1)) {
      for (int64_t i = 0; i < block; ++i) tried[i] = found[i] | bit;
      std::fill_n(above, block, Count{});
      int64_t t = 0;
      for (; t + kTogether <= count; t += kTogether) count_above<kTogether>(rows.data() + t, tried, block, above);
      for (; t < count; ++t) count_above<1>(rows.data() + t, tried, block, above);
      for (int64_t i = 0; i < block; ++i) found[i] = above[i] >= enough ? tried[i] : found[i];
    }
    for (const K*& row : rows) row += block;
  }
}

template <class K>
void filter_image(const Grid& grid, const Reach& height, const Reach& width, const void* in, void* out, DType dtype) {
  const stencil::KeyRows<K> keys = stencil::key_rows<K>(dtype);
  const int64_t row = grid.row(), inner = grid.inner, length = row + (width.size - 1) * inner, row_bytes = row * static_cast<int64_t>(sizeof(K));
  const int64_t size = int64_t{height.size} * width.size;
  const bool three = height.size == 3 && width.size == 3, five = height.size == 5 && width.size == 5;
  const int64_t stride = stencil::whole_lines<K>(length);
  // Networks need their rows sorted column by column; selection needs the address of every element of the window.
  const stencil::Buffer<K> staged_result(row), sorted(three || five ? height.size * stride : 0);
  std::vector<const K*> taps(three || five ? 0 : size);
  stencil::for_rows<K>(
      grid, grid, Reach{}, height, Border::clamp, length,
      [&](int64_t k, K* staged) {
        const char* source = static_cast<const char*>(in) + k * row_bytes;
        stencil::prefetch_row(source + 2 * row_bytes, row_bytes);
        // NaN counts as the largest value.
        keys.load(source, row, static_cast<K>(~K{}), staged + width.before * inner);
        stencil::pad_row(staged + width.before * inner, grid.width, inner, width.before, width.size - 1 - width.before, Border::clamp, K{});
      },
      [&](const K* const* rows, int64_t k) {
        char* target = static_cast<char*>(out) + k * row_bytes;
        K* result = keys.same ? reinterpret_cast<K*>(target) : staged_result.get();
        if (three) {
          sort_columns<3>(rows, length, stride, sorted.get());
          median_3x3(sorted.get(), stride, inner, row, result);
        } else if (five) {
          sort_columns<5>(rows, length, stride, sorted.get());
          median_5x5(sorted.get(), stride, inner, row, result);
        } else {
          for (int64_t t = 0; t < size; ++t) taps[t] = rows[t / width.size] + t % width.size * inner;
          // Counts in the type of the keys if they fit, which keeps both in equal vectors.
          if (static_cast<uint64_t>(size) <= std::numeric_limits<K>::max()) select_row<K, K>(taps.data(), size, row, result);
          else select_row<K, uint32_t>(taps.data(), size, row, result);
        }
        if (!keys.same) keys.store(result, row, target);
      });
}

// A VGA image of uint8 takes 0.1 ms with a window of 3x3, 0.7 with 5x5, 5 with 7x7.
double nanoseconds(const Samples& in) { return in.mean_volume() * static_cast<double>(in.item_bytes()) * 0.5; }

void median_blur_cpu(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& window_size, int64_t first_spatial, const Tensor& output,
                     const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  check_same("experimental.median_blur", out, in);
  const Arguments arguments{AxisArgs<int64_t>("experimental.median_blur", window_size), {first_spatial, 2}};
  launch_cpu("experimental.median_blur", in.size(), nanoseconds(in), {input}, [=](int64_t i) {
    const Grid grid = arguments.axes.grid(in, i);
    const int64_t bytes = grid.volume() * in.item_bytes();
    for (int64_t image = 0; image < arguments.axes.images(in, i); ++image) {
      const int64_t frame = arguments.axes.frame(in, i, image);
      const Reach height = arguments.reach(i, frame, 1), width = arguments.reach(i, frame, 0);
      if (bytes == 0) continue;  // after the check of its arguments
      for_key(in.dtype(), [&](auto tag) {
        filter_image<typename decltype(tag)::type>(grid, height, width, static_cast<const char*>(in.data(i)) + image * bytes,
                                                   static_cast<char*>(out.data(i)) + image * bytes, in.dtype());
      });
    }
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(experimental_median_blur, CPU, ndd::median_blur_cpu)
