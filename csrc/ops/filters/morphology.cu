// SPDX-License-Identifier: Apache-2.0
// dilate and erode on a GPU: maxima along the width, then along the height. Erosion flips the keys on the way in and out, which costs nothing beside
// the loads and halves the code.
#include "ops/filters/morphology.h"

#include <vector>

#include "ndd/elementwise/order_keys.h"
#include "ndd/kernel.h"
#include "ndd/launch_runs.cuh"
#include "ndd/stencil/byte_windows.cuh"
#include "ndd/stencil/key_tiles.cuh"
#include "ndd/stencil/separable.cuh"
#include "ndd/stencil/stencil.cuh"

namespace ndd::morphology_kernels {
namespace {

// For the fallback and for squares of bytes; tiles have a table of their own (stencil::TileImage).
struct Image {
  const void* in;
  void* out;
  Grid grid;
  Reach height, width;
};

// The maximum of keys along the width and then along the height; a minimum is the maximum of flipped keys.
template <class K>
struct Extreme {
  using Staged = K;
  using Between = K;
  using Value = typename stencil::KeyTiles<K>::Wide;
  static constexpr bool kWeighted = false;
  static constexpr int kBlocks = sizeof(K) == 8 ? 2 : 4;  // of a multiprocessor: up to 80 registers
  stencil::KeyTiles<K> keys;

  __device__ int64_t in_bytes() const { return sizeof(K); }

  __device__ void stage(K* tile, int pitch, const stencil::StagedRows& from, const stencil::Plane& plane) const {
    keys.stage(tile, pitch, from, plane, K{});  // no constant is larger than anything
  }

  // 16 outputs per thread slide along the window in registers: one load and 16 operations for each of its elements.
  __device__ void window(Value (&most)[stencil::kPiece], const K* first, int stride, const stencil::Span& span, const float*) const {
    using stencil::kPiece;
    Value values[kPiece];
#pragma unroll
    // The first elements of 16 windows that begin at neighboring rows or columns.
    for (int o = 0; o < kPiece; ++o, first += stride) most[o] = values[o] = *first;
    for (int k = 1; k < span.size; k += kPiece) {
#pragma unroll
      for (int u = 0; u < kPiece; ++u) {
        if (k + u >= span.size) break;
        values[u] = *first;
        first += stride;
#pragma unroll
        // values is a ring: output o has element o + 1 + u of what has been loaded.
        for (int o = 0; o < kPiece; ++o) most[o] = max(most[o], values[(o + 1 + u) % kPiece]);
      }
    }
  }

  __device__ void store(Value (&most)[stencil::kPiece], void* to, const float*, int64_t at, int64_t row, int count) const {
    K* element = static_cast<K*>(to) + at;
#pragma unroll
    for (int o = 0; o < stencil::kPiece; ++o, element += row)
      if (o < count) *element = keys.bits(most[o]);
  }
};

// The maximum of bytes, xored with `flip`, in a square, first along each of its rows. Predicted for 3 x 3: 16 instructions for each output with its staging and
// storing, 0.6 of the copy bandwidth.
template <int size>
struct ByteExtreme {
  using Lanes = stencil::bytes::Lanes;
  static constexpr int kRows = size, kColumns = size, kWeights = 0, kOutputs = 16, kScale = 1;
  static constexpr int kResident = 4;  // up to 64 registers, and 35 KB of shared memory each
  uint32_t flip;  // as in KeyTiles, for four bytes

  static __device__ __forceinline__ Lanes extreme(const Lanes (&lanes)[size]) {
    Lanes most = lanes[0];
#pragma unroll
    for (int k = 1; k + 1 < size; k += 2) most = stencil::bytes::largest(most, lanes[k], lanes[k + 1]);
    return most;
  }

  template <class Words, class Put>
  __device__ __forceinline__ void operator()(const Words& words, const float*, int, int, Put put) const {
    // The extreme of a square is that of its rows' extremes. Each row serves `size` outputs, for which its extremes stay in registers.
    Lanes odd[size], even[size];  // of the rows of the window
    const auto add = [&](int r) {
      uint32_t taps[size];
      words(r, taps);
#pragma unroll
      for (int k = 0; k < size; ++k) taps[k] ^= flip;
#pragma unroll
      for (int k = 0; k + 1 < size; ++k) {
        odd[k] = odd[k + 1];
        even[k] = even[k + 1];
      }
      Lanes lanes[size];
      stencil::bytes::lanes_of(taps, true, lanes);
      odd[size - 1] = extreme(lanes);
      stencil::bytes::lanes_of(taps, false, lanes);
      even[size - 1] = extreme(lanes);
    };
#pragma unroll
    for (int r = 0; r + 1 < size; ++r) add(r);
    constexpr int kUnrolled = size == 3 ? 4 : 2;  // of larger masks two: their code is long
#pragma unroll kUnrolled
    for (int o = 0; o < kOutputs; ++o) {
      add(o + size - 1);
      put(o, {stencil::bytes::word_of(extreme(odd), extreme(even)) ^ flip});
    }
  }
};

// The fallback for masks that do not fit in a shared-memory tile: a thread per element, its window read through the first-level cache.
template <class K>
__global__ void __launch_bounds__(256)
    morphology_kernel(const __grid_constant__ TableRows<Image> images, int64_t count, bool maximum, Border border, DType dtype) {
  // The key that loses against any other: what a window holds besides the image.
  const K worst = maximum ? K{} : static_cast<K>(~K{});
  for (int64_t n = blockIdx.y; n < count; n += gridDim.y) {
    const Image image = images[n];
    const Grid& grid = image.grid;
    for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < grid.volume(); e += int64_t{gridDim.x} * blockDim.x) {
      const int64_t channel = e % grid.inner, x = e / grid.inner % grid.width - image.width.before, y = e / grid.row() - image.height.before;
      // The keys are not flipped here: whether the larger or the smaller one wins is a comparison of two flags.
      K best = worst;
      for (int32_t dy = 0; dy < image.height.size; ++dy) {
        const int64_t row = border_index(border, y + dy, grid.height);
        if (row < 0) continue;
        for (int32_t dx = 0; dx < image.width.size; ++dx) {
          const int64_t column = border_index(border, x + dx, grid.width);
          if (column < 0) continue;
          const K key = load_key<K>(image.in, dtype, row * grid.row() + column * grid.inner + channel, worst);
          if ((key > best) == maximum) best = key;
        }
      }
      store_key<K>(best, image.out, dtype, e);
    }
  }
}

void launch(const char* op, const std::vector<Image>& images, bool maximum, Border border, DType dtype) {
  const auto volume = [](const Image& image) { return image.grid.volume(); };
  launch_runs(op, images, volume, 256, [&](dim3 grid, const auto& rows, int64_t count) {
    for_key(dtype, [&](auto tag) {
      morphology_kernel<typename decltype(tag)::type><<<grid, 256, 0, current_cuda_stream()>>>(rows, count, maximum, border, dtype);
    });
  });
}

// Whether ByteExtreme has the mask.
bool is_square(const Image& image, DType dtype) {
  const int32_t size = image.height.size;
  return item_bytes(dtype) == 1 && size == image.width.size && (size == 3 || size == 5 || size == 7) &&
         stencil::fits_bytes(image.grid, image.grid, size);
}

void launch_squares(const char* op, const std::vector<Image>& images, bool maximum, Border border, DType dtype) {
  const stencil::KeyTiles<uint8_t> keys(dtype, maximum ? 0 : 0xFF, 0);
  const auto flip = static_cast<uint8_t>(keys.flip ^ keys.sign);  // also the element that loses against any other
  const auto launch = [&](auto filter) {
    using F = decltype(filter);
    std::vector<stencil::ByteImages> squares;
    for (const Image& image : images)
      if (image.height.size == F::kRows)
        squares.push_back(stencil::byte_images<F>(image.grid, image.grid, image.height, image.width, image.in, image.out));
    stencil::bytes::launch(op, squares, border, flip, filter);
  };
  // A size without images launches nothing.
  launch(ByteExtreme<3>{flip * 0x01010101u});
  launch(ByteExtreme<5>{flip * 0x01010101u});
  launch(ByteExtreme<7>{flip * 0x01010101u});
}

constexpr int32_t kMaxSinglePass = 25;  // elements of a mask; the extreme is separable, so larger ones go along one axis after the other

template <bool maximum>
void morphology_cuda(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& anchor, const Tensor& mask_size, int64_t iterations,
                     int64_t border, int64_t first_spatial, const Tensor& output, const MaybeTensor& output_shapes) {
  constexpr const char* op = morphology::kName<maximum>;
  const Samples in(input, input_shapes), out(output, output_shapes);
  check_same(op, out, in);
  const morphology::Arguments arguments{op,         AxisArgs<int64_t>(op, anchor), AxisArgs<int64_t>(op, mask_size),
                                        iterations, static_cast<Border>(border),   {first_spatial, 2}};
  std::vector<Image> images, squares;  // `images` fit in no tile
  std::vector<stencil::TileImage> tiled;
  int64_t largest = 0;
  for (int64_t i = 0; i < in.size(); ++i) {
    const Grid grid = arguments.axes.grid(in, i);
    const int64_t bytes = grid.volume() * in.item_bytes();
    for (int64_t image = 0; image < arguments.axes.images(in, i); ++image) {
      const int64_t frame = arguments.axes.frame(in, i, image);
      const Reach height = arguments.reach(i, frame, 1, grid.height), width = arguments.reach(i, frame, 0, grid.width);
      const void* from = static_cast<const char*>(in.data(i)) + image * bytes;
      void* to = static_cast<char*>(out.data(i)) + image * bytes;
      if (is_square({from, to, grid, height, width}, in.dtype())) {
        squares.push_back({from, to, grid, height, width});
        continue;
      }
      const stencil::TileImage tile{
          from, to, nullptr, nullptr, grid.height, grid.width, grid.inner, {height.size, height.before}, {width.size, width.before}};
      // From the fastest kernel to the most general one: squares of bytes, tiles, single elements.
      bool fits = false;
      for_key(in.dtype(), [&](auto tag) { fits = stencil::fits_tile<Extreme<typename decltype(tag)::type>>(tile); });
      if (fits) {
        tiled.push_back(tile);
        continue;
      }
      images.push_back({from, to, grid, height, width});
      largest = std::max(largest, int64_t{height.size} * width.size);
    }
  }
  if (!squares.empty()) launch_squares(op, squares, maximum, arguments.border, in.dtype());
  if (!tiled.empty()) {
    for_key(in.dtype(), [&](auto tag) {
      using K = typename decltype(tag)::type;
      const K worst = maximum ? K{} : static_cast<K>(~K{});
      stencil::launch_tiles(op, tiled, arguments.border, Extreme<K>{stencil::KeyTiles<K>(in.dtype(), worst, worst)});
    });
  }
  if (largest <= kMaxSinglePass) return launch(op, images, maximum, arguments.border, in.dtype());
  // Large masks: along the width to a buffer with the layout of the output, and from there along the height.
  const CudaBuffer between(in.values().numel() * in.item_bytes());
  std::vector<Image> along_width = images;
  for (size_t k = 0; k < images.size(); ++k) {
    // At the same offset as in the output.
    along_width[k].out = static_cast<char*>(between.data()) + (static_cast<char*>(images[k].out) - static_cast<char*>(output.data_ptr()));
    // A window of one element: this pass leaves the height alone, the next one the width.
    along_width[k].height = Reach{};
    images[k].in = along_width[k].out;
    images[k].width = Reach{};
  }
  launch(op, along_width, maximum, arguments.border, in.dtype());
  launch(op, images, maximum, arguments.border, in.dtype());
}

}  // namespace
}  // namespace ndd::morphology_kernels
NDD_KERNEL(experimental_dilate, CUDA, ndd::morphology_kernels::morphology_cuda<true>)
NDD_KERNEL(experimental_erode, CUDA, ndd::morphology_kernels::morphology_cuda<false>)
