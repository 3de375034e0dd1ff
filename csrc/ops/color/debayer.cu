// SPDX-License-Identifier: Apache-2.0
// debayer on CUDA. Bytes go through the driver of small windows (byte_windows.cuh), four pixels at a time. In a row of the mosaic, pixels with the same
// colors around them are two apart, so the two of a word share the instructions of a Pair. 16-bit images, gray results and images too small for the
// window's borders take a thread for each column of 16 pixels.
#include "ops/color/debayer.h"

#include <algorithm>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/kernel.h"
#include "ndd/stencil/byte_windows.cuh"

namespace ndd::debayer {

// Two shorts in a register, neither of which is ever negative: sums of both are sums of the whole.
// A sum or difference of two Pairs is one instruction for both pixels, because no half borrows from or carries into the other: all sums here
// stay below 2^16.
struct Pair {
  uint32_t bits = 0;

  NDD_HD Pair() = default;
  NDD_HD explicit Pair(int value) : bits(static_cast<uint32_t>(value) * 0x00010001u) {}
};

__device__ __forceinline__ Pair pair_of(uint32_t bits) {
  Pair pair;
  pair.bits = bits;
  return pair;
}
__device__ __forceinline__ Pair operator+(Pair a, Pair b) { return pair_of(a.bits + b.bits); }
__device__ __forceinline__ Pair operator*(int a, Pair b) { return pair_of(a * b.bits); }
__device__ __forceinline__ Pair operator>>(Pair a, int k) { return pair_of(a.bits >> k & (0xFFFFu >> k) * 0x00010001u); }
__device__ __forceinline__ Pair short_of(Pair a) { return a; }
__device__ __forceinline__ Pair smaller(Pair a, Pair b) { return pair_of(__vminu2(a.bits, b.bits)); }
__device__ __forceinline__ Pair larger(Pair a, Pair b) { return pair_of(__vmaxu2(a.bits, b.bits)); }
__device__ __forceinline__ Pair distance_of(Pair a, Pair b) { return pair_of(larger(a, b).bits - smaller(a, b).bits); }
// All bits of a half are set where the one of a is below that of b: b - 1 + 2^15 - a, which has no borrow, keeps its highest bit.
__device__ __forceinline__ Pair is_below(Pair a, Pair b) { return pair_of(((b.bits + 0x7FFF7FFFu - a.bits) >> 15 & 0x00010001u) * 0xFFFFu); }
__device__ __forceinline__ Pair kept(Pair keep, Pair value) { return pair_of(keep.bits & value.bits); }

namespace {

constexpr int kThreads = 256;

// bilinear_pixel() of four bytes at a time. The pixels at the border copy their neighbors, as in OpenCV. Predicted: 30 instructions for each pixel, and 0.5 of
// the copy bandwidth.
// A functor of byte_windows.cuh. The word of four pixels becomes two Pairs, of the even and of the odd ones; `color` computes one Pair, whose
// pixels are all green or all not.
struct PairedMeans {
  static constexpr int kRows = 3, kColumns = 3, kWeights = 0, kOutputs = 8, kScale = 3;
  static constexpr int kResident = 4;  // up to 64 registers
  bool edge_aware;

  struct Colors {
    Pair own, green, other;
  };

  template <bool green>
  __device__ __forceinline__ Colors color(const Pair (&window)[3][4], int first) const {
    const auto at = [&](int dy, int dx) { return window[dy + 1][dx + 1 + first]; };
    const Pair sides = at(0, -1) + at(0, 1), ends = at(-1, 0) + at(1, 0), across = (sides + Pair(1)) >> 1, along = (ends + Pair(1)) >> 1;
    // Left and right of a green pixel lies its row's own color, above and below it the other one.
    if constexpr (green) return {across, at(0, 0), along};
    const Pair diagonal = (at(-1, -1) + at(-1, 1) + at(1, -1) + at(1, 1) + Pair(2)) >> 2;
    Pair cross = (sides + ends + Pair(2)) >> 2;
    if (edge_aware) {
      const Pair upright = is_below(distance_of(at(-1, 0), at(1, 0)), distance_of(at(0, -1), at(0, 1)));
      cross = pair_of((upright.bits & along.bits) | (~upright.bits & across.bits));
    }
    return {at(0, 0), cross, diagonal};
  }

  // Words of the channels of the pixels 0 and 2, and 1 and 3.
  static __device__ __forceinline__ void interleave(const Pair (&even)[3], const Pair (&odd)[3], uint32_t (&rgb)[3]) {
    // A channel of the pixels 0 and 2 is in the lower and the upper half of a Pair, whose second and fourth byte are 0. `low` selects halves of a and b,
    // `high` halves of c and d.
    const auto join = [](Pair a, Pair b, Pair c, Pair d, uint32_t low, uint32_t high) {
      return __byte_perm(__byte_perm(a.bits, b.bits, low), __byte_perm(c.bits, d.bits, high), 0x5410);
    };
    rgb[0] = join(even[0], even[1], even[2], odd[0], 0x0040, 0x0040);
    rgb[1] = join(odd[1], odd[2], even[0], even[1], 0x0040, 0x0062);
    rgb[2] = join(even[2], odd[0], odd[1], odd[2], 0x0062, 0x0062);
  }

  template <class Words, class Put>
  __device__ __forceinline__ void operator()(const Words& words, const float*, int y, int parity, Put put) const {
    Pair window[3][4];  // as in PairedGradients
    const int height = words.image.out_height, width = words.image.out_row, x = words.x;
    const auto add = [&](int r) {
      uint32_t taps[3];
      words(r, taps);
#pragma unroll
      for (int dy = 0; dy < 2; ++dy)
#pragma unroll
        // The window slides down by one row, in registers.
        for (int k = 0; k < 4; ++k) window[dy][k] = window[dy + 1][k];
#pragma unroll
      for (int k = 0; k < 3; ++k) window[2][k] = pair_of(taps[k] & 0x00FF00FFu);
      window[2][3] = pair_of(taps[2] >> 8 & 0x00FF00FFu);
    };
    add(0);
    add(1);
    uint32_t rgb[3] = {};
#pragma unroll 1
    for (int o = 0; o < kOutputs; ++o) {
      add(o + 2);
      const int row = y + o;
      if (row > 0 && row < height - 1) {  // the last row, which is odd, copies the one before it, and the first row follows the second one
        // `own` is the color of the row's colored pixels: blue in rows with blue, red in the others. `even_is_green`: the pixels 0 and 2 of the
        // word.
        const bool blue_row = (row & 1) == parity >> 1, even_is_green = ((parity & 1) == 0) != blue_row;
        const Colors e = even_is_green ? color<true>(window, 0) : color<false>(window, 0);
        const Colors d = even_is_green ? color<false>(window, 1) : color<true>(window, 1);
        Pair even[3] = {blue_row ? e.other : e.own, e.green, blue_row ? e.own : e.other};
        Pair odd[3] = {blue_row ? d.other : d.own, d.green, blue_row ? d.own : d.other};
        if (x == 0 || x + 4 >= width) {
#pragma unroll
          for (int c = 0; c < 3; ++c) {
            if (x == 0) even[c].bits = __byte_perm(even[c].bits, odd[c].bits, 0x3254);
            if (x + 2 == width) odd[c].bits = __byte_perm(odd[c].bits, even[c].bits, 0x3254);
            if (x + 4 == width) odd[c].bits = __byte_perm(odd[c].bits, even[c].bits, 0x7610);
          }
        }
        interleave(even, odd, rgb);
      }
      // Row 0 has no row above it and copies row 1, which the same thread computes.
      if (row == 1) put(0, rgb);
      if (row > 0) put(o, rgb);
    }
  }
};

// Gradients of four bytes at a time: the two bytes of a color, at every other position, form a Pair. Predicted: 230 instructions per pixel and 0.35 ms for
// 128 VGA images, where a thread for a pixel took 400 and 1.2 ms.
struct PairedGradients {
  static constexpr int kRows = 5, kColumns = 5, kWeights = 0, kOutputs = 8, kScale = 3;
  static constexpr int kResident = 2;  // up to 128 registers

  // `window` begins two bytes to the left of the first pixel.
  // The pixels are those of even places, or of odd ones: a choice for each value, because four copies of the code would be 40 KB more.
  template <bool green>
  static __device__ __forceinline__ void color(const Pair (&window)[5][6], bool is_odd, bool blue_row, uint32_t (&rgb)[2][3]) {
    // The 5 x 5 pixels around each of the two: a Pair holds every other byte, so neighbors along x are in the next Pair.
    Pair own[5][5];
#pragma unroll
    for (int dy = 0; dy < 5; ++dy)
#pragma unroll
      for (int dx = 0; dx < 5; ++dx) own[dy][dx] = is_odd ? window[dy][dx + 1] : window[dy][dx];
    const auto at = [&](int dy, int dx) { return own[dy + 2][dx + 2]; };
    // Gradients and sums take most of the time and fit in 16 bits; only the division at the end is in floats, pixel by pixel.
    const Smooth<Pair> sums = sum_smooth<Pair>(at, green);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto short_at = [=](Pair pair) { return static_cast<Short>(pair.bits >> 16 * half & 0xFFFF); };
      const Pixel p =
          smooth_pixel({short_at(sums.count), short_at(sums.same), short_at(sums.first), short_at(sums.second)}, short_at(at(0, 0)), green);
      rgb[half][0] = blue_row ? p.other : p.own;
      rgb[half][1] = p.green;
      rgb[half][2] = blue_row ? p.own : p.other;
    }
  }

  // `parity` has that of the row with blue in its second bit, and that of the column in its first.
  template <class Words, class Put>
  __device__ __forceinline__ void operator()(const Words& words, const float*, int y, int parity, Put put) const {
    Pair window[5][6];  // bytes of five rows, beginning two to the left of the first pixel; each is paired with the byte two to its right
    const auto add = [&](int r) {
      uint32_t taps[5];
      words(r, taps);
#pragma unroll
      for (int dy = 0; dy < 4; ++dy)
#pragma unroll
        for (int k = 0; k < 6; ++k) window[dy][k] = window[dy + 1][k];
#pragma unroll
      for (int k = 0; k < 5; ++k) window[4][k] = pair_of(taps[k] & 0x00FF00FFu);
      window[4][5] = pair_of(taps[4] >> 8 & 0x00FF00FFu);
    };
#pragma unroll
    for (int r = 0; r < 4; ++r) add(r);
#pragma unroll 1
    for (int o = 0; o < kOutputs; ++o) {
      add(o + 4);
      const bool blue_row = ((y + o) & 1) == parity >> 1, even_is_green = ((parity & 1) == 0) != blue_row;
      uint32_t green[2][3], other[2][3];
      color<true>(window, !even_is_green, blue_row, green);
      color<false>(window, even_is_green, blue_row, other);
      uint32_t in_order[4][3];
#pragma unroll
      for (int c = 0; c < 3; ++c) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          in_order[2 * half][c] = even_is_green ? green[half][c] : other[half][c];
          in_order[2 * half + 1][c] = even_is_green ? other[half][c] : green[half][c];
        }
      }
      uint32_t rgb[3];
#pragma unroll
      for (int w = 0; w < 3; ++w) {
        rgb[w] = 0;
#pragma unroll
        for (int b = 0; b < 4; ++b) rgb[w] |= in_order[(4 * w + b) / 3][(4 * w + b) % 3] << 8 * b;
      }
      put(o, rgb);
    }
  }
};

// A mosaic for color_gpu. `blue_y` and `blue_x` are 0 or 1: the parity of the rows and columns with blue pixels.
struct Image {
  const void* src;
  void* dst;
  int64_t height, width, blue_y, blue_x;
  Algorithm algorithm;
};

constexpr int kRows = 16;  // pixels of a thread, one below the other

// Pixels x of rows [top, bottom). The window of radius r slides down in registers: a pixel takes 2 r + 1 loads, and divisions are made for 16 at a time.
template <class T, int r>
__device__ void color_column(const Image& image, int64_t x, int64_t top, int64_t bottom) {
  constexpr int kSide = 2 * r + 1;
  const int64_t height = image.height, width = image.width;
  const bool is_vng = r == 2, too_small = !is_vng && (height < 4 || width < 4), is_gray = image.algorithm == gray;
  const bool edges = image.algorithm == edge_aware;
  // Border pixels copy their neighbor, as in OpenCV.
  const auto inside = [=](int64_t at, int64_t extent) { return is_vng ? at : min(max(at, int64_t{1}), extent - 2); };
  const int64_t center_x = inside(x, width);
  const T* const src = static_cast<const T*>(image.src);
  // Mirrored once for the whole column, not for each row.
  int64_t columns[kSide];
  T window[kSide][kSide];
#pragma unroll
  for (int dx = 0; dx < kSide; ++dx) columns[dx] = mirror_index(center_x + dx - r, width);
  const auto load = [&](T* row, int64_t y) {
    const T* const from = src + mirror_index(y, height) * width;
#pragma unroll
    for (int dx = 0; dx < kSide; ++dx) row[dx] = from[columns[dx]];
  };
  int64_t center = too_small ? 0 : inside(top, height);
  if (!too_small) {
#pragma unroll
    for (int dy = 0; dy < kSide; ++dy) load(window[dy], center + dy - r);
  }
  T* dst = static_cast<T*>(image.dst) + (top * width + x) * (is_gray ? 1 : 3);
  for (int64_t y = top; y < bottom; ++y, dst += width * (is_gray ? 1 : 3)) {
    Pixel p{0, 0, 0};
    bool blue_row = false;
    if (!too_small) {
      // At the upper and lower border the center stays, and so do the colors.
      if (inside(y, height) > center) {
        ++center;
#pragma unroll
        for (int dy = 0; dy + 1 < kSide; ++dy)
#pragma unroll
          for (int dx = 0; dx < kSide; ++dx) window[dy][dx] = window[dy + 1][dx];
        load(window[kSide - 1], center + r);
      }
      blue_row = center % 2 == image.blue_y;
      const bool green = (center_x % 2 == image.blue_x) != blue_row;
      const auto at = [&](int64_t dy, int64_t dx) { return static_cast<int32_t>(window[dy + r][dx + r]); };
      if constexpr (r == 2) p = vng_pixel(at, green);
      else if (is_gray) p.own = gray_pixel(at, green, blue_row);
      else p = bilinear_pixel<T>(at, green, edges);
    }
    if (is_gray) {
      *dst = static_cast<T>(p.own);
      continue;
    }
    dst[0] = static_cast<T>(blue_row ? p.other : p.own);
    dst[1] = static_cast<T>(p.green);
    dst[2] = static_cast<T>(blue_row ? p.own : p.other);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) color_gpu(const Image* images, int64_t count) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Image image = images[k];
    // A warp takes 32 columns of 16 rows, so its loads of a row are neighbors.
    const int64_t groups = (image.width + 31) / 32, tasks = groups * ((image.height + kRows - 1) / kRows);
    for (int64_t task = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32; task < tasks; task += int64_t{gridDim.x} * (kThreads / 32)) {
      const int64_t x = task % groups * 32 + threadIdx.x % 32, top = task / groups * kRows, bottom = min(top + kRows, image.height);
      if (x >= image.width) continue;
      if (image.algorithm == vng) color_column<T, 2>(image, x, top, bottom);
      else color_column<T, 1>(image, x, top, bottom);
    }
  }
}

void debayer_cuda(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& blue_position, int64_t algorithm, int64_t first,
                  const Tensor& output, const MaybeTensor& output_shapes) {
  const Mosaics mosaics(input, input_shapes, blue_position, algorithm, first, output, output_shapes);
  std::vector<Image> images;
  std::vector<stencil::ByteImages> gradients, means;
  int64_t max_pixels = 0;
  for (int64_t i = 0; i < mosaics.in.size(); ++i) {
    mosaics.check(i);
    const int64_t height = mosaics.height(i), width = mosaics.width(i), bytes = height * width * mosaics.in.item_bytes();
    for (int64_t f = 0; f < mosaics.frames(i) && bytes > 0; ++f) {
      const void* const from = static_cast<const char*>(mosaics.in.data(i)) + f * bytes;
      void* const to = static_cast<char*>(mosaics.out.data(i)) + f * bytes * mosaics.channels();
      const int64_t blue_y = mosaics.blue_parity(i, f, 0), blue_x = mosaics.blue_parity(i, f, 1);
      const Grid grid{1, height, width, 1};
      const Algorithm own = mosaics.algorithm_of(i);
      const auto parity = static_cast<int32_t>(2 * blue_y + blue_x);
      // A window that reaches over both borders of a small image would be mirrored twice.
      if (mosaics.in.dtype() != DType::uint8 || own == gray || std::min(height, width) < 4 || !stencil::fits_bytes(grid, grid, 5))
        images.push_back({from, to, height, width, blue_y, blue_x, own});
      else if (own == vng) gradients.push_back(stencil::byte_images<PairedGradients>(grid, grid, {5, 2}, {5, 2}, from, to, parity));
      else means.push_back(stencil::byte_images<PairedMeans>(grid, grid, {3, 1}, {3, 1}, from, to, parity));
    }
    max_pixels = std::max(max_pixels, height * width);
  }
  stencil::bytes::launch("debayer", gradients, Border::reflect_101, 0, PairedGradients{});
  stencil::bytes::launch("debayer", means, Border::reflect_101, 0, PairedMeans{mosaics.algorithm == edge_aware});
  if (images.empty()) return;
  const CudaTable<Image> table(images);
  const int64_t count = static_cast<int64_t>(images.size());
  const dim3 grid = batch_grid(max_pixels / (kThreads * kRows) + 1, 1, count);
  // A byte in and three out for some 60 instructions a pixel: bound by those.
  if (mosaics.in.dtype() == DType::uint8) color_gpu<uint8_t><<<grid, kThreads, 0, current_cuda_stream()>>>(table.data(), count);
  else color_gpu<uint16_t><<<grid, kThreads, 0, current_cuda_stream()>>>(table.data(), count);
  check_launch("debayer");
}

}  // namespace
}  // namespace ndd::debayer
NDD_KERNEL(debayer, CUDA, ndd::debayer::debayer_cuda)
