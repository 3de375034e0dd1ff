// SPDX-License-Identifier: Apache-2.0
#include "ops/color/jpeg_compression_distortion.h"

#include <algorithm>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/kernel.h"

namespace ndd::jpeg {
namespace {

constexpr int kThreads = 256;
// A thread has a row or a column of the six blocks (four of luma) that 16 x 16 pixels have. Four such squares fill six warps.
constexpr int kSquares = 4, kBlocks = 6 * kSquares, kTransformThreads = 8 * kBlocks;

struct Image {
  const uint8_t* src;
  uint8_t *dst, *luma, *chroma[2];  // planes whose extents are multiples of 16 and 8
  int64_t height, width, down, across;  // in pixels and in squares
  Steps steps;
};

// In 16 bits, as on the CPU. Rows are longer than 8 for the sake of the banks of shared memory.
using Block = int16_t[8][10];

__device__ void read_luma(const Image& image, int64_t y, int64_t x, Block* blocks) {
  const uint8_t* p = image.src + 3 * (min(y, image.height - 1) * image.width + min(x, image.width - 1));
  blocks[y / 8 % 2 * 2 + x / 8 % 2][y % 8][x % 8] = static_cast<int16_t>(luma(p[0], p[1], p[2]));
}

// Past the right border the last column of pixels is repeated, past the lower one the last row of chroma.
__device__ void read_chroma(const Image& image, int64_t y, int64_t x, Block* blocks) {
  const int64_t top = 2 * min(y, chroma_extent(image.height) - 1);
  int32_t blue = 0, red = 0;
  for (int64_t k = 0; k < 4; ++k) {
    const uint8_t* p = image.src + 3 * (min(top + k / 2, image.height - 1) * image.width + min(2 * x + k % 2, image.width - 1));
    blue += blue_chroma(p[0], p[1], p[2]);
    red += red_chroma(p[0], p[1], p[2]);
  }
  blocks[4][y % 8][x % 8] = static_cast<int16_t>(chroma_mean(blue, x & 1));
  blocks[5][y % 8][x % 8] = static_cast<int16_t>(chroma_mean(red, x & 1));
}

__global__ void distort_gpu(const Image* images, int64_t count) {
  __shared__ Block blocks[kBlocks];
  __shared__ int64_t rows[kSquares], columns[kSquares];  // of the squares: a division takes 70 instructions, as many as the rest of a pixel
  const int thread = threadIdx.x, lane = thread % 8, part = thread / 8 % 6;
  Block& block = blocks[thread / 8];
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Image& image = images[k];
    const int64_t squares = image.down * image.across;
    const uint8_t* steps = image.steps.step[part >= 4];
    for (int64_t first = int64_t{blockIdx.x} * kSquares; first < squares; first += int64_t{gridDim.x} * kSquares) {
      if (thread < kSquares) {
        const int64_t square = min(first + thread, squares - 1);
        rows[thread] = square / image.across;
        columns[thread] = square % image.across;
      }
      __syncthreads();
      for (int i = thread; i < 256 * kSquares; i += kTransformThreads)
        read_luma(image, rows[i / 256] * 16 + i / 16 % 16, columns[i / 256] * 16 + i % 16, blocks + i / 256 * 6);
      for (int i = thread; i < 64 * kSquares; i += kTransformThreads)
        read_chroma(image, rows[i / 64] * 8 + i / 8 % 8, columns[i / 64] * 8 + i % 8, blocks + i / 64 * 6);
      __syncthreads();
      int32_t v[8];
      for (int j = 0; j < 8; ++j) v[j] = block[lane][j];
      forward<0>(v);
      for (int j = 0; j < 8; ++j) block[lane][j] = static_cast<int16_t>(v[j]);
      __syncthreads();
      for (int j = 0; j < 8; ++j) v[j] = block[j][lane];
      forward<1>(v);
      for (int j = 0; j < 8; ++j) v[j] = static_cast<int16_t>(quantize(v[j], steps[8 * j + lane], inverse_step(steps[8 * j + lane])));
      inverse<0>(v);
      for (int j = 0; j < 8; ++j) block[j][lane] = static_cast<int16_t>(v[j]);
      __syncthreads();
      for (int j = 0; j < 8; ++j) v[j] = block[lane][j];
      inverse<1>(v);
      if (first + thread / 48 < squares) {
        const int64_t y = rows[thread / 48], x = columns[thread / 48];
        uint8_t* to = part < 4 ? image.luma + (16 * y + part / 2 * 8 + lane) * 16 * image.across + 16 * x + part % 2 * 8
                               : image.chroma[part - 4] + (8 * y + lane) * 8 * image.across + 8 * x;
        uint32_t word[2] = {0, 0};
        for (int j = 0; j < 8; ++j) word[j / 4] |= static_cast<uint32_t>(level(v[j] + 128)) << (j % 4 * 8);
        *reinterpret_cast<uint2*>(to) = {word[0], word[1]};
      }
      __syncthreads();  // the blocks are filled again
    }
  }
}

constexpr int kRows = 16;  // pixels of a thread, one below the other: divisions are made for all of them together

__global__ void __launch_bounds__(kThreads) colors_gpu(const Image* images, int64_t count) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    // Copies, because the compiler must take it that the stores change `images`.
    const int64_t height = images[k].height, width = images[k].width, stride = 8 * images[k].across;
    const uint8_t *const luma = images[k].luma, *const blue = images[k].chroma[0], *const red = images[k].chroma[1];
    uint8_t* const target = images[k].dst;
    const bool smooth = width >= kSmoothWidth;
    const int64_t groups = (width + 31) / 32, tasks = groups * ((height + kRows - 1) / kRows);
    for (int64_t task = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32; task < tasks; task += int64_t{gridDim.x} * (kThreads / 32)) {
      const int64_t x = task % groups * 32 + threadIdx.x % 32, top = task / groups * kRows, bottom = min(top + kRows, height);
      if (x >= width) continue;
      const int64_t column = x / 2, side = min(max(column + (x % 2 ? 1 : -1), int64_t{0}), chroma_extent(width) - 1);
      uint8_t* dst = target + 3 * (top * width + x);
      const uint8_t* bright = luma + top * 2 * stride + x;
      for (int64_t y = top; y < bottom; ++y, dst += 3 * width, bright += 2 * stride) {
        const int64_t near = y / 2 * stride, far = min(max(y / 2 + (y % 2 ? 1 : -1), int64_t{0}), chroma_extent(height) - 1) * stride;
        const auto chroma = [&](const uint8_t* plane) {
          const int32_t own = plane[near + column];
          return smooth ? upsample_chroma(3 * own + plane[far + column], 3 * plane[near + side] + plane[far + side], x % 2) : own;
        };
        const int32_t cb = chroma(blue), cr = chroma(red);
        const int32_t level = *bright;
        dst[0] = static_cast<uint8_t>(to_red(level, cr));
        dst[1] = static_cast<uint8_t>(to_green(level, cb, cr));
        dst[2] = static_cast<uint8_t>(to_blue(level, cb));
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
    for (int64_t f = 0; f < frames.count(i) && height * width > 0; ++f)
      images.push_back({frames.source(i, f), frames.target(i, f), nullptr, {}, height, width, down, across, Steps(frames.quality(i, f))});
    squares += frames.count(i) * down * across;
    max_squares = std::max(max_squares, down * across);
  }
  if (images.empty()) return;
  const CudaBuffer planes(squares * 384);
  uint8_t* next = static_cast<uint8_t*>(planes.data());
  for (Image& image : images) {
    const int64_t n = image.down * image.across;
    image.luma = next, image.chroma[0] = next + 256 * n, image.chroma[1] = next + 320 * n;
    next += 384 * n;
  }
  const CudaTable<Image> table(images);
  const auto count = static_cast<int64_t>(images.size());
  // Some 300 instructions a pixel, counted in the machine code, for 3 + 1.5 bytes there and 1.5 + 3 back: bound by those, at a sixth of the bandwidth.
  distort_gpu<<<batch_grid(max_squares, kSquares, count), kTransformThreads, 0, current_cuda_stream()>>>(table.data(), count);
  colors_gpu<<<batch_grid(max_squares * 256 / (kThreads * kRows) + 1, 1, count), kThreads, 0, current_cuda_stream()>>>(table.data(), count);
  check_launch("jpeg_compression_distortion");
}

}  // namespace
}  // namespace ndd::jpeg
NDD_KERNEL(jpeg_compression_distortion, CUDA, ndd::jpeg::distortion_cuda)
