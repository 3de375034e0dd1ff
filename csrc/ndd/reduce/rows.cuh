// SPDX-License-Identifier: Apache-2.0
// Reductions of samples that consist of rows of `count` elements for each of up to four channels, side by side: whole samples, images with channels
// last or first, and frames of either. A team folds a row, or a chunk of it, in 16-byte accesses: a warp takes short rows, a block of 192 threads long
// ones. A thread advances by a number of vectors that is a multiple of the channels, so the elements of its vectors always belong to the same channels
// and it can add them up in registers without looking at the position.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/elementwise/vectors.cuh"
#include "ndd/reduce/reduce.cuh"

namespace ndd::reduce {

constexpr int kRowThreads = 192, kMaxChannels = 4;
constexpr int kShortVectors = 256;  // a warp reads rows of up to 4 KB in two turns; a block would keep half of its threads waiting for the others
// Loads of a thread in flight together. A multiprocessor of an H100 needs some 20 KB in flight to read at full bandwidth (computed); four of 16 bytes
// in 576 threads are 36 KB, of which a chunk's beginning and end leave half. A fourth block would spill registers.
constexpr int kRowLoads = 4;
constexpr int kRowBlocks = 3;  // that run concurrently on a multiprocessor

// Sets rows and channels; false if the shape does not qualify.
// Three layouts qualify: [rows][count] for planes and whole samples, [count][channels], and frames of the latter, [rows][count][channels].
inline bool find_rows(GpuSample& sample) {
  const Reduction& shape = sample.shape;
  sample.rows = 1;
  sample.channels = 1;
  // Every element is an output of its own, or none contributes: rows without channels.
  if (shape.count == 0 || shape.reduced == 0) {
    sample.rows = shape.outputs;
    return true;
  }
  if (shape.reduced > 1) return false;
  int d = 0;
  if (shape.kept > 0 && shape.kept_stride[0] == 1) sample.channels = shape.kept_extent[d++];
  if (d < shape.kept) sample.rows = shape.kept_extent[d++];
  return d == shape.kept && sample.channels <= kMaxChannels;
}

// Whether the samples are long enough to keep warps busy.
inline bool in_rows(std::vector<GpuSample>& samples) {
  constexpr int64_t kLeast = 256;
  int64_t elements = 0, rows = 0;
  for (GpuSample& sample : samples) {
    if (!find_rows(sample)) return false;
    elements += sample.shape.outputs * sample.shape.count;
    rows += sample.rows;
  }
  return elements >= kLeast * rows;
}

// Elements of a thread's vectors at `kWidth` positions, whose channels do not change.
template <class T, class Fold>
struct Positions {
  // Centered folds keep a double per position, and 16 of them would take too many registers.
  static constexpr int kWidth = Fold::kCentered && sizeof(T) == 1 ? 8 : 16 / sizeof(T), kKept = kWidth;
  using Part = AlignedVector<T, kWidth>;
  typename Fold::template Local<T> local[kKept];

  __device__ __forceinline__ void start(const Fold& fold) {
#pragma unroll
    for (int k = 0; k < kKept; ++k) local[k] = fold.template start<T>();
  }
  __device__ __forceinline__ void take(const Fold& fold, const Part& part, const double (&center)[kWidth]) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) fold.template take<T>(local[k], part.element[k], center[k]);
  }
  __device__ __forceinline__ void end_of_turn() {}  // after kRowLoads vectors
  __device__ __forceinline__ void finish() {}
};

// Sums of bytes: two to a register, in 1.2 instructions a byte instead of 2. Positions 12 apart belong to the same channel, for 1 to 4 channels, so the
// fourth word of a vector is added to the first.
template <class Fold>
struct PackedPositions {
  static constexpr int kWidth = 16, kKept = 12;
  using Part = AlignedVector<uint8_t, kWidth>;
  static constexpr uint32_t kMaxVectors = 128;  // two numbers of up to 255 each: 128 * 2 * 255 < 2^16
  typename Fold::template Local<uint8_t> local[kKept];
  uint32_t even[3], odd[3], vectors;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int w = 0; w < 3; ++w) even[w] = odd[w] = 0;
    vectors = 0;
  }
  __device__ __forceinline__ void start(const Fold&) {
#pragma unroll
    for (int k = 0; k < kKept; ++k) local[k] = 0;
    clear();
  }
  __device__ __forceinline__ void take(const Fold&, const Part& part, const double (&)[kWidth]) {
    uint32_t word[4];
    memcpy(word, &part, sizeof(word));
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      even[w % 3] += word[w] & 0x00FF00FFu;
      odd[w % 3] += word[w] >> 8 & 0x00FF00FFu;
    }
  }
  __device__ __forceinline__ void end_of_turn() {
    vectors += kRowLoads;
    if (vectors == kMaxVectors) finish();
  }
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int w = 0; w < 3; ++w) {
      local[4 * w] += even[w] & 0xFFFF;
      local[4 * w + 1] += odd[w] & 0xFFFF;
      local[4 * w + 2] += even[w] >> 16;
      local[4 * w + 3] += odd[w] >> 16;
    }
    clear();
  }
};

template <class T, class Fold>
using PositionsOf = std::conditional_t<std::is_same_v<T, uint8_t> && Fold::kSumsBytes, PackedPositions<Fold>, Positions<T, Fold>>;

// The threads that fold a row together: a warp or a block.
struct Team {
  int size, member, own;  // `own`: the number of the team in the block

  __device__ void wait() const {
    if (size == kRowThreads) __syncthreads();
    else __syncwarp();
  }
};

// A thread's totals for a chunk of a row, one per channel. In the first chunk, some threads also take the unaligned elements at the ends of the row.
template <class T, class Fold>
__device__ __forceinline__ void fold_row(const Fold& fold, const GpuSample& sample, const Team& team, int64_t row, int64_t part, int64_t chunk,
                                         const double* centers, typename Fold::Total* totals) {
  using Kept = PositionsOf<T, Fold>;
  using Part = typename Kept::Part;
  constexpr int kWidth = Kept::kWidth;
  const int channels = static_cast<int>(sample.channels), thread = team.member;
  // 192 is a multiple of 1, 2, 3 and 4; two lanes of a warp are idle if there are three channels.
  const int threads = team.size == kRowThreads ? kRowThreads : channels == 3 ? 30 : 32;
  const int64_t length = sample.shape.count * channels;
  const T* const from = static_cast<const T*>(sample.in) + row * length;
  const int64_t misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(from) % sizeof(Part) / sizeof(T));
  const int64_t before = misaligned == 0 ? 0 : kWidth - misaligned, head = min(before, length), vectors = (length - head) / kWidth;
  const auto* const vector = reinterpret_cast<const Part*>(from + head);
  const int first = (static_cast<int>(head) + thread * kWidth) % channels;  // channel of position 0
  double center[kWidth] = {};
  if (Fold::kCentered) {
    int c = first;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      center[k] = centers[c];
      c = c + 1 == channels ? 0 : c + 1;
    }
  }
  Kept kept;
  kept.start(fold);
  const Part* const own = vector + part * chunk;  // of the chunk, whose vectors are fewer than 2^31
  const int end = static_cast<int>(max(int64_t{0}, min(vectors - part * chunk, chunk)));
#pragma unroll 1
  for (int v = thread < threads ? thread : end; v < end; v += kRowLoads * threads) {
    Part parts[kRowLoads];
#pragma unroll
    // All loads first, so they are under way together; past the end the last vector is loaded once more and not taken.
    for (int k = 0; k < kRowLoads; ++k) parts[k] = Part::load(own + min(v + k * threads, end - 1));
#pragma unroll
    for (int k = 0; k < kRowLoads; ++k)
      if (v + k * threads < end) kept.take(fold, parts[k], center);
    kept.end_of_turn();
  }
  kept.finish();
  // Combines the totals of the positions, which belong to the channels in turn, into one total per channel.
  for (int c = 0; c < channels; ++c) totals[c] = fold.template total<T>(fold.template start<T>());
  int c = first;
#pragma unroll
  for (int k = 0; k < Kept::kKept; ++k) {
    totals[c] = fold.merge(totals[c], fold.template total<T>(kept.local[k]));
    c = c + 1 == channels ? 0 : c + 1;
  }
  // From here on the elements before and after the vectors, at most 15 of each: one thread per channel is enough.
  if (part > 0 || thread >= channels) return;
  auto single = fold.template start<T>();
  const int behind = static_cast<int>((head + vectors * kWidth) % channels), singles = static_cast<int>(length - vectors * kWidth);
#pragma unroll 1
  for (int n = 0; n < singles; ++n) {
    const bool in_front = n < head;
    const int channel = (in_front ? n : n - static_cast<int>(head) + behind) % channels;
    if (channel == thread) fold.template take<T>(single, from[in_front ? n : n + vectors * kWidth], Fold::kCentered ? centers[thread] : 0.0);
  }
  totals[thread] = fold.merge(totals[thread], fold.template total<T>(single));
}

// `finished` counts, for each row, the teams that have stored the totals of their chunks: the last one merges them, which saves a second launch.
template <class Fold>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks)
    fold_rows(const __grid_constant__ TableRows<GpuSample> table, int64_t count, Fold fold, int size, int64_t chunk, GpuTypes types,
              typename Fold::Total* partials, uint32_t* finished) {
  __shared__ typename Fold::Total shared[kRowThreads * kMaxChannels];
  __shared__ double all_centers[kRowThreads / 32 * kMaxChannels];
  __shared__ bool merges;
  const Team team{size, static_cast<int>(threadIdx.x) % size, static_cast<int>(threadIdx.x) / size};
  const int thread = team.member, teams = kRowThreads / size;
  double* const centers = all_centers + team.own * kMaxChannels;
  const GpuSample* const samples = table.data();
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const GpuSample& sample = samples[k];
    const int channels = static_cast<int>(sample.channels);
    typename Fold::Total* const totals = shared + team.own * size * channels;
    for (int64_t unit = int64_t{blockIdx.x} * teams + team.own; unit < sample.rows * sample.chunks; unit += int64_t{gridDim.x} * teams) {
      const int64_t part = sample.chunks == 1 ? 0 : unit / sample.rows, row = unit - part * sample.rows, o = thread + channels * row;
      if (Fold::kCentered) {
        if (thread < channels) centers[thread] = center_of(sample, types, o);
        team.wait();
      }
      for_dtype(types.in,
                [&](auto tag) { fold_row<typename decltype(tag)::type>(fold, sample, team, row, part, chunk, centers, totals + thread * channels); });
      team.wait();
      // Halving 192 = 64 * 3 threads ends with three totals per channel, halving 32 with one.
      const int rest = size == kRowThreads ? 3 : 1;
      // A tree in a fixed order: the same bits in every run.
      for (int half = size / 2 * channels; half >= rest * channels; half /= 2) {
        for (int n = thread; n < half; n += size) totals[n] = fold.merge(totals[n], totals[n + half]);
        team.wait();
      }
      auto total = fold.identity(types.in);
      if (thread < channels) {
        total = totals[thread];
        for (int n = 1; n < rest; ++n) total = fold.merge(total, totals[thread + n * channels]);
      }
      bool stores = true;
      if (partials) {  // long rows only: the team is the block
        auto* const chunks = partials + sample.first_partial + o;  // the totals of this output, one for each chunk
        if (thread < channels) {
          chunks[part * sample.shape.outputs] = total;
          __threadfence();
        }
        __syncthreads();
        if (thread == 0) merges = atomicAdd(finished + sample.first_row + row, 1u) + 1 == static_cast<uint32_t>(sample.chunks);
        __syncthreads();
        stores = merges;
        if (stores && thread < channels) {
          __threadfence();
          total = fold.identity(types.in);
          for (int64_t c = 0; c < sample.chunks; ++c) total = fold.merge(total, chunks[c * sample.shape.outputs]);
        }
      }
      if (stores && thread < channels) fold.store(sample, total, types, o);
      team.wait();
    }
  }
}

template <class Fold>
void launch_rows(const char* op, std::vector<GpuSample> samples, const Fold& fold, const GpuTypes& types) {
  const int64_t width = Fold::kCentered && item_bytes(types.in) == 1 ? 8 : 16 / item_bytes(types.in), step = kRowLoads * kRowThreads;
  int64_t vectors = 0, rows = 0, longest = 0;
  for (const GpuSample& sample : samples) {
    vectors += (sample.shape.outputs * sample.shape.count + width - 1) / width;
    rows = std::max(rows, sample.rows);
    longest = std::max(longest, (sample.shape.count * sample.channels + width - 1) / width);
  }
  // By the longest row, because the slowest team ends the kernel.
  const int size = longest <= kShortVectors ? 32 : kRowThreads;
  // Two waves of blocks on an H100, each thread with at least eight vectors. More would spend their time on starting and on merging.
  const int64_t wanted = std::max<int64_t>(2 * step, (vectors / (2 * kRowBlocks * kChunkMultiprocessors) + step - 1) / step * step);
  const int64_t chunk = size == 32 ? kShortVectors : std::min<int64_t>(wanted, kRowThreads * kMaxTaken);
  int64_t partials = 0, max_chunks = 1, all_rows = 0;
  for (GpuSample& sample : samples) {
    const int64_t length = (sample.shape.count * sample.channels + width - 1) / width;
    sample.first_partial = partials;
    sample.first_row = all_rows;
    sample.chunks = std::max<int64_t>(1, (length + chunk - 1) / chunk);
    partials += sample.shape.outputs * sample.chunks;
    all_rows += sample.rows;
    max_chunks = std::max(max_chunks, sample.chunks);
  }
  const KernelTable<GpuSample> table(samples);
  using Total = typename Fold::Total;
  const int64_t total_bytes = max_chunks > 1 ? partials * static_cast<int64_t>(sizeof(Total)) : 0, counter_bytes = max_chunks > 1 ? all_rows * 4 : 0;
  const CudaBuffer buffer(total_bytes + counter_bytes);
  auto* const totals = max_chunks > 1 ? static_cast<Total*>(buffer.data()) : nullptr;
  auto* const finished = max_chunks > 1 ? reinterpret_cast<uint32_t*>(static_cast<char*>(buffer.data()) + total_bytes) : nullptr;
  const auto count = static_cast<int64_t>(samples.size());
  const cudaStream_t stream = current_cuda_stream();
  // The counters begin at 0; totals are written before they are read.
  if (finished) check_cuda(cudaMemsetAsync(finished, 0, counter_bytes, stream), op);
  // Warps take several rows each, in a single wave.
  const int64_t most_blocks = size == 32 ? std::max<int64_t>(1, kRowBlocks * multiprocessors() / count) : 1 << 16;
  const dim3 grid = batch_grid(rows * max_chunks, kRowThreads / size, count, most_blocks);
  fold_rows<Fold><<<grid, kRowThreads, 0, stream>>>(table.rows(), count, fold, size, chunk, types, totals, finished);
  check_launch(op);
}

}  // namespace ndd::reduce
