// SPDX-License-Identifier: Apache-2.0
// Small windows of bytes on CUDA: out = f(the window of kRows x kColumns elements around each one), for uint8 images whose neighbors of a channel are
// `inner` bytes apart. Four elements, one word, at a time.
//
// Rows come in aligned pieces of 16 bytes, whatever their alignment is, and keep their misalignment in the tile; words of the window are assembled from
// two words of the tile by a funnel shift. Results go through shared memory too, so rows leave in aligned pieces of 16 bytes, as well as they came. With
// a byte an access, such filters reached 0.22 to 0.28 of the copy bandwidth of an H100.
//
// The functor has constants kRows, kColumns, kResident (blocks of a multiprocessor), kScale (bytes of the result for each of the image), kOutputs (rows of a
// thread: with a window of 3 rows it reads 18 of them for 16 outputs) and kWeights, `float weight(image, k)` if there are any, and
//   template <class Words, class Put> void operator()(const Words& words, const float* weights, int y, int parity, Put put) const
// which calls words(r, taps) to get the words of row r of the tile, kColumns of them, each of which is a pixel further, and put(o, words) with kScale words
// for all outputs o < kOutputs, whose windows begin at row o. y is the image's row of the first output, `parity` a number of the image.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/elementwise/batch_tiles.cuh"
#include "ndd/elementwise/divisor.h"
#include "ndd/stencil/stencil.h"

namespace ndd::stencil {

namespace bytes {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kPieceBytes = 16;  // of an access
constexpr int kRowPieces = 32;  // a lane has one piece of a row
// A row of a tile and its halo: what is left of a row of 32 pieces if it begins at the last byte of one and a word is read beyond its end.
constexpr int kRowBytes = kRowPieces * kPieceBytes - (kPieceBytes - 1) - 4;
constexpr int kMaxHalo = kRowBytes / 4;  // a tile is at least three times as wide
constexpr int kPitch = kRowPieces * kPieceBytes;
constexpr int kOutPitch = kRowBytes / kPieceBytes * kPieceBytes;
static_assert(kOutPitch == 480);  // a quarter of a row of VGA images with three channels

}  // namespace bytes

// Images of the same size that follow each other. Extents along rows are in bytes.
struct ByteImages {
  const uint8_t* in;
  uint8_t* out;
  const void* weights;  // of filters that have weights
  int32_t in_height, in_row, out_height, out_row, inner;
  int32_t above, before;  // of the window's first row and byte
  int32_t parity;
  int32_t columns;  // of a tile
  int32_t images = 1;
  Divisor across, tiles;  // tiles of a row of tiles, and of an image
};

// Whether windows of `along` columns fit in a tile, and rows in 32 bits.
inline bool fits_bytes(const Grid& in, const Grid& out, int64_t along) {
  constexpr int64_t kMost = int64_t{1} << 29;
  return in.depth == 1 && (along - 1) * in.inner <= bytes::kMaxHalo && std::max({in.row(), in.height, out.row(), out.height}) < kMost &&
         out.height * out.row() < kMost;
}

template <class F>
ByteImages byte_images(const Grid& in, const Grid& out, const Reach& down, const Reach& along, const void* from, void* to, int32_t parity = 0,
                       const void* weights = nullptr) {
  ByteImages image{static_cast<const uint8_t*>(from),
                   static_cast<uint8_t*>(to),
                   weights,
                   static_cast<int32_t>(in.height),
                   static_cast<int32_t>(in.row()),
                   static_cast<int32_t>(out.height),
                   static_cast<int32_t>(out.row()),
                   static_cast<int32_t>(in.inner),
                   down.before,
                   static_cast<int32_t>(along.before * in.inner),
                   parity};
  const int64_t halo = (along.size - 1) * in.inner;
  // Tiles of equal widths, in whole pieces.
  const int64_t most = (bytes::kRowBytes - halo) / bytes::kPieceBytes * bytes::kPieceBytes, across = (out.row() + most - 1) / most;
  const int64_t width = across > 0 ? (out.row() + across - 1) / across : 0;
  image.columns = static_cast<int32_t>((width + bytes::kPieceBytes - 1) / bytes::kPieceBytes * bytes::kPieceBytes);
  image.across = Divisor(across);
  image.tiles = Divisor(across * ((out.height + 2 * F::kOutputs - 1) / (2 * F::kOutputs)));
  return image;
}

#ifdef __CUDACC__
namespace bytes {

// Two bytes of a word as the upper halves of 16-bit lanes, whose minima and maxima, also of three, take one instruction (DPX); those of four bytes take
// six. The order of lanes is that of their upper bytes, so what is in the lower ones has no effect on them.
struct Lanes {
  uint32_t bits;
};

__device__ __forceinline__ Lanes smaller(Lanes a, Lanes b) { return {__vminu2(a.bits, b.bits)}; }
__device__ __forceinline__ Lanes larger(Lanes a, Lanes b) { return {__vmaxu2(a.bits, b.bits)}; }
__device__ __forceinline__ Lanes smallest(Lanes a, Lanes b, Lanes c) { return {__vimin3_u16x2(a.bits, b.bits, c.bits)}; }
__device__ __forceinline__ Lanes largest(Lanes a, Lanes b, Lanes c) { return {__vimax3_u16x2(a.bits, b.bits, c.bits)}; }
__device__ __forceinline__ Lanes middle(Lanes a, Lanes b, Lanes c) { return larger(smaller(a, b), smaller(larger(a, b), c)); }
__device__ __forceinline__ void put_in_order(Lanes& a, Lanes& b) {
  const Lanes lo = smaller(a, b);
  b = larger(a, b);
  a = lo;
}

// The odd bytes of words, or the even ones.
template <int n>
__device__ __forceinline__ void lanes_of(const uint32_t (&words)[n], bool odd, Lanes (&lanes)[n]) {
#pragma unroll
  for (int k = 0; k < n; ++k) lanes[k].bits = odd ? words[k] : words[k] << 8;
}
__device__ __forceinline__ uint32_t word_of(Lanes odd, Lanes even) { return __byte_perm(odd.bits, even.bits, 0x3715); }

// The words of the windows of a column of four elements.
template <int kColumns>
struct Words {
  const uint8_t* tile;
  const int32_t* begins;  // where rows begin in the tile
  int32_t column, inner;
  const ByteImages& image;
  int32_t x;  // of the first element, in the image

  __device__ __forceinline__ void operator()(int r, uint32_t (&taps)[kColumns]) const {
    const int32_t begin = begins[r] + column;
#pragma unroll
    for (int dx = 0; dx < kColumns; ++dx) {
      const int32_t at = begin + dx * inner;
      const auto* const words = reinterpret_cast<const uint32_t*>(tile + (at & ~3));
      taps[dx] = __funnelshift_r(words[0], words[1], at * 8);  // by its lowest five bits
    }
  }
};

// Stages the rows of a tile from row y and byte x of the image on. A warp takes every eighth row, and has all of its rows in flight.
template <int kRows>
__device__ __forceinline__ void stage(uint8_t* tile, int32_t* begins, const ByteImages& image, const uint8_t* in, int y, int x, int length,
                                      Border border, uint32_t fill) {
  constexpr int kOfWarp = (kRows + kWarps - 1) / kWarps;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const uint8_t* const end = in + int64_t{image.in_height} * image.in_row;
  // A lane finds a row for all of them: the code of borders is long.
  const int32_t row_of_lane = border_index_of<int32_t>(border, y + warp + lane * kWarps, image.in_height);
  uint4 piece[kOfWarp];
  bool all_whole = true;
#pragma unroll
  for (int k = 0; k < kOfWarp; ++k) {
    const int32_t row = __shfl_sync(0xFFFFFFFFu, row_of_lane, k), r = warp + k * kWarps;
    piece[k] = {fill, fill, fill, fill};
    int32_t begin = 0;
    if (row >= 0) {  // not of a constant border
      const uint8_t* const first = in + int64_t{row} * image.in_row + x;
      begin = static_cast<int32_t>(reinterpret_cast<uintptr_t>(first) % kPieceBytes);
      // Also beyond the ends of the row: the bytes there are replaced later, or not used.
      const uint8_t* const from = first - begin + lane * kPieceBytes;
      if (r < kRows && lane * kPieceBytes < begin + length) {
        if (from >= in && from + kPieceBytes <= end) piece[k] = __ldg(reinterpret_cast<const uint4*>(from));
        else all_whole = false;
      }
    }
    if (lane == 0 && r < kRows) begins[r] = r * kPitch + begin;
  }
#pragma unroll
  for (int k = 0; k < kOfWarp; ++k)
    if (warp + k * kWarps < kRows) reinterpret_cast<uint4*>(tile + (warp + k * kWarps) * kPitch)[lane] = piece[k];
  if (all_whole) return;
  // Pieces at the ends of the image itself, byte by byte.
#pragma unroll 1
  for (int r = warp; r < kRows; r += kWarps) {
    const int32_t row = border_index_of<int32_t>(border, y + r, image.in_height);
    if (row < 0) continue;
    const uint8_t* const first = in + int64_t{row} * image.in_row + x;
    const uint8_t* const from = first - reinterpret_cast<uintptr_t>(first) % kPieceBytes + lane * kPieceBytes;
    if (from >= in && from + kPieceBytes <= end) continue;
#pragma unroll 1
    for (int b = 0; b < kPieceBytes; ++b)
      if (from + b >= in && from + b < end) tile[r * kPitch + lane * kPieceBytes + b] = __ldg(from + b);
  }
}

// Replaces what a tile has beyond the sides of the image: `left` bytes from its first one on, and `right` from byte `from` on.
__device__ __forceinline__ void stage_sides(uint8_t* tile, const int32_t* begins, int rows, const ByteImages& image, const uint8_t* in, int y, int x,
                                            int left, int from, int right, Border border, uint32_t fill) {
  const int sides = left + right;
#pragma unroll 1
  for (int n = static_cast<int>(threadIdx.x); n < rows * sides; n += kThreads) {
    const int r = n / sides, side = n - r * sides, i = side < left ? side : from + side - left, at = x + i;
    const int pixel = at >= 0 ? at / image.inner : -((image.inner - 1 - at) / image.inner), channel = at - pixel * image.inner;
    const int32_t row = border_index_of<int32_t>(border, y + r, image.in_height),
                  column = border_index_of<int32_t>(border, pixel, image.in_row / image.inner);
    tile[begins[r] + i] =
        row < 0 || column < 0 ? static_cast<uint8_t>(fill) : __ldg(in + int64_t{row} * image.in_row + column * image.inner + channel);
  }
}

// Copies rows of the results to the image, `length` bytes of each. A warp takes a row, a lane 16 aligned bytes of it.
template <int kPitchBytes>
__device__ __forceinline__ void store_rows(const uint8_t* tile, uint8_t* to, int32_t row, int rows, int length) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int r = warp; r < rows; r += kWarps) {
    const uint8_t* const from = tile + r * kPitchBytes;
    uint8_t* const first = to + int64_t{r} * row;
    const int misaligned = static_cast<int>(reinterpret_cast<uintptr_t>(first) % kPieceBytes);
    const int head = min((kPieceBytes - misaligned) % kPieceBytes, length), pieces = (length - head) / kPieceBytes;
    for (int p = lane; p < pieces; p += 32) {
      const int at = head + p * kPieceBytes;
      uint4 piece;
      if (head == 0) {
        piece = reinterpret_cast<const uint4*>(from)[p];
      } else {
        const auto* const words = reinterpret_cast<const uint32_t*>(from + (at & ~3));
        const uint32_t last = (at & 3) != 0 ? words[4] : 0;  // not read where it may not exist
        piece = {__funnelshift_r(words[0], words[1], at * 8), __funnelshift_r(words[1], words[2], at * 8),
                 __funnelshift_r(words[2], words[3], at * 8), __funnelshift_r(words[3], last, at * 8)};
      }
      *reinterpret_cast<uint4*>(first + at) = piece;
    }
    const int rest = length - pieces * kPieceBytes;  // fewer than 16 bytes at each end
    if (lane < rest) {
      const int at = lane < head ? lane : lane + pieces * kPieceBytes;
      first[at] = from[at];
    }
  }
}

template <class F>
__global__ void __launch_bounds__(kThreads, F::kResident)
    windows_gpu(const __grid_constant__ TableRows<ByteImages> table, BatchTiles batch, Border border, uint32_t fill, F filter) {
  constexpr int kTileRows = 2 * F::kOutputs, kRows = kTileRows + F::kRows - 1, kPitchBytes = kOutPitch * F::kScale;
  __shared__ uint4 staged[kRows * kRowPieces];
  __shared__ uint4 results[kTileRows * kPitchBytes / kPieceBytes];
  __shared__ int32_t begins[kRows];
  __shared__ float weights[F::kWeights + 1];
  auto* const tile = reinterpret_cast<uint8_t*>(staged);
  auto* const out_tile = reinterpret_cast<uint8_t*>(results);
  for_each_tile(batch, [&](uint32_t k, uint32_t first) {
    const ByteImages& image = table[k];
    for (uint32_t n = first; n < image.tiles.value * image.images; n += batch.across.value) {
      const auto which = static_cast<int>(image.tiles.quotient(n)), t = static_cast<int>(n - which * image.tiles.value);
      const int down = static_cast<int>(image.across.quotient(t)), across = t - down * static_cast<int>(image.across.value);
      const int y = down * kTileRows, x = across * image.columns, length = min(image.columns, image.out_row - x);
      const uint8_t* const in = image.in + which * (int64_t{image.in_height} * image.in_row);
      uint8_t* const out = image.out + which * (int64_t{image.out_height} * image.out_row * F::kScale);
      assume_global(in, out);
      const int halo = (F::kColumns - 1) * image.inner, from = x - image.before;
      stage<kRows>(tile, begins, image, in, y - image.above, from, length + halo, border, fill);
      if constexpr (F::kWeights > 0)
        if (threadIdx.x < F::kWeights) weights[threadIdx.x] = filter.weight(image, static_cast<int>(threadIdx.x));
      const int left = max(-from, 0), inside = image.in_row - from, right = max(length + halo - inside, 0);
      __syncthreads();
      if (left + right > 0) {
        stage_sides(tile, begins, kRows, image, in, y - image.above, from, left, inside, right, border, fill);
        __syncthreads();
      }
      // Threads are assigned to the words of a row, and behind the last one to those of the lower half of the tile.
      const int words = (length + 3) / 4, thread = static_cast<int>(threadIdx.x), piece = thread < words ? 0 : 1, word = thread - piece * words;
      if (word < words && y + piece * F::kOutputs < image.out_height) {
        auto* const to = reinterpret_cast<uint32_t*>(out_tile + piece * F::kOutputs * kPitchBytes) + word * F::kScale;
        filter(Words<F::kColumns>{tile, begins + piece * F::kOutputs, 4 * word, image.inner, image, x + 4 * word}, weights, y + piece * F::kOutputs,
               image.parity, [&](int o, const uint32_t (&four)[F::kScale]) {
#pragma unroll
                 for (int w = 0; w < F::kScale; ++w) to[o * (kPitchBytes / 4) + w] = four[w];
               });
      }
      __syncthreads();
      store_rows<kPitchBytes>(out_tile, out + (int64_t{y} * image.out_row + x) * F::kScale, image.out_row * F::kScale,
                              min(kTileRows, image.out_height - y), length * F::kScale);
    }
  });
}

template <class F>
void launch(const char* op, const std::vector<ByteImages>& images, Border border, uint8_t fill, const F& filter) {
  std::vector<ByteImages> filled;
  std::copy_if(images.begin(), images.end(), std::back_inserter(filled),
               [](const ByteImages& image) { return image.out_height > 0 && image.out_row > 0; });
  const auto joined = join_runs(filled, [](ByteImages& last, const ByteImages& next) {
    const int64_t in_bytes = int64_t{last.in_height} * last.in_row, out_bytes = int64_t{last.out_height} * last.out_row * F::kScale;
    const bool equal = last.in_height == next.in_height && last.in_row == next.in_row && last.out_height == next.out_height &&
                       last.out_row == next.out_row && last.inner == next.inner && last.above == next.above && last.before == next.before &&
                       last.parity == next.parity && last.weights == next.weights;
    // Frames, planes and dense samples follow each other in memory: one entry of the table for all.
    if (!equal || last.in + last.images * in_bytes != next.in || last.out + last.images * out_bytes != next.out) return false;
    if ((int64_t{last.images} + next.images) * last.tiles.value >= Divisor::kLimit) return false;
    last.images += next.images;
    return true;
  });
  int64_t most = 0;
  for (const ByteImages& image : joined) most = std::max(most, int64_t{image.tiles.value} * image.images);
  if (most == 0) return;
  const KernelTable<ByteImages> table(joined);
  const BatchTiles batch = batch_tiles(most, 1, static_cast<int64_t>(joined.size()));
  windows_gpu<F>
      <<<resident_blocks(batch, F::kResident), kThreads, 0, current_cuda_stream()>>>(table.rows(), batch, border, fill * 0x01010101u, filter);
  check_launch(op);
}

}  // namespace bytes
#endif

}  // namespace ndd::stencil
