// SPDX-License-Identifier: Apache-2.0
// Convolution of images of bytes with symmetric windows of up to 33 x 33 elements, to bytes: the sums of separable.cu, in the same order and with the
// same results, for images of up to four channels. As there, a block walks down a strip of the image, 32 rows at a time.
//
// What is new is how elements travel. Pixels come 16 at a time, by 16-byte loads, and are separated into their colors, so neighbors along the
// width are neighbors in a word: a thread has the 48 elements around its 16 results in three 16-byte loads from shared memory. The rows between the
// passes keep the colors apart, in aligned pieces of 16 bytes as well. All distances are constants, so accesses need no arithmetic, and results
// leave through shared memory, 16 bytes at a time. Bytes become floats, and sums bytes, by their places in a float of 2^23 instead of by conversions,
// which are issued at an eighth of the rate.
//
// Counted in the machine code for sm_90 (compiled and emulated, not run on a GPU), with sigma 1.5 (11 x 11) and three channels an element takes 40
// instructions: 2 to stage it, 18 along the width, 18 along the height, 2 to store it and to keep rows. 22 of these are the sums themselves. 128 VGA
// images take 0.26 ms (predicted), 0.3 of the copy bandwidth; separable.cu takes about 57 instructions, and took 0.44 ms on an H100. With all 33 x 33
// weights the passes take 42 each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ndd/color/pixel_words.cuh"
#include "ndd/stencil/byte_windows.cuh"

namespace ndd::stencil {

namespace byte_blur {

using bytes::kThreads;
using bytes::kWarps;
constexpr int kRows = 32;  // of a step: one for each lane where warps go along rows
constexpr int kUnit = 16;  // pixels that are staged together, and results of a thread along its pass
constexpr int kMaxRadius = kUnit;
constexpr int kColumns = 256;  // elements of a row of results, at most
constexpr int kResident = 3;  // blocks of a multiprocessor, which leaves 80 registers for a thread
// Floats from one row between the passes to the next: an odd number of pieces of 16 bytes, so eight lanes that store pieces of their rows use
// different banks.
constexpr int kBetweenPitch = kColumns + 4;

template <int kInner>
struct Layout {
  static constexpr int kPieces = kColumns / kInner / kUnit;  // of 16 pixels, of a row of results
  static constexpr int kPixels = kPieces * kUnit, kUnits = kPieces + 2;  // a unit of neighbors on each side
  static constexpr int kColorPitch = kUnits * kUnit, kPitch = (kUnits * kInner | 1) * kUnit;  // in bytes: of a color of a row, and of a row
  static constexpr int kStagedBytes = kRows * kPitch;
  static_assert(kPitch >= kColumns);  // results take the place of staged rows
};

}  // namespace byte_blur

// Images of the same size that follow each other.
struct BlurredImages {
  const uint8_t* in;
  uint8_t* out;
  const float* weights;  // of the window along the height, then along the width, the center's first
  int32_t height, width, down, along;  // in pixels; the radii of the windows
  int32_t high;  // rows of a tile
  int32_t images = 1;
  Divisor across, tiles;  // tiles of a row of tiles, and of an image
};

#ifdef __CUDACC__
namespace byte_blur {

// The sums of 16 neighboring outputs, as weighted_sums() of separable.cu adds them, for radii of up to kMaxRadius: then the positions of all elements
// are constants.
template <class Load>  // Load: offset from the first output, in elements -> float
__device__ __forceinline__ void add_windows(float (&sum)[kUnit], const float* half, int radius, Load load) {
  float left[kUnit], right[kUnit];
#pragma unroll
  for (int o = 0; o < kUnit; ++o) {
    left[o] = right[o] = load(o);
    sum[o] = half[0] * left[o];
  }
#pragma unroll
  for (int u = 0; u < kMaxRadius; ++u) {
    if (u >= radius) break;
    left[kUnit - 1 - u] = load(-1 - u);
    right[u] = load(kUnit + u);
    const float weight = half[1 + u];
#pragma unroll
    for (int o = 0; o < kUnit; ++o) sum[o] += weight * (left[(o + kUnit - 1 - u) % kUnit] + right[(o + 1 + u) % kUnit]);
  }
}

// Stages `count` rows of a tile, a unit of 16 pixels for each thread, colors apart. What lies beyond the sides is replaced by stage_sides().
template <int kInner>
__device__ __forceinline__ void stage(uint8_t* tile, const int32_t* rows, int count, const BlurredImages& image, const uint8_t* in, int x) {
  using L = Layout<kInner>;
  const int64_t row_bytes = int64_t{image.width} * kInner;
  const uint8_t* const end = in + image.height * row_bytes;
  const bool aligned = (reinterpret_cast<uintptr_t>(in) | static_cast<uintptr_t>(row_bytes)) % 16 == 0;
#pragma unroll 1
  for (int task = static_cast<int>(threadIdx.x); task < count * L::kUnits; task += kThreads) {
    // Unit 0 lies in front of the tile's first pixel: the window reaches to both sides.
    const int r = task / L::kUnits, unit = task - r * L::kUnits, pixel = max(x + (unit - 1) * kUnit, 0);
    uint32_t words[4 * kInner] = {};
    if (pixel < image.width) load_pixels<kInner>(in + rows[r] * row_bytes + pixel * kInner, aligned, in, end, words);
    store_colors<kInner>(words, tile + r * L::kPitch + unit * kUnit, L::kColorPitch);
  }
}

// Mirrors pixels at the sides of the image: `left` of them before the first pixel of the tile, and `right` from pixel `inside` on.
template <int kInner>
__device__ __forceinline__ void stage_sides(uint8_t* tile, const int32_t* rows, int count, const BlurredImages& image, const uint8_t* in, int x,
                                            int left, int inside, int right) {
  using L = Layout<kInner>;
  const int sides = left + right;
#pragma unroll 1
  for (int n = static_cast<int>(threadIdx.x); n < count * sides; n += kThreads) {
    const int r = n / sides, side = n - r * sides, pixel = side < left ? side - left : inside + side - left;
    const uint8_t* const from =
        in + (int64_t{rows[r]} * image.width + border_index_of<int32_t>(Border::reflect_101, x + pixel, image.width)) * kInner;
    uint8_t* const to = tile + r * L::kPitch + kUnit + pixel;
#pragma unroll
    for (int c = 0; c < kInner; ++c) to[c * L::kColorPitch] = __ldg(from + c);
  }
}

// Along the width: a lane has a row, a warp 16 pixels of a color.
template <int kInner>
__device__ __forceinline__ void blur_rows(const uint8_t* tile, float* between, int count, int pixels, const float* half, int radius) {
  using L = Layout<kInner>;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (lane >= count) return;
#pragma unroll 1
  for (int task = warp; task < kInner * L::kPieces; task += kWarps) {
    const int c = task / L::kPieces, piece = task - c * L::kPieces;
    if (piece * kUnit >= pixels) continue;
    const auto* const from = reinterpret_cast<const uint4*>(tile + lane * L::kPitch + c * L::kColorPitch) + piece;
    const uint4 before = from[0], own = from[1], behind = from[2];
    const uint32_t words[12] = {before.x, before.y, before.z, before.w, own.x, own.y, own.z, own.w, behind.x, behind.y, behind.z, behind.w};
    float sum[kUnit];
    // The byte as the lowest one of 2^23, which is subtracted.
    add_windows(sum, half, radius,
                [&](int k) { return __uint_as_float(__byte_perm(words[(k + kUnit) / 4], 0x4B000000u, 0x7440 + (k + kUnit) % 4)) - 8388608.0f; });
    auto* const to = reinterpret_cast<float4*>(between + lane * kBetweenPitch + c * L::kPixels) + piece * (kUnit / 4);
#pragma unroll
    for (int q = 0; q < kUnit / 4; ++q) to[q] = make_float4(sum[4 * q], sum[4 * q + 1], sum[4 * q + 2], sum[4 * q + 3]);
  }
}

// Along the height: a lane has a column, a warp 16 rows of 32 columns. The colors of a pixel are together again in the results.
template <int kInner>
__device__ __forceinline__ void blur_columns(const float* between, uint8_t* results, int rows, int pixels, const float* half, int radius) {
  using L = Layout<kInner>;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int column = warp * 32 + lane, c = column / L::kPixels, pixel = column - c * L::kPixels;
  if (c >= kInner || pixel >= pixels) return;
#pragma unroll 1
  for (int first = 0; first < rows; first += kUnit) {
    const float* const center = between + (first + radius) * kBetweenPitch + column;
    uint8_t* const to = results + first * kColumns + pixel * kInner + c;
    float sum[kUnit];
    add_windows(sum, half, radius, [&](int k) { return center[k * kBetweenPitch]; });
    // saturate<uint8_t>() as the lowest byte of a float of 2^23, where the sum is rounded down. Weights are positive and add up to 1, so it
    // needs no limits.
#pragma unroll
    for (int o = 0; o < kUnit; ++o) to[o * kColumns] = static_cast<uint8_t>(__float_as_uint(__fadd_rd(sum[o] + 0.49999997f, 8388608.0f)));
  }
}

template <int kInner>
__global__ void __launch_bounds__(kThreads, kResident) blur_gpu(const __grid_constant__ TableRows<BlurredImages> table, BatchTiles batch) {
  using L = Layout<kInner>;
  extern __shared__ uint4 memory[];
  __shared__ int32_t rows[kRows];
  __shared__ float weights[2 * (kMaxRadius + 1)];
  auto* const tile = reinterpret_cast<uint8_t*>(memory);
  auto* const between = reinterpret_cast<float*>(tile + L::kStagedBytes);
  const int thread = static_cast<int>(threadIdx.x);
  for_each_tile(batch, [&](uint32_t k, uint32_t first) {
    const BlurredImages& image = table[k];
    const int halo = 2 * image.down;
    for (uint32_t n = first; n < image.tiles.value * image.images; n += batch.across.value) {
      const auto which = static_cast<int>(image.tiles.quotient(n)), t = static_cast<int>(n - which * image.tiles.value);
      const int down = static_cast<int>(image.across.quotient(t)), x = (t - down * static_cast<int>(image.across.value)) * L::kPixels;
      const int y_end = min((down + 1) * image.high, image.height), inside = image.width - x, pixels = min(L::kPixels, inside);
      const int64_t row_bytes = int64_t{image.width} * kInner, image_bytes = image.height * row_bytes;
      const uint8_t* const in = image.in + which * image_bytes;
      uint8_t* const out = image.out + which * image_bytes + x * kInner;
      assume_global(in, out);
      const int whole = (pixels + kUnit - 1) / kUnit * kUnit;  // pixels of a row between the passes
      const int left = x == 0 ? image.along : 0, right = max(pixels + image.along - inside, 0);
      // Whether rows of results are whole pieces of 16 bytes.
      const bool aligned = (reinterpret_cast<uintptr_t>(out) | static_cast<uintptr_t>(row_bytes) | static_cast<uintptr_t>(pixels * kInner)) % 16 == 0;
      __syncthreads();  // the previous tile is finished
      if (thread < image.down + image.along + 2) weights[thread] = __ldg(image.weights + thread);
      int y = down * image.high, next = y - image.down, ready = 0;  // ready: rows between the passes
#pragma unroll 1
      for (;;) {
        // The rows above the first result are staged on their own, so every later step has 32 rows.
        const int fresh = ready < halo ? halo - ready : kRows;
        if (thread < fresh) rows[thread] = border_index_of<int32_t>(Border::reflect_101, next + thread, image.height);
        __syncthreads();  // also: the results of the previous step are stored
        stage<kInner>(tile, rows, fresh, image, in, x);
        __syncthreads();
        if (left + right > 0) {
          stage_sides<kInner>(tile, rows, fresh, image, in, x, left, inside, right);
          __syncthreads();
        }
        blur_rows<kInner>(tile, between + ready * kBetweenPitch, fresh, pixels, weights + image.down + 1, image.along);
        __syncthreads();
        ready += fresh;
        next += fresh;
        if (ready < halo + kRows) continue;
        const int results = min(kRows, y_end - y);
        // Also of pixels beyond the side, because results leave in whole words.
        blur_columns<kInner>(between, tile, results, whole, weights, image.down);
        __syncthreads();
        uint8_t* const to = out + y * row_bytes;
        if (aligned) {
          const int row = thread / (kColumns / 16), at = thread % (kColumns / 16) * 16;
          if (at < pixels * kInner)
            for (int r = row; r < results; r += kThreads / (kColumns / 16))
              *reinterpret_cast<uint4*>(to + r * row_bytes + at) = *reinterpret_cast<const uint4*>(tile + r * kColumns + at);
        } else {
          bytes::store_rows<kColumns>(tile, to, static_cast<int32_t>(row_bytes), results, pixels * kInner);
        }
        y += kRows;
        if (y >= y_end) break;
        // The next step begins with the last rows of this step. There are at most 32, so source and destination do not overlap.
        static_assert(2 * kMaxRadius <= kRows);
        constexpr int kRowPieces = kInner * L::kPixels / 4;
        for (int i = thread; i < halo * kRowPieces; i += kThreads) {
          const int r = i / kRowPieces, piece = i % kRowPieces;
          // Not beyond the side of the image, where nothing was written.
          if (piece % (L::kPixels / 4) >= whole / 4) continue;
          auto* const row = reinterpret_cast<float4*>(between + r * kBetweenPitch) + piece;
          *row = row[kRows * (kBetweenPitch / 4)];
        }
        ready = halo;
      }
    }
  });
}

// Whether the kernel takes a filter of `inner` channels with these windows.
inline bool fits(const Grid& grid, const SymmetricWindow& down, const SymmetricWindow& along) {
  constexpr int64_t kMost = int64_t{1} << 29;
  const auto is_mean = [](const SymmetricWindow& window) {
    float sum = window.half[0];
    for (size_t k = 1; k < window.half.size(); ++k) sum += 2.0f * window.half[k];
    return window.radius() <= kMaxRadius && sum < 1.0001f && std::all_of(window.half.begin(), window.half.end(), [](float w) { return w >= 0.0f; });
  };
  return grid.depth == 1 && grid.inner >= 1 && grid.inner <= 4 && grid.row() < kMost && grid.height < kMost && is_mean(down) && is_mean(along);
}

// Of images with kInner channels; `image.high`, `across` and `tiles` are set here.
template <int kInner>
void launch(const char* op, std::vector<BlurredImages> images) {
  using L = Layout<kInner>;
  images.erase(std::remove_if(images.begin(), images.end(), [](const BlurredImages& image) { return image.height == 0 || image.width == 0; }),
               images.end());
  const auto across_of = [](const BlurredImages& image) { return (int64_t{image.width} + L::kPixels - 1) / L::kPixels; };
  int64_t total = 0;
  for (const BlurredImages& image : images) total += across_of(image) * ((image.height + kRows - 1) / kRows);
  if (total == 0) return;
  // Each tile filters the rows above its own again, so tiles are as high as possible while still keeping all multiprocessors busy.
  const int64_t resident = kResident * multiprocessors(), steps = std::clamp<int64_t>((total + resident - 1) / resident, 1, 16);
  int64_t radius = 0, most = 0;
  for (BlurredImages& image : images) {
    const int64_t all = (image.height + kRows - 1) / kRows, parts = (all + steps - 1) / steps;
    image.high = static_cast<int32_t>((all + parts - 1) / parts * kRows);
    image.across = Divisor(across_of(image));
    image.tiles = Divisor(across_of(image) * ((image.height + image.high - 1) / image.high));
    radius = std::max<int64_t>(radius, image.down);
  }
  const auto joined = join_runs(images, [](BlurredImages& last, const BlurredImages& next) {
    const int64_t image_bytes = int64_t{last.height} * last.width * kInner;
    const bool equal =
        last.height == next.height && last.width == next.width && last.down == next.down && last.along == next.along && last.weights == next.weights;
    if (!equal || last.in + last.images * image_bytes != next.in || last.out + last.images * image_bytes != next.out) return false;
    if ((int64_t{last.images} + next.images) * last.tiles.value >= Divisor::kLimit) return false;
    last.images += next.images;
    return true;
  });
  for (const BlurredImages& image : joined) most = std::max(most, int64_t{image.tiles.value} * image.images);
  const KernelTable<BlurredImages> table(joined);
  const BatchTiles batch = batch_tiles(most, 1, static_cast<int64_t>(joined.size()));
  constexpr int64_t kRowBytes = kBetweenPitch * static_cast<int64_t>(sizeof(float));
  constexpr int64_t kMaxBytes = L::kStagedBytes + (kRows + 2 * kMaxRadius) * kRowBytes;
  // Above 48 KB shared memory must be requested; always the maximum, since threads may race.
  check_cuda(cudaFuncSetAttribute(blur_gpu<kInner>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMaxBytes)), op);
  blur_gpu<kInner><<<resident_blocks(batch, kResident), kThreads, static_cast<size_t>(L::kStagedBytes + (kRows + 2 * radius) * kRowBytes),
                     current_cuda_stream()>>>(table.rows(), batch);
  check_launch(op);
}

}  // namespace byte_blur
#endif

}  // namespace ndd::stencil
