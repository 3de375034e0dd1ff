// SPDX-License-Identifier: Apache-2.0
// Resampling of two axes in one launch: a block makes a tile of 32 rows of the output. It mixes source rows straight from memory into floats in shared
// memory, these into output elements, which it gathers in shared memory to write whole words. Two passes through memory would move 8 bytes more for
// each float between them: with 640x480 to 224x224 in uint8 3.4 MB instead of 1.07 MB an image.
//
// Between the passes four rows of a column lie side by side: one access of 16 bytes serves four multiply-adds. The columns are 36 floats apart, so
// that eight lanes that access 16 bytes of neighbouring columns, or of one column, touch every bank of shared memory once.
#pragma once
#include "ndd/resample_cuda.cuh"
#include "ndd/saturate.h"

namespace ndd {
namespace resample_gpu {

constexpr int kTileRows = 32, kColumnPitch = 36;

// A sample seen as [planes][height][width][channels], and the width of its tiles.
struct TiledSample {
  const void* in;
  void* out;
  int64_t planes;
  int32_t channels, tile_width;
  Axis vertical, horizontal;

  NDD_HD int64_t tiles_down() const { return (vertical.out + kTileRows - 1) / kTileRows; }
  NDD_HD int64_t tiles_across() const { return (horizontal.out + tile_width - 1) / tile_width; }
};

// Where the parts of a block's shared memory begin, in bytes, each a multiple of 16.
struct TileMemory {
  int64_t row_weights, column_weights, row_starts, column_starts, columns, result, end;
  int32_t result_pitch;  // bytes; an odd number of words, so that rows that lie 4 apart begin in different banks

  NDD_HD TileMemory(const TiledSample& s, int64_t item_bytes) {
    const auto rounded = [](int64_t bytes) { return (bytes + 15) / 16 * 16; };
    // Source columns of a tile, with 4 for the rounding of coordinates up to 2^22, and 3 elements before and behind them to make words whole.
    const int64_t width = static_cast<int64_t>((s.tile_width - 1) * fabsf(s.horizontal.scale)) + inner_taps(s.horizontal) + 4;
    const int64_t elements = (width < s.horizontal.in ? width : s.horizontal.in) * s.channels + 6;
    row_weights = 0;
    column_weights = row_weights + rounded(int64_t{kTileRows} * inner_taps(s.vertical) * 4);
    row_starts = column_weights + rounded(int64_t{s.tile_width} * inner_taps(s.horizontal) * 4);
    column_starts = row_starts + kTileRows * 4;
    columns = column_starts + rounded(int64_t{s.tile_width} * 4);
    result = columns + elements * kColumnPitch * 4;
    result_pitch = static_cast<int32_t>(((int64_t{s.tile_width} * s.channels * item_bytes + 6) / 4 | 1) * 4);
    end = result + int64_t{kTileRows} * result_pitch;
  }
};

#ifdef __CUDACC__
// Source rows of a tile. Column 0 is element `first` of each row, which may lie in the row before.
struct TileRows {
  const void* plane;
  int64_t pitch, first;  // in elements
  int32_t columns, taps, quads;  // quads: groups of four output rows
  const float4* weights;  // [quad][tap], of four output rows
  const int32_t* starts;
  float4* mixed;
};

// Elements of a row from one on.
template <class In>
struct TypedRow {
  const In* at;
  __device__ TypedRow(const void* plane, DType, int64_t element) : at(static_cast<const In*>(plane) + element) {}
  __device__ float value() const { return static_cast<float>(*at); }
  __device__ void advance(int64_t elements) { at += elements; }
};
// The rare types, at the cost of a switch for each access.
struct AnyRow {
  const void* plane;
  DType type;
  int64_t at;
  __device__ AnyRow(const void* plane_, DType type_, int64_t element) : plane(plane_), type(type_), at(element) {}
  __device__ float value() const { return load_element(plane, type, at); }
  __device__ void advance(int64_t elements) { at += elements; }
};

// Neighbouring threads take neighbouring columns, of four output rows each.
template <class Row>
__device__ void mix_rows(const TileRows& t, DType type) {
  for (int item = static_cast<int>(threadIdx.x); item < t.quads * t.columns; item += kThreads) {
    const int quad = item / t.columns, column = item - quad * t.columns;
    const auto row = [&](int j) { return Row(t.plane, type, t.starts[4 * quad + j] * t.pitch + t.first + column); };
    Row a = row(0), b = row(1), c = row(2), d = row(3);
    const float4* weights = t.weights + quad * t.taps;
    float4 sum{};
#pragma unroll 2
    for (int k = 0; k < t.taps; ++k) {
      const float4 w = weights[k];
      sum.x += w.x * a.value();
      sum.y += w.y * b.value();
      sum.z += w.z * c.value();
      sum.w += w.w * d.value();
      a.advance(t.pitch);
      b.advance(t.pitch);
      c.advance(t.pitch);
      d.advance(t.pitch);
    }
    t.mixed[column * (kColumnPitch / 4) + quad] = sum;
  }
}

// The same for bytes, a word of four columns a thread. A byte becomes a float by its place in one: __byte_perm makes 2^23 + v, from which 2^23 is taken
// (exactly), or, where results are rounded to bytes, 2^15 + v, whose sum begins with -2^15: one instruction less a tap, and off by at most 2^-9 a tap.
// Eight neighbouring threads store the four columns of their words in turned orders, which makes their places those of different banks.
template <bool kRounded, class LoadWord>
__device__ void mix_byte_rows(const TileRows& t, LoadWord load) {
  const int words = (t.columns + 3) / 4;
  for (int item = static_cast<int>(threadIdx.x); item < t.quads * words; item += kThreads) {
    const int quad = item / words, word = item - quad * words, turn = word / 2;
    const auto row = [&](int j) { return static_cast<const uint8_t*>(t.plane) + t.starts[4 * quad + j] * t.pitch + t.first + 4 * word; };
    const uint8_t* rows[4] = {row(0), row(1), row(2), row(3)};
    unsigned int chosen[4];
    float sum[4][4];  // [column][row]
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const unsigned int byte = (e + turn) % 4;
      chosen[e] = kRounded ? 0x7404 | byte << 4 : 0x7440 | byte;
      for (int j = 0; j < 4; ++j) sum[e][j] = kRounded ? -32768.0f : 0.0f;
    }
    const float4* weights = t.weights + quad * t.taps;
#pragma unroll 2
    for (int k = 0; k < t.taps; ++k) {
      const float4 w = weights[k];
      const float weight[4] = {w.x, w.y, w.z, w.w};
      unsigned int four[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        four[j] = load(rows[j]);
        rows[j] += t.pitch;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float value = __uint_as_float(__byte_perm(four[j], kRounded ? 0x47000000 : 0x4B000000, chosen[e]));
          sum[e][j] += weight[j] * (kRounded ? value : value - 8388608.0f);
        }
      }
    }
#pragma unroll
    for (int e = 0; e < 4; ++e)
      t.mixed[(4 * word + (e + turn) % 4) * (kColumnPitch / 4) + quad] = make_float4(sum[e][0], sum[e][1], sum[e][2], sum[e][3]);
  }
}

// Bytes by aligned words, two of them where rows begin at any byte. Where a tile touches the ends of the sample's memory [begin, end), words may hold
// bytes of others, which are not to be read.
template <bool kRounded>
__device__ void mix_byte_rows(const TileRows& t, const uint8_t* begin, const uint8_t* end) {
  const int last = 4 * t.quads - 1;
  const int64_t top = min(t.starts[0], t.starts[last]), bottom = max(t.starts[0], t.starts[last]) + t.taps - 1;
  const bool aligned = t.pitch % 4 == 0;
  const int64_t lowest = top * t.pitch + t.first - (aligned ? 0 : 3), highest = bottom * t.pitch + t.first + (t.columns + 3) / 4 * 4 + (aligned ? 0 : 4);
  const auto* plane = static_cast<const uint8_t*>(t.plane);
  if (lowest < begin - plane || highest > end - plane) {
    mix_byte_rows<kRounded>(t, [=](const uint8_t* from) {
      unsigned int word = 0;
#pragma unroll 1
      for (int b = 0; b < 4; ++b)
        if (from + b >= begin && from + b < end) word |= static_cast<unsigned int>(from[b]) << 8 * b;
      return word;
    });
  } else if (aligned) {
    mix_byte_rows<kRounded>(t, [](const uint8_t* from) { return __ldg(reinterpret_cast<const unsigned int*>(from)); });
  } else {
    mix_byte_rows<kRounded>(t, [](const uint8_t* from) {
      const unsigned int beside = reinterpret_cast<uintptr_t>(from) % 4;
      const auto* words = reinterpret_cast<const unsigned int*>(from - beside);
      return __funnelshift_r(__ldg(words), __ldg(words + 1), 8 * beside);
    });
  }
}

// Mixed columns to output elements: four rows of an element a thread. Eight neighbouring threads have the 32 rows of one element: they read the same
// weight, and the floats of one column.
template <class Store>
__device__ void mix_columns(const float4* mixed, int taps, int channels, int elements, const float* weights, const int32_t* starts, Store store) {
  const unsigned int inverse = channels == 1 ? 0 : 0xFFFFFFFFu / channels + 1;
  for (int e = static_cast<int>(threadIdx.x) / 8; e < elements; e += kThreads / 8) {
    const int x = channels == 1 ? e : static_cast<int>(uint64_t{static_cast<unsigned int>(e)} * inverse >> 32);  // e / channels
    const float4* column = mixed + (starts[x] * channels + e - x * channels) * (kColumnPitch / 4);
    const float* weight = weights + x * taps;
    float4 sum{};
#pragma unroll 4
    for (int k = 0; k < taps; ++k) {
      const float w = weight[k];
      const float4 v = *column;
      column += channels * (kColumnPitch / 4);
      sum.x += w * v.x;
      sum.y += w * v.y;
      sum.z += w * v.z;
      sum.w += w * v.w;
    }
    store(e, sum);
  }
}

// The rows of a tile from shared memory, where each begins as many bytes behind a word as in the output.
__device__ inline void copy_tile(const char* result, int result_pitch, char* out, int64_t out_pitch, int rows, int row_bytes) {
  for (int y = static_cast<int>(threadIdx.x) / 32; y < rows; y += kThreads / 32) {
    char* to = out + y * out_pitch;
    const char* from = result + y * result_pitch;
    const int begin = static_cast<int>(reinterpret_cast<uintptr_t>(to) % 4), end = begin + row_bytes;
    to -= begin;
    for (int at = static_cast<int>(threadIdx.x) % 32 * 4; at < end; at += 128) {
      if (at >= begin && at + 4 <= end) {
        *reinterpret_cast<unsigned int*>(to + at) = *reinterpret_cast<const unsigned int*>(from + at);
      } else {
        for (int b = at; b < at + 4; ++b)
          if (b >= begin && b < end) to[b] = from[b];
      }
    }
  }
}

template <class Row, bool kRounded>
__global__ void __launch_bounds__(kThreads, 4) tile_kernel(const TiledSample* samples, int64_t count, DType in, DType out) {
  constexpr bool kBytes = std::is_same_v<Row, TypedRow<uint8_t>>;
  extern __shared__ float4 memory[];
  __shared__ float knots[2][kMostKnots];
  for (int64_t i = blockIdx.y; i < count; i += gridDim.y) {
    const TiledSample& s = samples[i];
    const Axis vertical = s.vertical, horizontal = s.horizontal;
    const int64_t planes = s.planes, item = item_bytes(out);
    const int channels = s.channels, across = static_cast<int>(s.tiles_across()), tiles = planes > 0 ? across * static_cast<int>(s.tiles_down()) : 0;
    const TileMemory parts(s, item);
    char* const base = reinterpret_cast<char*>(memory);
    auto* const row_weights = reinterpret_cast<float*>(base + parts.row_weights);
    auto* const column_weights = reinterpret_cast<float*>(base + parts.column_weights);
    auto* const row_starts = reinterpret_cast<int32_t*>(base + parts.row_starts);
    auto* const column_starts = reinterpret_cast<int32_t*>(base + parts.column_starts);
    auto* const mixed = reinterpret_cast<float4*>(base + parts.columns);
    char* const result = base + parts.result;
    for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
      const int down = tile / across;
      const int64_t y = int64_t{down} * kTileRows, x = int64_t{tile - down * across} * s.tile_width;
      const int rows = static_cast<int>(min(vertical.out - y, int64_t{kTileRows})), width = static_cast<int>(min(horizontal.out - x, int64_t{s.tile_width}));
      const int row_taps = inner_taps(vertical), column_taps = inner_taps(horizontal), quads = (rows + 3) / 4;
      write_knots(vertical.filter, static_cast<int>(threadIdx.x), knots[0]);
      write_knots(horizontal.filter, static_cast<int>(threadIdx.x) - kThreads / 2, knots[1]);
      __syncthreads();
      write_weights(vertical, y, 4 * quads, knots[0], row_starts, row_weights, [=](int o, int k) { return (o / 4 * row_taps + k) * 4 + o % 4; });
      write_weights(horizontal, x, width, knots[1], column_starts, column_weights, [=](int o, int k) { return o * column_taps + k; });
      __syncthreads();
      const int left = min(column_starts[0], column_starts[width - 1]), right = max(column_starts[0], column_starts[width - 1]) + column_taps;
      for (int64_t plane = blockIdx.z; plane < planes; plane += gridDim.z) {
        const int64_t pitch = horizontal.in * channels;
        TileRows t{s.in, pitch, int64_t{left} * channels, (right - left) * channels, row_taps, quads, reinterpret_cast<const float4*>(row_weights), row_starts, mixed};
        int lead = 0;
        if constexpr (kBytes) {
          const auto* begin = static_cast<const uint8_t*>(s.in);
          t.plane = begin + plane * vertical.in * pitch;
          if (pitch % 4 == 0) lead = static_cast<int>((reinterpret_cast<uintptr_t>(t.plane) + t.first) % 4);
          t.first -= lead;
          t.columns += lead;
          mix_byte_rows<kRounded>(t, begin, begin + planes * vertical.in * pitch);
        } else {
          t.first += plane * vertical.in * pitch;
          mix_rows<Row>(t, in);
        }
        __syncthreads();
        const int elements = width * channels, quad = static_cast<int>(threadIdx.x) % 8;
        const int64_t out_pitch = horizontal.out * channels, first = (plane * vertical.out + y) * out_pitch + x * channels;
        const float4* columns = mixed + (lead - left * channels) * (kColumnPitch / 4) + quad;
        const auto through_memory = [&](auto tag) {
          using Out = typename decltype(tag)::type;
          Out* const to = static_cast<Out*>(s.out) + first;
          Out* at[4];
#pragma unroll
          for (int j = 0; j < 4; ++j)
            at[j] = reinterpret_cast<Out*>(result + (4 * quad + j) * parts.result_pitch + reinterpret_cast<uintptr_t>(to + (4 * quad + j) * out_pitch) % 4);
          if (quad < quads)
            mix_columns(columns, column_taps, channels, elements, column_weights, column_starts, [&](int e, const float4& sum) {
              at[0][e] = saturate<Out>(sum.x);
              at[1][e] = saturate<Out>(sum.y);
              at[2][e] = saturate<Out>(sum.z);
              at[3][e] = saturate<Out>(sum.w);
            });
          __syncthreads();
          copy_tile(result, parts.result_pitch, reinterpret_cast<char*>(to), out_pitch * static_cast<int64_t>(sizeof(Out)), rows, elements * static_cast<int>(sizeof(Out)));
        };
        if (out == DType::uint8) {
          through_memory(TypeTag<uint8_t>{});
        } else if (kRounded) {
          // Only for bytes.
        } else if (out == DType::float32) {
          through_memory(TypeTag<float>{});
        } else if (out == DType::float16) {
          through_memory(TypeTag<Half>{});
        } else {
          // The rare types, element by element.
          if (quad < quads)
            mix_columns(columns, column_taps, channels, elements, column_weights, column_starts, [&](int e, const float4& sum) {
              const float values[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
              for (int j = 0; j < 4; ++j)
                if (4 * quad + j < rows) store_element(values[j], s.out, out, first + (4 * quad + j) * out_pitch + e);
            });
          __syncthreads();
        }
      }
    }
  }
}
#endif

}  // namespace resample_gpu
}  // namespace ndd
