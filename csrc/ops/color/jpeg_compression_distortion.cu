// SPDX-License-Identifier: Apache-2.0
// The artifacts of JPEG on a GPU, with the arithmetic of jpeg_compression_distortion.h, so results equal those of the CPU.
#include "ops/color/jpeg_compression_distortion.h"

#include <algorithm>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/kernel.h"

namespace ndd::jpeg {
namespace {

constexpr int kThreads = 256;
// Two launches with planes in memory between them, because chroma is interpolated from neighboring squares.
//
// A thread has a row or a column of the six blocks (four of luma) that 16 x 16 pixels have. Four such squares fill six warps.
constexpr int kSquares = 4, kBlocks = 6 * kSquares, kTransformThreads = 8 * kBlocks;
constexpr int kMaxRounds = 8;  // of four squares: the reciprocals of the steps are computed once for all of a block

// Keeps the bytes of a row, squares and tasks within 31 bits. A JPEG has at most 65535 pixels along an axis.
constexpr int64_t kMaxExtent = 1 << 29, kMaxSquares = 1 << 28;

// A frame. The planes of all frames lie in one buffer; those of chroma have half the height and width.
struct Image {
  const uint8_t* src;
  uint8_t *dst, *luma, *chroma[2];  // planes whose extents are multiples of 16 and 8
  int32_t height, width, down, across;  // in pixels and in squares
  Steps steps;
};

// The last row or column of the chroma of as many pixels.
__device__ int last_chroma(int extent) { return static_cast<int>(chroma_extent(extent)) - 1; }

// In 16 bits, as on the CPU. Rows are longer than 8 for the sake of the banks of shared memory.
using Block = int16_t[8][10];

// The luma of 2 x 2 pixels and their chroma; y and x are those of the chroma. All twelve bytes are loaded once: read pixel by pixel for the luma, and again
// for the chroma, they took as many instructions as the transform.
__device__ __forceinline__ void read_quad(const uint8_t* src, int height, int width, int last, int y, int x, Block* blocks) {
  // Past the right border the last column of pixels is repeated; past the lower one the last row of pixels as luma, and `last` as the row of chroma.
  const int top = 2 * min(y, last);
  const uint8_t* const upper = src + int64_t{top} * (3 * width);
  const uint8_t* const lower = src + int64_t{min(top + 1, height - 1)} * (3 * width);
  const int left = 3 * min(2 * x, width - 1), right = 3 * min(2 * x + 1, width - 1);
  const uint8_t* const pixels[4] = {upper + left, upper + right, lower + left, lower + right};
  int32_t bright[4], blue = 0, red = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int32_t r = pixels[k][0], g = pixels[k][1], b = pixels[k][2];
    bright[k] = luma(r, g, b);
    blue += blue_chroma(r, g, b);
    red += red_chroma(r, g, b);
  }
  Block& block = blocks[y / 4 % 2 * 2 + x / 4 % 2];
  const int row = 2 * y % 8, column = 2 * x % 8;
  const bool beyond = y > last;
  block[row][column] = static_cast<int16_t>(beyond ? bright[2] : bright[0]);
  block[row][column + 1] = static_cast<int16_t>(beyond ? bright[3] : bright[1]);
  block[row + 1][column] = static_cast<int16_t>(bright[2]);
  block[row + 1][column + 1] = static_cast<int16_t>(bright[3]);
  blocks[4][y % 8][x % 8] = static_cast<int16_t>(chroma_mean(blue, x & 1));
  blocks[5][y % 8][x % 8] = static_cast<int16_t>(chroma_mean(red, x & 1));
}

__global__ void __launch_bounds__(kTransformThreads) distort_gpu(const Image* images, int64_t count) {
  // The blocks of a square one after the other: four of luma, row by row, then blue and red chroma.
  __shared__ Block blocks[kBlocks];
  __shared__ int rows[kSquares], columns[kSquares];  // of the squares
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 8, part = thread / 8 % 6;
  Block& block = blocks[thread / 8];
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Image& image = images[k];
    const uint8_t* const src = image.src;
    const int height = image.height, width = image.width, across = image.across, squares = image.down * across;
    const int last = last_chroma(height), pitch = part < 4 ? 16 * across : 8 * across;
    uint8_t* const plane =
        part < 4 ? image.luma + int64_t{part / 2 * 8 + lane} * pitch + part % 2 * 8 : image.chroma[part - 4] + int64_t{lane} * pitch;
    assume_global(src, plane);
    // Of the thread's column of coefficients, since it quantizes where it holds a column.
    int32_t steps[8];
    float inverse_steps[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      steps[j] = image.steps.step[part >= 4][8 * j + lane];
      inverse_steps[j] = inverse_step(steps[j]);
    }
    for (int first = static_cast<int>(blockIdx.x) * kSquares; first < squares; first += static_cast<int>(gridDim.x) * kSquares) {
      if (thread < kSquares) {
        // Places behind the last square repeat it, so all threads reach the barriers; their results are not stored.
        const int square = min(first + thread, squares - 1);
        rows[thread] = square / across;
        columns[thread] = square - rows[thread] * across;
      }
      __syncthreads();
      for (int i = thread; i < 64 * kSquares; i += kTransformThreads)
        read_quad(src, height, width, last, rows[i / 64] * 8 + i / 8 % 8, columns[i / 64] * 8 + i % 8, blocks + i / 64 * 6);
      __syncthreads();
      // A thread transforms a row, then a column, and back: shared memory transposes in between. Eight values stay in registers.
      int32_t v[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = block[lane][j];
      forward<0>(v);
#pragma unroll
      for (int j = 0; j < 8; ++j) block[lane][j] = static_cast<int16_t>(v[j]);
      __syncthreads();
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = block[j][lane];
      forward<1>(v);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = static_cast<int16_t>(quantize(v[j], steps[j], inverse_steps[j]));
      inverse<0>(v);
#pragma unroll
      for (int j = 0; j < 8; ++j) block[j][lane] = static_cast<int16_t>(v[j]);
      __syncthreads();
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = block[lane][j];
      inverse<1>(v);
      if (first + thread / 48 < squares) {  // 48 threads have a square: six blocks of eight rows
        const int side = part < 4 ? 16 : 8;
        uint8_t* const to = plane + (int64_t{rows[thread / 48]} * pitch + columns[thread / 48]) * side;
        uint32_t word[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < 8; ++j) word[j / 4] |= static_cast<uint32_t>(level(v[j] + 128)) << (j % 4 * 8);
        *reinterpret_cast<uint2*>(to) = {word[0], word[1]};
      }
      __syncthreads();  // the blocks are filled again
    }
  }
}

// Pixels of a thread: four side by side, in 16 rows. Each chroma sample is loaded once for the four rows of pixels that it contributes to.
constexpr int kColumns = 4, kRows = 16;

// Four neighbors of each plane of chroma, the second and third of which belong to the thread's pixels.
struct ChromaRow {
  int32_t plane[2][4];
};

__device__ __forceinline__ ChromaRow load_chroma(const uint8_t* const (&planes)[2], int64_t row, const int (&columns)[4]) {
  ChromaRow result;
#pragma unroll
  for (int p = 0; p < 2; ++p)
#pragma unroll
    for (int j = 0; j < 4; ++j) result.plane[p][j] = planes[p][row + columns[j]];
  return result;
}

// The colors of four pixels, byte by byte.
__device__ __forceinline__ void color_pixels(uint32_t bright, const ChromaRow& near, const ChromaRow& far, bool smooth, uint32_t (&words)[3]) {
  int32_t chroma[2][kColumns];
#pragma unroll
  for (int p = 0; p < 2; ++p) {
    // Upsample with a triangle filter, as libjpeg does: 3/4 of the nearer row and 1/4 of the farther one. upsample_chroma() applies
    // the same weights along the row.
    int32_t sums[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[j] = 3 * near.plane[p][j] + far.plane[p][j];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int own = 1 + j / 2, side = j % 2 == 0 ? own - 1 : own + 1;
      chroma[p][j] = smooth ? upsample_chroma(sums[own], sums[side], j % 2) : near.plane[p][own];
    }
  }
  words[0] = words[1] = words[2] = 0;
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    const auto y = static_cast<int32_t>(bright >> (8 * j) & 255);
    const int32_t cb = chroma[0][j], cr = chroma[1][j], color[3] = {to_red(y, cr), to_green(y, cb, cr), to_blue(y, cb)};
#pragma unroll
    for (int c = 0; c < 3; ++c) words[(3 * j + c) / 4] |= static_cast<uint32_t>(color[c]) << ((3 * j + c) % 4 * 8);
  }
}

__global__ void __launch_bounds__(kThreads) colors_gpu(const Image* images, int64_t count) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    // Copies, because the compiler must take it that the stores change `images`.
    const int height = images[k].height, width = images[k].width, pitch = 8 * images[k].across;
    const uint8_t* const luma = images[k].luma;
    const uint8_t* const planes[2] = {images[k].chroma[0], images[k].chroma[1]};
    uint8_t* const target = images[k].dst;
    assume_global(luma, planes[0], planes[1], target);
    const bool smooth = width >= kSmoothWidth, whole_words = width % 4 == 0 && reinterpret_cast<uintptr_t>(target) % 4 == 0;
    const int last_row = last_chroma(height), last_column = last_chroma(width);
    const int across = (width + kColumns - 1) / kColumns, tasks = across * ((height + kRows - 1) / kRows);
    for (int task = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x); task < tasks;
         task += static_cast<int>(gridDim.x) * kThreads) {
      const int band = task / across, x = (task - band * across) * kColumns, top = band * kRows, bottom = min(top + kRows, height);
      const int n = min(kColumns, width - x);
      int columns[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) columns[j] = min(max(x / 2 - 1 + j, 0), last_column);
      const auto load = [&](int row) { return load_chroma(planes, int64_t{min(max(row, 0), last_row)} * pitch, columns); };
      ChromaRow before = load(top / 2 - 1), own = load(top / 2);
      const uint8_t* bright = luma + int64_t{top} * (2 * pitch) + x;
      uint8_t* to = target + int64_t{top} * (3 * width) + 3 * x;
      const auto store = [&](const ChromaRow& far) {
        uint32_t words[3];
        color_pixels(*reinterpret_cast<const uint32_t*>(bright), own, far, smooth, words);
        if (whole_words) {
#pragma unroll
          for (int w = 0; w < 3; ++w) reinterpret_cast<uint32_t*>(to)[w] = words[w];
        } else {
#pragma unroll
          for (int b = 0; b < 3 * kColumns; ++b)
            if (b < 3 * n) to[b] = static_cast<uint8_t>(words[b / 4] >> (b % 4 * 8));
        }
        bright += 2 * pitch;
        to += 3 * width;
      };
#pragma unroll 1
      for (int y = top; y < bottom; y += 2) {
        const ChromaRow after = load(y / 2 + 1);
        store(before);
        if (y + 1 < bottom) store(after);
        before = own;
        own = after;
      }
    }
  }
}

void distortion_cuda(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& quality, const Tensor& output,
                     const MaybeTensor& output_shapes) {
  const Frames frames(input, input_shapes, quality, output, output_shapes);
  std::vector<Image> images;
  int64_t squares = 0, max_squares = 0;
  for (int64_t i = 0; i < frames.in.size(); ++i) {
    frames.check(i);
    const int64_t height = frames.height(i), width = frames.width(i), down = (height + 15) / 16, across = (width + 15) / 16;
    if (height > kMaxExtent || width > kMaxExtent || down * across > kMaxSquares)
      fail("jpeg_compression_distortion: sample ", i, " is too large for a GPU: ", height, " x ", width, " pixels");
    for (int64_t f = 0; f < frames.count(i) && height * width > 0; ++f)
      images.push_back({frames.source(i, f),
                        frames.target(i, f),
                        nullptr,
                        {},
                        static_cast<int32_t>(height),
                        static_cast<int32_t>(width),
                        static_cast<int32_t>(down),
                        static_cast<int32_t>(across),
                        Steps(frames.quality(i, f))});
    squares += frames.count(i) * down * across;
    max_squares = std::max(max_squares, down * across);
  }
  if (images.empty()) return;
  const CudaBuffer planes(squares * 384);
  uint8_t* next = static_cast<uint8_t*>(planes.data());
  for (Image& image : images) {
    const int64_t n = int64_t{image.down} * image.across;
    // A square of 16 x 16 pixels has 256 bytes of luma and 64 of each chroma.
    image.luma = next, image.chroma[0] = next + 256 * n, image.chroma[1] = next + 320 * n;
    next += 384 * n;
  }
  const CudaTable<Image> table(images);
  const auto count = static_cast<int64_t>(images.size());
  // Bound by instructions, of which a pixel takes 164, counted in the machine code: 43 to read it, 84 for the transforms and 37 for its color. A block has
  // several rounds where there are enough blocks for all multiprocessors.
  const int64_t blocks = (max_squares + kSquares - 1) / kSquares, most = blocks * count / (16 * multiprocessors());
  const int64_t rounds = std::clamp<int64_t>(most, 1, kMaxRounds);
  distort_gpu<<<batch_grid(blocks, rounds, count), kTransformThreads, 0, current_cuda_stream()>>>(table.data(), count);
  colors_gpu<<<batch_grid(max_squares * 256 / (kColumns * kRows), kThreads, count), kThreads, 0, current_cuda_stream()>>>(table.data(), count);
  check_launch("jpeg_compression_distortion");
}

}  // namespace
}  // namespace ndd::jpeg
NDD_KERNEL(jpeg_compression_distortion, CUDA, ndd::jpeg::distortion_cuda)
