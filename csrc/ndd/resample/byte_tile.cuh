// SPDX-License-Identifier: Apache-2.0
// Resamples images of bytes by torch's or Pillow's rule, width first, in one launch. A block computes a tile: it separates the colors of some source
// rows in shared memory, mixes their columns to bytes there, and mixes the rows of these to the output. All sums are those of two_passes.h, in
// integers. Images have up to four channels, or planes.
//
// dp2a multiplies two bytes by two 16-bit weights, so neighbors along the mixed axis share a word: four columns of a color in the stage, four
// rows between the passes. The weights of an output element begin at a multiple of four, with zeros before and behind. Shared memory has fixed
// pitches, which leaves one address for all loads of a step. Reducing 640x480x3 to 224x224 with antialias takes 80 instructions for an element of the
// output: 15 to stage 6 bytes of the source, 40 to mix columns, 25 to mix rows (counted in the machine code). At the instructions per cycle that
// tile.cuh reaches, an H100 needs 0.084 ms for 128 images; a pass through memory for each axis, an element a thread, took 0.79 (predicted, measured).
//
// Guarantees: inputs and outputs may have any alignment, and no byte outside the sample is read.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#ifdef __CUDACC__
#include "ndd/color/pixel_words.cuh"
#endif
#include "ndd/resample/normalized.cuh"
#include "ndd/resample/table.h"
#include "ndd/resample/tile.cuh"

namespace ndd::resample_gpu {

constexpr int kByteRows = 32, kByteColumns = 64;  // of a tile, at most
constexpr int kStagePitch = 64;  // words of a color of a source row: 256 columns
constexpr int kStagedQuads = 8;  // groups of four source rows, at most

// An axis, and its places in the table of numbers in device memory. Output o mixes the words (of four source elements) from number o of `starts` on, in
// `steps` steps with four weights each; Pillow's weights have a second part behind the first one.
struct ByteAxis {
  int64_t starts, weights;
  int32_t in, out, steps, precision;
};

// A sample viewed as [planes][height][width][channels], and its partition into tiles.
struct ByteSample {
  const uint8_t* in;
  void* out;
  int64_t planes, in_pitch, in_plane;  // distances in bytes
  ByteAxis vertical, horizontal;
  int32_t width_bits, rows, across, tiles;  // a tile has 2^width_bits columns
  int32_t staged_quads;
  // Offsets in bytes of the parts of a block's shared memory, multiples of 16. The weights of the rows follow their starts.
  int32_t column_starts, column_weights, stage, mixed, result;
  Normalization normalization;

  // Partitions into tiles of `height` rows, which need at most `quads` groups of four mixed rows. Returns the shared memory that a block needs.
  int64_t cut(int bits, int height, int64_t quads, int channels, int parts) {
    const auto rounded = [](int64_t bytes) { return (bytes + 15) / 16 * 16; };
    const int64_t columns = int64_t{1} << bits;
    width_bits = bits;
    rows = height;
    across = static_cast<int32_t>((horizontal.out + columns - 1) / columns);
    tiles = static_cast<int32_t>(std::min<int64_t>((vertical.out + rows - 1) / rows * across, INT32_MAX));
    staged_quads = static_cast<int32_t>(std::min<int64_t>(kStagedQuads, kThreads >> bits));
    const int64_t starts_at = kByteRows * 4 + rounded(int64_t{kByteRows} * vertical.steps * parts * 8);
    const int64_t weights_at = starts_at + kByteColumns * 4, stage_at = weights_at + columns * horizontal.steps * parts * 8;
    const int64_t mixed_at = stage_at + int64_t{staged_quads} * 4 * channels * kStagePitch * 4;
    const int64_t result_at = mixed_at + quads * channels * kByteColumns * 4, end = result_at + int64_t{height} * result_pitch(channels);
    if (end > INT32_MAX) return end;
    column_starts = static_cast<int32_t>(starts_at);
    column_weights = static_cast<int32_t>(weights_at);
    stage = static_cast<int32_t>(stage_at);
    mixed = static_cast<int32_t>(mixed_at);
    result = static_cast<int32_t>(result_at);
    return end;
  }

  // Of the rows of the result, which begin at the same offset within a word as in the output.
  static NDD_HD int32_t result_pitch(int channels) { return kByteColumns * channels + 4; }
};

// The starts and the weights of an axis, as append() has put them into the table.
struct ByteTable {
  int64_t starts = 0, weights = 0;
  int32_t steps = 0;
  // The most words that the outputs of a tile need, for tiles of 8, 16, 32 and 64 outputs.
  int64_t words[4] = {};

  void append(const AxisTable& t, std::vector<int32_t>& numbers) {
    // In words of four source elements.
    const auto last = static_cast<int32_t>((t.axis.in + 3) / 4);
    const auto outputs = static_cast<size_t>(t.axis.out);
    // As many for all outputs, because a loop of one length needs no table of lengths.
    steps = 0;
    for (size_t i = 0; i < outputs; ++i) steps = std::max(steps, (t.start[i] + t.count[i] - 1) / 4 - t.start[i] / 4 + 1);
    const int parts = t.fine() ? 2 : 1;
    starts = static_cast<int64_t>(numbers.size());
    weights = (starts + t.axis.out + 1) / 2 * 2;  // uint2 needs even places
    const size_t row = static_cast<size_t>(steps) * static_cast<size_t>(parts) * 2, end = static_cast<size_t>(weights) + outputs * row;
    // Rows are stored by a load and a store of eight weights: the zeros behind the weights of an output are written over by the next one.
    numbers.resize(end + 4);
    int32_t* const begins = numbers.data() + starts;
    // Moved back where the steps would pass the end of the axis; the weights move with them.
    for (size_t i = 0; i < outputs; ++i) begins[i] = std::min(t.start[i] / 4, last - steps);
    // Bytes, because what is stored as int16 must not be read or cleared as int32 in between.
    auto* to = reinterpret_cast<char*>(numbers.data() + weights);
    const auto stride = static_cast<size_t>(t.stride);
    for (size_t i = 0; i < outputs; ++i, to += row * sizeof(int32_t)) {
      const int32_t shift = t.start[i] - 4 * begins[i], count = t.count[i];
      const int16_t* const whole = t.weight16.data() + i * stride;
      if (parts == 1) {
        char* const at = to + 2 * shift;
        for (int32_t k = 0; k < count; k += 8) std::memcpy(at + 2 * k, whole + k, 8 * sizeof(int16_t));
        continue;
      }
      const int16_t* const fine = t.fine16.data() + i * stride;
      for (int32_t k = 0; k < count; ++k) {
        char* const at = to + ((shift + k) / 4 * 8 + (shift + k) % 4) * 2;
        std::memcpy(at, whole + k, sizeof(int16_t));
        std::memcpy(at + 8, fine + k, sizeof(int16_t));
      }
    }
    numbers.resize(end);
    find_words(begins, t.axis.out);
  }

  // Computes `words` from the first word of each output.
  void find_words(const int32_t* begins, int64_t outputs) {
    std::fill(std::begin(words), std::end(words), 0);
    // The least and the greatest word of the last 8, 16, 32 and 64 outputs.
    for (int64_t begin = 0; begin < outputs; begin += 64) {
      int32_t least[8], greatest[8];
      int groups = 0;
      for (int64_t first = begin; first < std::min(begin + 64, outputs); first += 8, ++groups) {
        const auto ends = std::minmax_element(begins + first, begins + std::min(first + 8, outputs));
        least[groups] = *ends.first;
        greatest[groups] = *ends.second;
      }
      for (int n = 0; n < 4; ++n) {
        // The columns of a tile are staged from a multiple of four words on.
        for (int k = 0; k < groups; ++k) words[n] = std::max<int64_t>(words[n], greatest[k] + steps - least[k] / 4 * 4);
        for (int k = 0; k < groups; k += 2) {
          const int other = std::min(k + 1, groups - 1);
          least[k / 2] = std::min(least[k], least[other]);
          greatest[k / 2] = std::max(greatest[k], greatest[other]);
        }
        groups = (groups + 1) / 2;
      }
    }
  }
};

#ifdef __CUDACC__
// The sum and the products of two bytes, the upper or the lower ones of a word, with two signed 16-bit numbers.
template <bool kUpper>
__device__ int32_t add_products(int32_t sum, uint32_t pair, uint32_t bytes) {
#if defined(__CUDA_ARCH__) && defined(__NVCC__)
  // The intrinsic functions take both as signed or both as unsigned.
  int32_t result;
  if constexpr (kUpper) asm("dp2a.hi.s32.u32 %0, %1, %2, %3;" : "=r"(result) : "r"(pair), "r"(bytes), "r"(sum));
  else asm("dp2a.lo.s32.u32 %0, %1, %2, %3;" : "=r"(result) : "r"(pair), "r"(bytes), "r"(sum));
  return result;
#else
  const uint32_t two = kUpper ? bytes >> 16 : bytes;
  const auto low = static_cast<uint32_t>(static_cast<int16_t>(pair)), high = static_cast<uint32_t>(static_cast<int16_t>(pair >> 16));
  return static_cast<int32_t>(static_cast<uint32_t>(sum) + low * (two & 0xFF) + high * (two >> 8 & 0xFF));
#endif
}

// Four numbers limited to bytes, in one word.
__device__ inline uint32_t pack_levels(int32_t a, int32_t b, int32_t c, int32_t d) {
#if defined(__CUDA_ARCH__) && defined(__NVCC__)
  uint32_t upper, all;
  asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, 0;" : "=r"(upper) : "r"(d), "r"(c));
  asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(all) : "r"(b), "r"(a), "r"(upper));
  return all;
#else
  const auto level = [](int32_t v) { return static_cast<uint32_t>(v < 0 ? 0 : v > 255 ? 255 : v); };
  return level(a) | level(b) << 8 | level(c) << 16 | level(d) << 24;
#endif
}

// A sum of products, in one part or in the two of Pillow's weights.
template <bool kFine>
struct ByteSum {
  int32_t whole, fine;
  __device__ void begin(int32_t half) { whole = kFine ? 0 : half, fine = half; }
  __device__ void add(const uint2 (&weights)[kFine ? 2 : 1], uint32_t bytes) {
    whole = add_products<true>(add_products<false>(whole, weights[0].x, bytes), weights[0].y, bytes);
    if constexpr (kFine) fine = add_products<true>(add_products<false>(fine, weights[1].x, bytes), weights[1].y, bytes);
  }
  __device__ int32_t level(int32_t precision) const {
    return static_cast<int32_t>(kFine ? (static_cast<uint32_t>(whole) << kFineBits) + static_cast<uint32_t>(fine) : static_cast<uint32_t>(whole)) >>
           precision;
  }
};

// Copies `rows` rows of `units` groups of 16 pixels to the stage, one color behind the other.
template <int kChannels>
__device__ void stage_rows(const ByteSample& s, int64_t plane, int row, int rows, int column, int units, uint32_t* stage) {
  const Divisor divisor(units);
  const uint8_t *const begin = s.in, *const end = s.in + s.planes * s.in_plane,
                       *const first = s.in + plane * s.in_plane + int64_t{column} * kChannels;
  const bool aligned = (reinterpret_cast<uintptr_t>(first) | static_cast<uintptr_t>(s.in_pitch)) % 16 == 0;
  const int last = s.vertical.in - 1;
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x); item < rows * units; item += kThreads) {
    const int r = divisor.quotient(item), unit = item - r * units;
    uint32_t words[4 * kChannels];
    // Rows behind the last one have no weights.
    load_pixels<kChannels>(first + min(row + r, last) * s.in_pitch + unit * 16 * kChannels, aligned, begin, end, words);
    store_colors<kChannels>(words, stage + r * kChannels * kStagePitch + 4 * unit, kStagePitch * static_cast<int>(sizeof *stage));
  }
}

// Mixes the columns of staged rows: a thread computes a pixel of four rows, which share the weights.
template <int kChannels, bool kFine>
__device__ void mix_staged(const uint32_t* stage, int quads, int columns, int column_bits, const uint2* weights, int steps, int first, int32_t half,
                           int32_t precision, uint32_t* mixed) {
  constexpr int kParts = kFine ? 2 : 1;
  const int x = static_cast<int>(threadIdx.x) & ((1 << column_bits) - 1);
  if (x >= columns) return;
#pragma unroll 1
  for (int quad = static_cast<int>(threadIdx.x) >> column_bits; quad < quads; quad += kThreads >> column_bits) {
    ByteSum<kFine> sums[4][kChannels];
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int c = 0; c < kChannels; ++c) sums[j][c].begin(half);
    const uint32_t* line = stage + quad * 4 * kChannels * kStagePitch + first;
    const uint2* weight = weights + x;
#pragma unroll 1
    for (int s = 0; s < steps; ++s, ++line) {
      uint2 four[kParts];
#pragma unroll
      for (int p = 0; p < kParts; ++p, weight += 1 << column_bits) four[p] = *weight;
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int c = 0; c < kChannels; ++c) sums[j][c].add(four, line[(j * kChannels + c) * kStagePitch]);
    }
#pragma unroll
    for (int c = 0; c < kChannels; ++c)
      mixed[(quad * kChannels + c) * kByteColumns + x] =
          pack_levels(sums[0][c].level(precision), sums[1][c].level(precision), sums[2][c].level(precision), sums[3][c].level(precision));
  }
}

// `type` is that of the output where it is normalized; otherwise the output is bytes, pixel by pixel as in the input.
template <int kChannels, bool kFine>
__global__ void __launch_bounds__(kThreads, 4)
    byte_kernel(const __grid_constant__ TableRows<ByteSample> samples, int64_t count, const int32_t* numbers, bool normalized, DType type) {
  extern __shared__ float4 memory[];
  constexpr int kParts = kFine ? 2 : 1;
  char* const base = reinterpret_cast<char*>(memory);
  auto* const row_starts = reinterpret_cast<int32_t*>(base);
  auto* const row_weights = reinterpret_cast<uint2*>(base + kByteRows * 4);
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int64_t i = blockIdx.y; i < count; i += gridDim.y) {
    // The layout of shared memory is that of ByteSample::cut(): starts and weights of the rows, then of the columns, the stage, the mixed rows,
    // the result.
    const ByteSample& s = samples[i];
    const int column_bits = s.width_bits, columns = 1 << column_bits, row_steps = s.vertical.steps * kParts, steps = s.horizontal.steps;
    auto* const column_starts = reinterpret_cast<int32_t*>(base + s.column_starts);
    auto* const column_weights = reinterpret_cast<uint2*>(base + s.column_weights);
    auto* const stage = reinterpret_cast<uint32_t*>(base + s.stage);
    auto* const mixed = reinterpret_cast<uint32_t*>(base + s.mixed);
    char* const result = base + s.result;
    void* const out = s.out;
    assume_global(out);
    const int32_t row_precision = s.vertical.precision, column_precision = s.horizontal.precision;
    const int32_t row_half = row_precision > 0 ? 1 << (row_precision - 1) : 0, column_half = column_precision > 0 ? 1 << (column_precision - 1) : 0;
#pragma unroll 1
    for (int tile = static_cast<int>(blockIdx.x); tile < s.tiles; tile += static_cast<int>(gridDim.x)) {
      const int down = tile / s.across, across = tile - down * s.across, y0 = down * s.rows, x0 = across * columns;
      const int rows = min(s.vertical.out - y0, s.rows), width = min(s.horizontal.out - x0, columns);
      // The threads may still read the weights of the previous tile.
      __syncthreads();
      if (thread < rows) row_starts[thread] = __ldg(numbers + s.vertical.starts + y0 + thread);
      if (thread < width) column_starts[thread] = __ldg(numbers + s.horizontal.starts + x0 + thread);
      // Member by member: the CUDA emulator of the tests does not track the store of a structure.
      for (int k = thread; k < rows * row_steps; k += kThreads) {
        const uint2 four = __ldg(reinterpret_cast<const uint2*>(numbers + s.vertical.weights) + int64_t{y0} * row_steps + k);
        row_weights[k].x = four.x;
        row_weights[k].y = four.y;
      }
      // Weights are stored by columns and needed step by step: neighboring threads have neighboring columns.
      const Divisor outputs(steps * kParts);
      for (int k = thread; k < width * steps * kParts; k += kThreads) {
        const int x = outputs.quotient(k), step = k - x * steps * kParts;
        const uint2 four = __ldg(reinterpret_cast<const uint2*>(numbers + s.horizontal.weights) + int64_t{x0} * steps * kParts + k);
        uint2& to = column_weights[(step << column_bits) + x];
        to.x = four.x;
        to.y = four.y;
      }
      __syncthreads();
      // A mirrored axis has its first output at the other end.
      const int first_quad = min(row_starts[0], row_starts[rows - 1]),
                quads = max(row_starts[0], row_starts[rows - 1]) + s.vertical.steps - first_quad;
      const int first_word = min(column_starts[0], column_starts[width - 1]) / 4 * 4,
                units = (max(column_starts[0], column_starts[width - 1]) + steps - first_word + 3) / 4;
      const int x = thread & (columns - 1), first = x < width ? column_starts[x] - first_word : 0;
#pragma unroll 1
      for (int64_t plane = blockIdx.z; plane < s.planes; plane += gridDim.z) {
#pragma unroll 1
        for (int quad = 0; quad < quads; quad += s.staged_quads) {
          // Source rows come a few at a time, and all stay as mixed rows until the rows are mixed.
          const int staged = min(quads - quad, s.staged_quads);
          stage_rows<kChannels>(s, plane, 4 * (first_quad + quad), 4 * staged, 4 * first_word, units, stage);
          __syncthreads();
          mix_staged<kChannels, kFine>(stage, staged, width, column_bits, column_weights, steps, first, column_half, column_precision,
                                       mixed + quad * kChannels * kByteColumns);
          __syncthreads();
        }
        // Mixes rows: neighboring threads take neighboring columns.
        Channel of[kChannels];
        if (normalized)
#pragma unroll
          for (int c = 0; c < kChannels; ++c) of[c] = s.normalization.channel(plane, c);
        const int64_t out_pitch = int64_t{s.horizontal.out} * kChannels;
        char* const to = static_cast<char*>(out) + (plane * s.vertical.out + y0) * out_pitch + int64_t{x0} * kChannels;
        if (x < width) {
#pragma unroll 1
          for (int y = thread >> column_bits; y < rows; y += kThreads >> column_bits) {
            const uint32_t* column = mixed + (row_starts[y] - first_quad) * kChannels * kByteColumns + x;
            const uint2* weight = row_weights + y * row_steps;
            ByteSum<kFine> sums[kChannels];
#pragma unroll
            for (int c = 0; c < kChannels; ++c) sums[c].begin(row_half);
#pragma unroll 1
            for (int k = 0; k < s.vertical.steps; ++k, column += kChannels * kByteColumns) {
              uint2 four[kParts];
#pragma unroll
              for (int p = 0; p < kParts; ++p) four[p] = *weight++;
#pragma unroll
              for (int c = 0; c < kChannels; ++c) sums[c].add(four, column[c * kByteColumns]);
            }
            if (normalized) {
              const Normalization& n = s.normalization;
              const int64_t at = plane * n.plane + int64_t{y0 + y} * n.row + int64_t{x0 + x} * n.pixel;
#pragma unroll
              for (int c = 0; c < kChannels; ++c) {
                const int32_t level = min(max(sums[c].level(row_precision), 0), 255);
                store_value(of[c](static_cast<float>(level)), out, type, at + c * n.color);
              }
            } else {
              const auto offset =
                  static_cast<int>((static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to)) + y * static_cast<uint32_t>(out_pitch)) % 4);
              auto* const pixel = reinterpret_cast<uint8_t*>(result + y * ByteSample::result_pitch(kChannels) + offset + x * kChannels);
#pragma unroll
              for (int c = 0; c < kChannels; ++c) pixel[c] = static_cast<uint8_t>(min(max(sums[c].level(row_precision), 0), 255));
            }
          }
        }
        if (normalized) continue;
        __syncthreads();
        copy_tile(result, ByteSample::result_pitch(kChannels), to, out_pitch, rows, width * kChannels);
      }
    }
  }
}
#endif

}  // namespace ndd::resample_gpu
