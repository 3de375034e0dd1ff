// SPDX-License-Identifier: Apache-2.0
// median_blur on a GPU. Values are compared as unsigned keys in the order of the values (order_keys.h), so floats and integers share the code.
#include "ops/filters/median_blur.h"

#include <vector>

#include "ndd/elementwise/order_keys.h"
#include "ndd/kernel.h"
#include "ndd/launch_runs.cuh"
#include "ndd/stencil/byte_windows.cuh"
#include "ndd/stencil/key_tiles.cuh"
#include "ndd/stencil/stencil.cuh"
#include "ndd/stencil/windows.cuh"

namespace ndd::median_blur {
namespace {

// The median of keys. Networks sort windows of 3x3 and 5x5 in registers, first along the rows of the window, which outputs below each other share. Of any
// other window the bits of the median are found from the highest on, by counting how many of its elements are not below.
// Three kernels, in the order in which they are tried: ByteMedian3 and ByteMedian5 for squares of bytes, four outputs in a word; this one for
// any type and window that fits in a tile of shared memory; median_kernel for what is left.
template <class K>
struct Median {
  using Staged = K;
  using Wide = typename stencil::KeyTiles<K>::Wide;
  static constexpr bool kWeighted = false;
  static constexpr int kBlocks = sizeof(K) == 8 ? 2 : 3;  // of a multiprocessor: up to 112 registers
  static constexpr int kPiece = stencil::kPiece;
  stencil::KeyTiles<K> keys;

  __device__ int64_t in_bytes() const { return sizeof(K); }
  __device__ void prepare(float*, const stencil::WindowImage&) const {}
  __device__ void stage(K* tile, int pitch, const stencil::StagedRows& from, const stencil::Plane& plane, const stencil::WindowImage&) const {
    keys.stage(tile, pitch, from, plane, K{});
  }

  __device__ void outputs(const K* from, int pitch, int inner, int down, int along, const float*, void* to, int64_t at, int64_t row,
                          int count) const {
    K* element = static_cast<K*>(to) + at;
    constexpr bool kBytes = sizeof(K) == 1;  // ByteMedian3 and ByteMedian5 have those of bytes
    if (!kBytes && down == 3 && along == 3) outputs_3x3(from, pitch, inner, element, row, count);
    else if (!kBytes && down == 5 && along == 5) outputs_5x5(from, pitch, inner, element, row, count);
    else outputs_of_any(from, pitch, inner, down, along, element, row, count);
  }

  // Elements of a row of the window are `inner` apart: channels are interleaved.
  template <int n>
  static __device__ void sorted_row(Wide (&sorted)[n], const K* from, int inner) {
#pragma unroll
    for (int c = 0; c < n; ++c) sorted[c] = from[c * inner];
    sort<n>(sorted);
  }

  // Of rows that are sorted, the median is that of the largest minimum, the middle of the middles, and the smallest maximum. 18 comparisons an output.
  __device__ void outputs_3x3(const K* from, int pitch, int inner, K* element, int64_t row, int count) const {
    Wide v[3][3];
    sorted_row<3>(v[0], from, inner);
    sorted_row<3>(v[1], from + pitch, inner);
#pragma unroll
    for (int o = 0; o < kPiece; ++o, element += row) {
      if (o >= count) break;
      // Only one new row for each output: the two others are kept in a ring.
      sorted_row<3>(v[(o + 2) % 3], from + (o + 2) * pitch, inner);
      *element = keys.bits(
          middle(larger(larger(v[0][0], v[1][0]), v[2][0]), middle(v[0][1], v[1][1], v[2][1]), smaller(smaller(v[0][2], v[1][2]), v[2][2])));
    }
  }

  // With rows and then columns in order, the element at (r, c) has at least (r + 1) (c + 1) - 1 others not above it: of 25, 13 may be the median and six
  // are certainly on either side.
  __device__ void outputs_5x5(const K* from, int pitch, int inner, K* element, int64_t row, int count) const {
    Wide v[5][5];
#pragma unroll
    for (int r = 1; r < 5; ++r, from += pitch) sorted_row<5>(v[r], from, inner);
#pragma unroll 1
    for (int o = 0; o < count; ++o, element += row, from += pitch) {
#pragma unroll
      // The rows move up by one: with places that are known at compile time they stay in registers.
      for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int c = 0; c < 5; ++c) v[r][c] = v[r + 1][c];
      sorted_row<5>(v[4], from, inner);
      Wide w[5][5];
#pragma unroll
      for (int c = 0; c < 5; ++c) {
#pragma unroll
        for (int r = 0; r < 5; ++r) w[c][r] = v[r][c];
        sort<5>(w[c]);
      }
      Wide rest[13] = {w[0][3], w[0][4], w[1][2], w[1][3], w[1][4], w[2][1], w[2][2], w[2][3], w[3][0], w[3][1], w[3][2], w[4][0], w[4][1]};
      sort<13>(rest);
      *element = keys.bits(rest[6]);
    }
  }

  static __device__ int is_below(Wide value, Wide tried) {
    if constexpr (sizeof(K) < 4) return static_cast<int>((value - tried) >> 31);  // the sign, which is added in one instruction more
    else return value < tried;
  }

  // A value is loaded once for 16 outputs and each bit.
  // All windows of a thread are searched together, from the highest bit of the key on: a bit of the median is set if at most half of the
  // elements are below the number with that bit.
  __device__ void outputs_of_any(const K* from, int pitch, int inner, int down, int along, K* element, int64_t row, int count) const {
    const int most = down * along / 2;  // that may be below the median
    Wide tried[kPiece];  // the bits found so far and the one in question
#pragma unroll
    for (int o = 0; o < kPiece; ++o) tried[o] = 0;
    for (Wide bit = stencil::KeyTiles<K>::kSign; bit != 0; bit >>= 1) {
      int below[kPiece];
#pragma unroll
      for (int o = 0; o < kPiece; ++o) {
        below[o] = 0;
        tried[o] |= bit;
      }
      for (int dx = 0; dx < along; ++dx) {
        Wide window[kPiece];
        const K* next = from + dx * inner;
#pragma unroll
        for (int o = 0; o < kPiece; ++o, next += pitch) {
          window[o] = *next;
          below[o] += is_below(window[o], tried[o]);
        }
        // The column's next elements: each enters the window of one output and leaves that of another. A ring of registers.
        for (int first = 1; first < down; first += kPiece) {
#pragma unroll
          for (int u = 0; u < kPiece; ++u) {
            if (first + u >= down) break;
            window[u] = *next;
            next += pitch;
#pragma unroll
            for (int o = 0; o < kPiece; ++o) below[o] += is_below(window[(o + 1 + u) % kPiece], tried[o]);
          }
        }
      }
#pragma unroll
      for (int o = 0; o < kPiece; ++o)
        // Too many are below: the bit of the median is 0.
        if (below[o] > most) tried[o] ^= bit;
    }
#pragma unroll
    for (int o = 0; o < kPiece; ++o, element += row)
      if (o < count) *element = keys.bits(tried[o]);
  }
};

using stencil::bytes::Lanes;

// As in Median::outputs_3x3. Predicted: 16 instructions for each output, 0.5 of the copy bandwidth.
struct ByteMedian3 {
  static constexpr int kRows = 3, kColumns = 3, kWeights = 0, kOutputs = 16, kScale = 1;
  static constexpr int kResident = 4;  // up to 64 registers
  uint32_t flip;  // the sign bits of signed bytes

  template <class Words, class Put>
  __device__ __forceinline__ void operator()(const Words& words, const float*, int, int, Put put) const {
    Lanes v[2][3][3];  // sorted rows, of odd bytes and of even ones
    const auto add = [&](int r) {
      uint32_t taps[3];
      words(r, taps);
#pragma unroll
      // Unsigned keys in the order of the values, and back at the end.
      for (int c = 0; c < 3; ++c) taps[c] ^= flip;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Lanes row[3];
        stencil::bytes::lanes_of(taps, half == 0, row);
#pragma unroll
        for (int c = 0; c < 3; ++c) {
          v[half][0][c] = v[half][1][c];
          v[half][1][c] = v[half][2][c];
        }
        v[half][2][0] = smallest(row[0], row[1], row[2]);
        v[half][2][1] = middle(row[0], row[1], row[2]);
        v[half][2][2] = largest(row[0], row[1], row[2]);
      }
    };
    add(0);
    add(1);
#pragma unroll 4
    for (int o = 0; o < kOutputs; ++o) {
      add(o + 2);
      Lanes median[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto& w = v[half];
        median[half] = middle(largest(w[0][0], w[1][0], w[2][0]), middle(w[0][1], w[1][1], w[2][1]), smallest(w[0][2], w[1][2], w[2][2]));
      }
      put(o, {stencil::bytes::word_of(median[0], median[1]) ^ flip});
    }
  }
};

// Merges a and b, both in order, into `merged`: Batcher's odd-even merge of those at even and of those at odd places (Knuth, volume 3, 5.3.4).
template <int m, int n, int step>
__device__ __forceinline__ void merge(const Lanes* a, const Lanes* b, Lanes* merged) {
  if constexpr (m == 0 || n == 0) {
#pragma unroll
    for (int k = 0; k < m + n; ++k) merged[k] = (m > 0 ? a : b)[k * step];
  } else if constexpr (m == 1 && n == 1) {
    merged[0] = smaller(a[0], b[0]);
    merged[1] = larger(a[0], b[0]);
  } else {
    constexpr int kEven = (m + 1) / 2 + (n + 1) / 2, kOdd = m / 2 + n / 2;
    Lanes even[kEven], odd[kOdd > 0 ? kOdd : 1];
    merge<(m + 1) / 2, (n + 1) / 2, 2 * step>(a, b, even);
    merge<m / 2, n / 2, 2 * step>(a + step, b + step, odd);
    // The smallest is the first of the even places. Each of the others is compared with one neighbor only.
    merged[0] = even[0];
#pragma unroll
    for (int k = 0; 2 * k + 1 < m + n; ++k) {
      if (k < kOdd && k + 1 < kEven) {
        merged[2 * k + 1] = smaller(odd[k], even[k + 1]);
        merged[2 * k + 2] = larger(odd[k], even[k + 1]);
      } else {
        // The last one has no partner.
        merged[2 * k + 1] = k < kOdd ? odd[k] : even[k + 1];
      }
    }
  }
}

// Two outputs below each other share four rows of their windows. Of those 20 elements, only the 8th to the 13th may be the median of either: it is the 6th
// of these and the five of the remaining row. Two merged rows serve two such cores. 57 minima and maxima an output, of two outputs at a time, where a
// network for each output takes 170. Predicted: 42 instructions for each output, 0.35 ms for 128 VGA images.
struct ByteMedian5 {
  static constexpr int kRows = 5, kColumns = 5, kWeights = 0, kOutputs = 16, kScale = 1;
  static constexpr int kResident = 2;  // up to 128 registers: fewer would spill the sorted rows
  uint32_t flip;

  // State of odd or of even bytes, when the outputs o and o + 1 follow.
  struct Half {
    Lanes top[5], third[5], fourth[5];  // the rows o, o + 2 and o + 3, in order
    Lanes pair[10];  // the rows o + 1 and o + 2
  };

  static __device__ __forceinline__ void sorted_row(const uint32_t (&taps)[5], bool odd, Lanes (&row)[5]) {
    stencil::bytes::lanes_of(taps, odd, row);
    sort<5>(row);
  }

  // The 6th of a and b, both in order: the largest of the i smallest of a and of the 6 - i smallest of b, for the best i.
  // Two lists in order share the work: taking i of one and 6 - i of the other, the larger of the two ends bounds the 6th from above, and for the
  // best i it is the 6th.
  static __device__ __forceinline__ Lanes sixth(const Lanes* a, const Lanes (&b)[5]) {
    const Lanes low = smallest(a[5], larger(a[4], b[0]), larger(a[3], b[1]));
    return smaller(low, smallest(larger(a[2], b[2]), larger(a[1], b[3]), larger(a[0], b[4])));
  }

  static __device__ __forceinline__ void begin(Half& half, const uint32_t (&rows)[4][5], bool odd) {
    Lanes second[5];
    sorted_row(rows[0], odd, half.top);
    sorted_row(rows[1], odd, second);
    sorted_row(rows[2], odd, half.third);
    sorted_row(rows[3], odd, half.fourth);
    merge<5, 5, 1>(second, half.third, half.pair);
  }

  // Outputs o and o + 1 share the rows o + 1 to o + 4, whose merged core has 20 elements; the first adds row o, the second row o + 5.
  static __device__ __forceinline__ void step(Half& half, const uint32_t (&fifth)[5], const uint32_t (&sixth_row)[5], bool odd, Lanes (&medians)[2]) {
    Lanes row[5], pair[10], core[20];
    sorted_row(fifth, odd, row);
    merge<5, 5, 1>(half.fourth, row, pair);
    merge<10, 10, 1>(half.pair, pair, core);  // the compiler removes what leads to neither of the six
    medians[0] = sixth(core + 7, half.top);
    sorted_row(sixth_row, odd, half.fourth);
    medians[1] = sixth(core + 7, half.fourth);
#pragma unroll
    for (int c = 0; c < 5; ++c) {
      half.top[c] = half.third[c];
      half.third[c] = row[c];
    }
#pragma unroll
    for (int c = 0; c < 10; ++c) half.pair[c] = pair[c];
  }

  template <class Words>
  __device__ __forceinline__ void flipped(const Words& words, int r, uint32_t (&taps)[5]) const {
    words(r, taps);
#pragma unroll
    for (int c = 0; c < 5; ++c) taps[c] ^= flip;
  }

  template <class Words, class Put>
  __device__ __forceinline__ void operator()(const Words& words, const float*, int, int, Put put) const {
    // Two outputs for each turn, which share the cores.
    Half odd, even;
    {
      uint32_t rows[4][5];
#pragma unroll
      for (int r = 0; r < 4; ++r) flipped(words, r, rows[r]);
      begin(odd, rows, true);
      begin(even, rows, false);
    }
#pragma unroll 1
    for (int o = 0; o < kOutputs; o += 2) {
      uint32_t fifth[5], sixth_row[5];
      flipped(words, o + 4, fifth);
      flipped(words, o + 5, sixth_row);
      Lanes of_odd[2], of_even[2];
      step(odd, fifth, sixth_row, true, of_odd);
      step(even, fifth, sixth_row, false, of_even);
      put(o, {stencil::bytes::word_of(of_odd[0], of_even[0]) ^ flip});
      put(o + 1, {stencil::bytes::word_of(of_odd[1], of_even[1]) ^ flip});
    }
  }
};

// Of the fallback.
struct Image {
  const void* in;
  void* out;
  Grid grid;
  Reach height, width;
};

// The fallback for windows that do not fit in a shared-memory tile: they are read once for each bit of the median, through the first-level cache.
template <class K>
__global__ void __launch_bounds__(256) median_kernel(const __grid_constant__ TableRows<Image> images, int64_t count, DType dtype) {
  for (int64_t n = blockIdx.y; n < count; n += gridDim.y) {
    const Image image = images[n];
    const Grid& grid = image.grid;
    // A bit is set if at least half of the elements, counting the median, have a key that is not below.
    const int64_t size = int64_t{image.height.size} * image.width.size, enough = size - size / 2;
    for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < grid.volume(); e += int64_t{gridDim.x} * blockDim.x) {
      const int64_t channel = e % grid.inner, x = e / grid.inner % grid.width - image.width.before, y = e / grid.row() - image.height.before;
      const auto key = [&](int64_t dy, int64_t dx) {
        const int64_t row = border_index(Border::clamp, y + dy, grid.height), column = border_index(Border::clamp, x + dx, grid.width);
        return load_key<K>(image.in, dtype, row * grid.row() + column * grid.inner + channel, static_cast<K>(~K{}));
      };
      // From the highest bit on, as in outputs_of_any(): a bit stays if enough elements are at least as large.
      K found{};
      for (K bit = static_cast<K>(K{1} << (8 * sizeof(K) - 1)); bit != 0; bit = static_cast<K>(bit >> 1)) {
        const K tried = found | bit;
        int64_t above = 0;
        for (int32_t dy = 0; dy < image.height.size; ++dy)
          for (int32_t dx = 0; dx < image.width.size; ++dx) above += key(dy, dx) >= tried;
        if (above >= enough) found = tried;
      }
      store_key<K>(found, image.out, dtype, e);
    }
  }
}

void median_blur_cuda(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& window_size, int64_t first_spatial, const Tensor& output,
                      const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  check_same("experimental.median_blur", out, in);
  const Arguments arguments{AxisArgs<int64_t>("experimental.median_blur", window_size), {first_spatial, 2}};
  std::vector<Image> images;  // those that fit in no tile
  std::vector<stencil::WindowImage> tiled;
  // Every image goes to the fastest kernel that has its window; each list is one launch.
  std::vector<stencil::ByteImages> squares[2];  // of 3 x 3 and of 5 x 5
  for (int64_t i = 0; i < in.size(); ++i) {
    const Grid grid = arguments.axes.grid(in, i);
    const int64_t bytes = grid.volume() * in.item_bytes();
    // Frames and planes are images of their own.
    for (int64_t image = 0; image < arguments.axes.images(in, i); ++image) {
      const int64_t frame = arguments.axes.frame(in, i, image);
      const void* from = static_cast<const char*>(in.data(i)) + image * bytes;
      void* to = static_cast<char*>(out.data(i)) + image * bytes;
      const Reach height = arguments.reach(i, frame, 1), width = arguments.reach(i, frame, 0);
      if (in.item_bytes() == 1 && height.size == width.size && (width.size == 3 || width.size == 5) && stencil::fits_bytes(grid, grid, width.size)) {
        if (width.size == 3) squares[0].push_back(stencil::byte_images<ByteMedian3>(grid, grid, height, width, from, to));
        else squares[1].push_back(stencil::byte_images<ByteMedian5>(grid, grid, height, width, from, to));
        continue;
      }
      const stencil::WindowImage tile{from,
                                      to,
                                      nullptr,
                                      nullptr,
                                      grid.height,
                                      grid.width,
                                      grid.height,
                                      grid.width,
                                      grid.inner,
                                      {height.size, height.before},
                                      {width.size, width.before}};
      bool fits = false;
      for_key(in.dtype(), [&](auto tag) { fits = stencil::fits_window<Median<typename decltype(tag)::type>>(tile); });
      if (fits) {
        tiled.push_back(tile);
      } else {
        images.push_back({from, to, grid, height, width});
      }
    }
  }
  // Signed bytes have their order with the sign bit inverted.
  const uint32_t flip = in.item_bytes() == 1 ? stencil::KeyTiles<uint8_t>(in.dtype(), 0, 0).sign * 0x01010101u : 0;
  stencil::bytes::launch("experimental.median_blur", squares[0], Border::clamp, 0, ByteMedian3{flip});
  stencil::bytes::launch("experimental.median_blur", squares[1], Border::clamp, 0, ByteMedian5{flip});
  if (!tiled.empty()) {
    for_key(in.dtype(), [&](auto tag) {
      using K = typename decltype(tag)::type;
      stencil::launch_windows("experimental.median_blur", tiled, Border::clamp,
                              Median<K>{stencil::KeyTiles<K>(in.dtype(), K{}, static_cast<K>(~K{}))});
    });
  }
  const auto volume = [](const Image& image) { return image.grid.volume(); };
  launch_runs("experimental.median_blur", images, volume, 256, [&](dim3 grid, const auto& rows, int64_t count) {
    for_key(in.dtype(),
            [&](auto tag) { median_kernel<typename decltype(tag)::type><<<grid, 256, 0, current_cuda_stream()>>>(rows, count, in.dtype()); });
  });
}

}  // namespace
}  // namespace ndd::median_blur
NDD_KERNEL(experimental_median_blur, CUDA, ndd::median_blur::median_blur_cuda)
