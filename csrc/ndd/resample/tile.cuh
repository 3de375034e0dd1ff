// SPDX-License-Identifier: Apache-2.0
// Resamples two axes in one launch: each block computes a tile of 32 output rows. It mixes source rows straight from global memory into floats in
// shared memory, mixes these into output elements, and collects those in shared memory to write whole words. Two passes through global memory would
// move 8 bytes more for each float in between: for 640x480 to 224x224 in uint8 with antialias, 4.5 MB instead of 1.07 MB per image. According to the
// machine code that takes 110 instructions per output element, where the memory bandwidth leaves time for 44: it is bound by instructions, a third of
// them multiply-adds and the byte_perms that convert bytes to floats (computed, not measured). Enlarging takes 30.
//
// Between the passes, four rows of a column are adjacent, so one 16-byte access serves four multiply-adds. Columns are 36 floats apart: eight
// lanes that access 16 bytes of neighboring columns, or of one column, then touch every bank of shared memory once.
//
// Guarantees: inputs and outputs may have any alignment, and no byte outside the sample is read.
#pragma once
#include "ndd/elementwise/saturate.h"
#include "ndd/resample/normalized.cuh"
#include "ndd/resample/weights.cuh"

namespace ndd::resample_gpu {

constexpr int kTileRows = 32, kColumnPitch = 36;

// A sample viewed as [planes][height][width][channels], and its partition into tiles. The launcher precomputes all numbers: a division in the kernel
// would be repeated by 256 threads that compute only 12 elements each.
struct TiledSample {
  const void* in;
  void* out;
  int64_t planes, in_pitch, in_plane, out_pitch, out_plane;  // distances in elements
  int32_t channels, tile_width, across, tiles;  // tiles per plane
  // Offsets in bytes of the parts of a block's shared memory, multiples of 16. The weights of the 32 rows follow their starts.
  int32_t column_starts, column_weights, columns, result, result_pitch;
  Axis vertical, horizontal;

  // Partitions into tiles `width` pixels wide, for results of `item_bytes` each, in a line of all elements of a row or in one for each color (`planar`).
  // Returns the shared memory that a block needs; the caller tries smaller widths if that is too much.
  int64_t cut(int32_t width, int64_t item_bytes, bool planar = false) {
    // 16-byte accesses need aligned parts.
    const auto rounded = [](int64_t bytes) { return (bytes + 15) / 16 * 16; };
    // Source columns of a tile, plus 4 for the rounding of coordinates up to 2^22, and 3 elements before and after them to complete words.
    const int64_t mixed = static_cast<int64_t>((width - 1) * fabsf(horizontal.scale)) + inner_taps(horizontal) + 4;
    const int64_t elements = (mixed < horizontal.in ? mixed : horizontal.in) * channels + 6;
    const int64_t weights_at = kTileRows * 4 + int64_t{kTileRows} * inner_taps(vertical) * 4;
    const int64_t starts_at = weights_at + rounded(int64_t{width} * inner_taps(horizontal) * 4);
    const int64_t columns_at = starts_at + rounded(int64_t{width} * 4), result_at = columns_at + elements * kColumnPitch * 4;
    const int64_t lines = planar ? channels : 1, line = int64_t{width} * channels / lines;
    const int64_t words = lines * ((line * item_bytes + 6) / 4 | 1);  // odd lines, so rows that are 4 apart start in different banks
    const int64_t end = result_at + kTileRows * words * 4, tiles_down = (vertical.out + kTileRows - 1) / kTileRows;
    // Far more than a block can have: the caller tries a smaller width.
    if (end > INT32_MAX) return end;
    tile_width = width;
    across = static_cast<int32_t>((horizontal.out + width - 1) / width);
    tiles = static_cast<int32_t>(std::min<int64_t>(tiles_down * across, INT32_MAX));  // more tiles than a launch allows anyway
    column_weights = static_cast<int32_t>(weights_at);
    column_starts = static_cast<int32_t>(starts_at);
    columns = static_cast<int32_t>(columns_at);
    result = static_cast<int32_t>(result_at);
    result_pitch = static_cast<int32_t>(words * 4);
    return end;
  }
};

#ifdef __CUDACC__
// The part of a plane that a tile mixes, and where the result goes.
struct TileMix {
  int32_t columns, taps, quads;  // columns: elements of a row; quads: groups of four output rows
  const float4* weights;  // [quad][tap], of four output rows
  const uint4* starts;  // [quad]
  float4* mixed;  // [column][quad]
};

// Addresses of the rows of a tile in a plane that does not cross a multiple of 4 GiB, as most: the step to the next row is one 32-bit addition
// instead of three.
struct NearRows {
  using At = uint32_t;
  uint64_t high;
  uint32_t low, pitch;
  __device__ At at(uint32_t row, int byte) const { return low + row * pitch + static_cast<uint32_t>(byte); }
  __device__ At next(At at) const { return at + pitch; }
  template <class T>
  __device__ const T* place(At at) const {
    return reinterpret_cast<const T*>(high << 32 | at);
  }
};
// The same for any plane, with 64-bit addresses.
struct FarRows {
  using At = const char*;
  const char* first;
  int64_t pitch;
  __device__ At at(uint32_t row, int byte) const { return first + row * pitch + byte; }
  __device__ At next(At at) const { return at + pitch; }
  template <class T>
  __device__ const T* place(At at) const {
    return reinterpret_cast<const T*>(at);
  }
};

// Elements converted to float.
template <class In, class Rows>
struct Elements : Rows {
  static constexpr int kBytes = sizeof(In);
  __device__ float value(typename Rows::At at) const { return read(this->template place<In>(at)); }
};
// The rare types, at the cost of a switch per access.
struct AnyElements {
  using At = int64_t;
  static constexpr int kBytes = 1;
  const void* plane;
  DType type;
  int64_t first, pitch;  // in elements
  __device__ At at(uint32_t row, int column) const { return first + row * pitch + column; }
  __device__ At next(At at) const { return at + pitch; }
  __device__ float value(At at) const { return load_element(plane, type, at); }
};

// Loads four bytes as a word: aligned ones; unaligned ones, from two aligned words; and words that extend beyond the sample, byte by byte.
template <class Rows>
struct Words : Rows {
  __device__ unsigned int word(typename Rows::At at) const { return __ldg(this->template place<unsigned int>(at)); }
};
struct WordsAnywhere : NearRows {
  __device__ unsigned int word(At at) const {
    // The shift counts modulo 32, so `8 * at` is the offset within the word in bits.
    const auto* words = place<unsigned int>(at & ~3u);
    return __funnelshift_r(__ldg(words), __ldg(words + 1), 8 * at);
  }
};
struct GuardedWords : FarRows {
  const char *begin, *end;
  __device__ unsigned int word(At at) const {
    unsigned int word = 0;
#pragma unroll 1
    for (int b = 0; b < 4; ++b)
      if (at + b >= begin && at + b < end) word |= static_cast<unsigned int>(*place<uint8_t>(at + b)) << 8 * b;
    return word;
  }
};

// Mixes rows. Neighboring threads take neighboring columns, four output rows each.
template <class Rows>
__device__ void mix_rows(const TileMix& t, const Rows& rows) {
  // A division by a run-time number takes dozens of instructions; Divisor multiplies.
  const Divisor columns(t.columns);
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x); item < t.quads * t.columns; item += kThreads) {
    const int quad = columns.quotient(item), column = item - quad * t.columns, byte = column * Rows::kBytes;
    const uint4 starts = t.starts[quad];
    auto a = rows.at(starts.x, byte), b = rows.at(starts.y, byte), c = rows.at(starts.z, byte), d = rows.at(starts.w, byte);
    const float4* weights = t.weights + quad * t.taps;
    float4 sum{};
#pragma unroll 2
    for (int k = 0; k < t.taps; ++k) {
      const float4 w = weights[k];
      sum.x += w.x * rows.value(a);
      sum.y += w.y * rows.value(b);
      sum.z += w.z * rows.value(c);
      sum.w += w.w * rows.value(d);
      a = rows.next(a);
      b = rows.next(b);
      c = rows.next(c);
      d = rows.next(d);
    }
    t.mixed[column * (kColumnPitch / 4) + quad] = sum;
  }
}

// The same for bytes, a word of four columns per thread. A byte becomes a float by its position in one: __byte_perm makes 2^23 + v, from which 2^23
// is subtracted (exactly), or, if results are rounded to bytes, 2^15 + v, for which the sum starts with -2^15. The latter saves one instruction per
// tap and is off by at most 2^-9 per tap. Eight neighboring threads store the four columns of their words in rotated orders, so they hit
// different banks.
template <bool kRounded, class Rows>
__device__ void mix_words(const TileMix& t, const Rows& rows) {
  const int words = (t.columns + 3) / 4, turn = static_cast<int>(threadIdx.x) / 2;
  const Divisor divisor(words);
  // Selectors of __byte_perm: which bytes of (four bytes, constant) make up the float for each column.
  unsigned int chosen[4];
  // Thread t starts with column (t / 2) % 4 of its word: the rotation that spreads eight threads over all banks.
  float4* places[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const unsigned int byte = (e + turn) % 4;
    chosen[e] = kRounded ? 0x7404 | byte << 4 : 0x7440 | byte;
    places[e] = t.mixed + byte * (kColumnPitch / 4);
  }
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x); item < t.quads * words; item += kThreads) {
    const int quad = divisor.quotient(item), word = item - quad * words;
    const uint4 starts = t.starts[quad];
    typename Rows::At at[4] = {rows.at(starts.x, 4 * word), rows.at(starts.y, 4 * word), rows.at(starts.z, 4 * word), rows.at(starts.w, 4 * word)};
    const float4* weights = t.weights + quad * t.taps;
    float sum[4][4];  // [column][row]
    // The first tap is peeled: it starts the sums instead of adding to zeros.
    const auto mix = [&](int k, bool begins) {
      const float4 w = weights[k];
      const float weight[4] = {w.x, w.y, w.z, w.w};
      unsigned int four[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        four[j] = rows.word(at[j]);
        at[j] = rows.next(at[j]);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float value = __uint_as_float(__byte_perm(four[j], kRounded ? 0x47000000 : 0x4B000000, chosen[e]));
          const float before = begins ? (kRounded ? -32768.0f : 0.0f) : sum[e][j];
          sum[e][j] = before + weight[j] * (kRounded ? value : value - 8388608.0f);
        }
      }
    };
    mix(0, true);
#pragma unroll 2
    for (int k = 1; k < t.taps; ++k) mix(k, false);
    const int place = 4 * word * (kColumnPitch / 4) + quad;
#pragma unroll
    for (int e = 0; e < 4; ++e) places[e][place] = make_float4(sum[e][0], sum[e][1], sum[e][2], sum[e][3]);
  }
}

// Mixes rows of any type. Column 0 is `first` elements after the start of row 0 in memory; [begin, end) is the sample's memory, in elements.
template <class In, bool kRounded>
__device__ void mix_rows_of(const TileMix& t, DType type, const void* memory, int64_t first, int64_t pitch, int64_t end) {
  if constexpr (std::is_void_v<In>) {
    mix_rows(t, AnyElements{memory, type, first, pitch});
  } else {
    const auto top = static_cast<int32_t>(t.starts[0].x), bottom = static_cast<int32_t>(t.starts[t.quads - 1].w);
    const auto* const begin = static_cast<const In*>(memory);
    const auto* const row = begin + first;
    // The elements that are read: for bytes whole words, and if rows may start anywhere, all words that they overlap.
    const bool aligned = pitch % 4 == 0;
    // Unaligned words are put together from two aligned ones, which may begin before a row and end behind it.
    const int more = sizeof(In) > 1 || aligned ? 0 : 4, columns = sizeof(In) > 1 ? t.columns : (t.columns + 3) / 4 * 4;
    const int64_t lowest = first + min(top, bottom) * pitch - more, highest = first + (max(top, bottom) + t.taps - 1) * pitch + columns + more;
    const auto from = reinterpret_cast<uintptr_t>(begin + lowest), to = reinterpret_cast<uintptr_t>(begin + highest) - 1;
    const int64_t bytes = pitch * static_cast<int64_t>(sizeof(In));
    // All addresses share their upper 32 bits.
    const bool near = from >> 32 == to >> 32;
    const NearRows rows{from >> 32, static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row)), static_cast<uint32_t>(bytes)};
    const auto* const far = reinterpret_cast<const char*>(row);
    if constexpr (sizeof(In) > 1) {
      if (near) mix_rows(t, Elements<In, NearRows>{rows});
      else mix_rows(t, Elements<In, FarRows>{{far, bytes}});
    } else {
      const auto* const bounds = static_cast<const char*>(memory);
      // Words that overlap the ends of the rows must lie inside the sample; otherwise every byte is checked.
      if (!near || lowest < 0 || highest > end) mix_words<kRounded>(t, GuardedWords{{far, bytes}, bounds, bounds + end});
      else if (aligned) mix_words<kRounded>(t, Words<NearRows>{rows});
      else mix_words<kRounded>(t, WordsAnywhere{rows});
    }
  }
}

// Mixes columns into output elements. A thread computes four rows of an element, or of the kGroup elements of a pixel, which share their weights.
// Eight neighboring threads compute the 32 rows of one element: they read the same weight and the floats of one column. `store` takes the pixel, the
// color, their element, and its rows.
template <int kGroup, class Store>
__device__ void mix_columns(const float4* mixed, int left, int taps, int channels, int elements, const float* weights, const int32_t* starts,
                            Store store) {
  const Divisor divisor(channels / kGroup);
  const int step = channels * (kColumnPitch / 4);
#pragma unroll 1
  for (int group = static_cast<int>(threadIdx.x) / 8; group < elements / kGroup; group += kThreads / 8) {
    const int x = divisor.quotient(group), e = group * kGroup;
    // The first tap of output x, relative to the first column of the tile, `left`.
    const float4* column = mixed + ((starts[x] - left - x) * channels + e) * (kColumnPitch / 4);
    const float* weight = weights + x * taps;
    float4 sum[kGroup] = {};
#pragma unroll(kGroup == 1 ? 4 : 2)
    for (int k = 0; k < taps; ++k) {
      const float w = weight[k];
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        const float4 v = column[g * (kColumnPitch / 4)];
        sum[g].x += w * v.x;
        sum[g].y += w * v.y;
        sum[g].z += w * v.z;
        sum[g].w += w * v.w;
      }
      column += step;
    }
#pragma unroll
    for (int g = 0; g < kGroup; ++g) store(x, e + g - x * channels, e + g, sum[g]);
  }
}

// Writes the rows of a tile from shared memory, where each has the same offset within a word as in the output: whole words, and single bytes at the
// ends.
__device__ inline void copy_tile(const char* result, int result_pitch, char* out, int64_t out_pitch, int rows, int row_bytes) {
  constexpr int64_t kShortRows = INT32_MAX / kTileRows;  // below this, distances within a tile are 32-bit numbers
  if ((static_cast<unsigned int>(reinterpret_cast<uintptr_t>(out)) | static_cast<unsigned int>(out_pitch) | static_cast<unsigned int>(row_bytes)) %
              4 ==
          0 &&
      out_pitch < kShortRows) {
    // Everything is a whole number of words.
    const int words = row_bytes / 4, distance = static_cast<int>(out_pitch);
    const Divisor divisor(words);
#pragma unroll 2
    for (int item = static_cast<int>(threadIdx.x); item < rows * words; item += kThreads) {
      const int y = divisor.quotient(item), at = 4 * (item - y * words);
      *reinterpret_cast<unsigned int*>(out + (y * distance + at)) = *reinterpret_cast<const unsigned int*>(result + (y * result_pitch + at));
    }
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  char* to = out + warp * out_pitch;
  const char* from = result + warp * result_pitch;
#pragma unroll 1
  for (int y = warp; y < rows; y += kThreads / 32, to += kThreads / 32 * out_pitch, from += kThreads / 32 * result_pitch) {
    // Whole words are written only inside the row: their neighbors belong to other tiles, whose blocks may be writing them now.
    const int begin = static_cast<int>(reinterpret_cast<uintptr_t>(to) % 4), end = begin + row_bytes, first = begin > 0 ? 4 : 0, last = end / 4 * 4;
    char* const words = to - begin;
#pragma unroll 1
    for (int at = first + 4 * lane; at < last; at += 128)
      *reinterpret_cast<unsigned int*>(words + at) = *reinterpret_cast<const unsigned int*>(from + at);
    // The bytes before the first whole word and behind the last one.
    if (begin == 0 && end == last) continue;
    if (lane >= begin && lane < min(first, end)) words[lane] = from[lane];
    if (last >= first && lane < end - last) words[last + lane] = from[last + lane];
  }
}

// Mixes columns, normalizes the elements and writes them as Bits: lines of a color each, or of pixels, which are collected in shared memory like the
// rows of tile_kernel. `column` is the first one for the thread's group of rows; y and x are the first row and column of the tile.
template <class Bits>
__device__ void write_normalized(const Normalization& n, const float4* column, int left, int taps, int channels, int width, const float* weights,
                                 const int32_t* starts, char* result, int result_pitch, void* out, DType type, int64_t plane, int y, int x,
                                 int rows) {
  constexpr int kItem = sizeof(Bits);
  const int quad = static_cast<int>(threadIdx.x) % 8, lines = n.pixel == 1 ? channels : 1, line_pitch = result_pitch / lines;
  char* const to = static_cast<char*>(out) + (plane * n.plane + y * n.row + int64_t{x} * n.pixel) * kItem;
  // The addresses of lines are needed modulo 4.
  const auto low = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to)), row = static_cast<uint32_t>(n.row) * kItem,
             color = static_cast<uint32_t>(n.color) * kItem;
  const Channel first = n.channel(plane, 0), second = n.channel(plane, channels > 1 ? 1 : 0), third = n.channel(plane, channels > 2 ? 2 : 0);
  const auto store = [&](int pixel, int c, int element, const float4& sum) {
    const Channel& channel = c == 0 ? first : c == 1 ? second : c == 2 ? third : n.channels[c];
    const int line = lines > 1 ? c : 0, place = lines > 1 ? pixel : element;
    const float values[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int r = 4 * quad + j;
      // The same offset within a word as in the output, so copy_tile() can copy words.
      const int offset = kItem == 4 ? 0 : static_cast<int>((low + line * color + r * row) % 4);
      *reinterpret_cast<Bits*>(result + r * result_pitch + line * line_pitch + offset + place * kItem) =
          bits_as<Bits>(channel(static_cast<float>(saturate<uint8_t>(values[j]))), type);
    }
  };
  if (4 * quad < rows && channels == 3) mix_columns<3>(column, left, taps, 3, 3 * width, weights, starts, store);
  else if (4 * quad < rows) mix_columns<1>(column, left, taps, channels, channels * width, weights, starts, store);
  __syncthreads();
  for (int line = 0; line < lines; ++line)
    copy_tile(result + line * line_pitch, result_pitch, to + line * n.color * kItem, n.row * kItem, rows,
              (lines > 1 ? width : width * channels) * kItem);
}

// In is the element type, or void for any. kRounded: results are rounded to uint8, which is the output unless Row is normalized. A block keeps its
// weights while the next tile uses the same ones: those of the columns down a plane and across planes, and all of them if `alike`, i.e. all samples have
// the same geometry.
template <class In, bool kRounded, class Row = TiledSample>
__global__ void __launch_bounds__(kThreads, 4)
    tile_kernel(const __grid_constant__ TableRows<Row> samples, int64_t count, bool alike, DType in, DType out) {
  extern __shared__ float4 memory[];
  __shared__ float knots[2][kMaxKnots];
  char* const base = reinterpret_cast<char*>(memory);
  // The layout of TiledSample::cut(): starts and weights of the rows, then of the columns, the mixed columns, the result.
  auto* const row_starts = reinterpret_cast<int32_t*>(base);
  auto* const row_weights = reinterpret_cast<float*>(base) + kTileRows;
  const int thread = static_cast<int>(threadIdx.x), quad = thread % 8;
  // The tile whose weights are in shared memory.
  int known_down = -1, known_across = -1;
#pragma unroll 1
  for (int64_t i = blockIdx.y; i < count; i += gridDim.y) {
    const Row& s = samples[i];
    const int channels = s.channels, row_taps = inner_taps(s.vertical), column_taps = inner_taps(s.horizontal), tiles = s.tiles,
              tiles_across = s.across;
    auto* const column_starts = reinterpret_cast<int32_t*>(base + s.column_starts);
    auto* const column_weights = reinterpret_cast<float*>(base + s.column_weights);
    auto* const mixed = reinterpret_cast<float4*>(base + s.columns);
    char* const result = base + s.result;
    if (!alike) known_down = known_across = -1;
#pragma unroll 1
    for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
      const int down = tile / tiles_across, across = tile - down * tiles_across;
      const int y = down * kTileRows, x = across * s.tile_width, rows = min(static_cast<int>(s.vertical.out) - y, kTileRows);
      const int width = min(static_cast<int>(s.horizontal.out) - x, s.tile_width), quads = (rows + 3) / 4;
      if (down != known_down || across != known_across) {
        const bool new_rows = down != known_down, new_columns = across != known_across;
        known_down = down;
        known_across = across;
        if (new_rows) write_knots(s.vertical.filter, thread, knots[0]);
        if (new_columns) write_knots(s.horizontal.filter, thread - kThreads / 2, knots[1]);
        __syncthreads();
        // One half of the block computes the weights of the rows, the other half those of the columns.
        const bool of_rows = thread < kThreads / 2;
        if (of_rows ? new_rows : new_columns)
          write_weights(of_rows ? s.vertical : s.horizontal, of_rows ? y : x, of_rows ? 4 * quads : width, thread % (kThreads / 2),
                        knots[of_rows ? 0 : 1], of_rows ? row_starts : column_starts, of_rows ? row_weights : column_weights,
                        4 * (of_rows ? row_taps : column_taps), of_rows ? 1 : column_taps, of_rows ? 4 : 1);
        __syncthreads();
      }
      // The source columns that the tile needs; a mirrored axis has its first output at the right end.
      const int left = min(column_starts[0], column_starts[width - 1]), right = max(column_starts[0], column_starts[width - 1]) + column_taps;
#pragma unroll 1
      for (int64_t plane = blockIdx.z; plane < s.planes; plane += gridDim.z) {
        int64_t first = plane * s.in_plane + int64_t{left} * channels;
        int lead = 0;  // extra columns that align words of bytes
        if (std::is_same_v<In, uint8_t> && s.in_pitch % 4 == 0)
          lead = static_cast<int>((static_cast<uint32_t>(reinterpret_cast<uintptr_t>(s.in)) + static_cast<uint32_t>(first)) % 4);
        first -= lead;
        const TileMix mix{(right - left) * channels + lead,           row_taps, quads, reinterpret_cast<const float4*>(row_weights),
                          reinterpret_cast<const uint4*>(row_starts), mixed};
        // First pass: source rows to `mixed`. The barriers separate the passes, because each reads what other threads wrote.
        mix_rows_of<In, kRounded>(mix, in, s.in, first, s.in_pitch, s.planes * s.in_plane);
        __syncthreads();
        const int elements = width * channels, result_pitch = s.result_pitch;
        const int64_t out_pitch = s.out_pitch, out_first = plane * s.out_plane + y * out_pitch + int64_t{x} * channels;
        const float4* columns = mixed + lead * (kColumnPitch / 4) + quad;  // of source column `left`
        // Second pass: mixes columns to elements of the output, which meet in shared memory so that whole words are written.
        const auto through_memory = [&](auto tag) {
          using Out = typename decltype(tag)::type;
          constexpr int kItem = sizeof(Out);
          Out* const to = static_cast<Out*>(s.out) + out_first;
          int at[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const uint32_t address =
                static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to)) + (4 * quad + j) * static_cast<uint32_t>(out_pitch) * kItem;
            // The same offset within a word as in the output, so copy_tile() can copy words.
            at[j] = (4 * quad + j) * result_pitch + static_cast<int>(address % 4);
          }
          const auto store = [&](int, int, int e, const float4& sum) {
            char* const place = result + e * kItem;
            *reinterpret_cast<Out*>(place + at[0]) = saturate<Out>(sum.x);
            *reinterpret_cast<Out*>(place + at[1]) = saturate<Out>(sum.y);
            *reinterpret_cast<Out*>(place + at[2]) = saturate<Out>(sum.z);
            *reinterpret_cast<Out*>(place + at[3]) = saturate<Out>(sum.w);
          };
          if (quad < quads && channels == 3) mix_columns<3>(columns, left, column_taps, 3, elements, column_weights, column_starts, store);
          else if (quad < quads) mix_columns<1>(columns, left, column_taps, channels, elements, column_weights, column_starts, store);
          __syncthreads();
          copy_tile(result, result_pitch, reinterpret_cast<char*>(to), out_pitch * kItem, rows, elements * kItem);
        };
        if constexpr (is_normalized<Row>) {
          const auto write = [&](auto tag) {
            write_normalized<typename decltype(tag)::type>(s.normalization, columns, left, column_taps, channels, width, column_weights,
                                                           column_starts, result, result_pitch, s.out, out, plane, y, x, rows);
          };
          if (out == DType::float32) write(TypeTag<uint32_t>{});
          else write(TypeTag<uint16_t>{});
        } else if constexpr (kRounded) {
          through_memory(TypeTag<uint8_t>{});
        } else if (out == DType::float32) {
          through_memory(TypeTag<float>{});
        } else if (out == DType::float16) {
          through_memory(TypeTag<Half>{});
        } else {  // the rare types, element by element
          if (quad < quads)
            mix_columns<1>(columns, left, column_taps, channels, elements, column_weights, column_starts, [&](int, int, int e, const float4& sum) {
#pragma unroll 1
              for (int j = 0; j < 4; ++j)
                if (4 * quad + j < rows)
                  store_element(j == 0 ? sum.x : j == 1 ? sum.y : j == 2 ? sum.z : sum.w, s.out, out, out_first + (4 * quad + j) * out_pitch + e);
            });
          __syncthreads();
        }
      }
    }
  }
}
#endif

}  // namespace ndd::resample_gpu
