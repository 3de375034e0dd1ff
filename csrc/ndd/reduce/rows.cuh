// SPDX-License-Identifier: Apache-2.0
// Reductions of samples that consist of rows of `count` elements for each of up to four channels, side by side: whole samples, images with channels
// last or first, and frames of either. A block folds a chunk of a row in 16-byte accesses. A thread advances by 192 vectors, and 192 is a multiple of
// 1, 2, 3 and 4: the elements of its vectors always belong to the same channels, so it can add them up in registers without looking at the position.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/elementwise/vectors.cuh"
#include "ndd/reduce/reduce.cuh"

namespace ndd::reduce {

constexpr int kRowThreads = 192, kMaxChannels = 4;

// Sets rows and channels; false if the shape does not qualify.
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

// Whether the samples are long enough to keep blocks busy.
inline bool in_rows(std::vector<GpuSample>& samples) {
  constexpr int64_t kLeast = 4 * kRowThreads;
  int64_t elements = 0, rows = 0;
  for (GpuSample& sample : samples) {
    if (!find_rows(sample)) return false;
    elements += sample.shape.outputs * sample.shape.count;
    rows += sample.rows;
  }
  return elements >= kLeast * rows;
}

// Combines the totals of a thread's positions, which belong to the channels in turn, into one total per channel.
template <int channels, class T, class Fold, int width>
__device__ __forceinline__ void fold_positions(const Fold& fold, const typename Fold::template Local<T> (&local)[width], int first,
                                               typename Fold::Total* to) {
#pragma unroll
  for (int c = 0; c < channels; ++c) {
    auto total = fold.template total<T>(c < width ? local[c % width] : fold.template start<T>());
#pragma unroll
    for (int k = c + channels; k < width; k += channels) total = fold.merge(total, fold.template total<T>(local[k]));
    to[(first + c) % channels] = total;
  }
}

// A thread's totals for a chunk of a row, one per channel. In the first chunk, some threads also take the unaligned elements at the ends of the row.
template <class T, class Fold>
__device__ __forceinline__ void fold_row(const Fold& fold, const GpuSample& sample, int64_t row, int64_t part, int64_t chunk, const double* centers,
                                         typename Fold::Total* totals) {
  // Centered folds keep a double per position, and 16 of them would take too many registers.
  constexpr int kWidth = Fold::kCentered && sizeof(T) == 1 ? 8 : 16 / sizeof(T);
  using Part = AlignedVector<T, kWidth>;
  const int channels = static_cast<int>(sample.channels), thread = static_cast<int>(threadIdx.x);
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
  typename Fold::template Local<T> local[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) local[k] = fold.template start<T>();
  const auto take = [&](const Part& part) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) fold.template take<T>(local[k], part.element[k], center[k]);
  };
  const int64_t end = min(vectors, (part + 1) * chunk);
  int64_t v = part * chunk + thread;
#pragma unroll 1
  for (; v < end; v += 2 * kRowThreads) {  // two loads in flight at a time
    const bool both = v + kRowThreads < end;
    const Part first_part = Part::load(vector + v), second_part = Part::load(vector + (both ? v + kRowThreads : v));
    take(first_part);
    if (both) take(second_part);
  }
  if (channels == 1) fold_positions<1, T>(fold, local, first, totals);
  else if (channels == 2) fold_positions<2, T>(fold, local, first, totals);
  else if (channels == 3) fold_positions<3, T>(fold, local, first, totals);
  else fold_positions<4, T>(fold, local, first, totals);
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

template <class Fold>
__global__ void __launch_bounds__(kRowThreads, 3)
    fold_rows(const GpuSample* samples, int64_t count, Fold fold, int64_t chunk, GpuTypes types, typename Fold::Total* partials) {
  __shared__ typename Fold::Total shared[kRowThreads * kMaxChannels];
  __shared__ double centers[kMaxChannels];
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const GpuSample& sample = samples[k];
    const int channels = static_cast<int>(sample.channels);
    for (int64_t unit = blockIdx.x; unit < sample.rows * sample.chunks; unit += gridDim.x) {
      const int64_t row = unit % sample.rows, part = unit / sample.rows;
      if (Fold::kCentered) {
        if (thread < channels) centers[thread] = center_of(sample, types, thread + channels * row);
        __syncthreads();
      }
      for_dtype(types.in,
                [&](auto tag) { fold_row<typename decltype(tag)::type>(fold, sample, row, part, chunk, centers, shared + thread * channels); });
      __syncthreads();
      // 192 = 64 * 3 threads: halving ends with three totals per channel, merged below.
      for (int half = kRowThreads / 2 * channels; half >= 3 * channels; half /= 2) {
        for (int n = thread; n < half; n += kRowThreads) shared[n] = fold.merge(shared[n], shared[n + half]);
        __syncthreads();
      }
      if (thread < channels) {
        const auto total = fold.merge(fold.merge(shared[thread], shared[thread + channels]), shared[thread + 2 * channels]);
        const int64_t o = thread + channels * row;
        if (partials) partials[sample.first_partial + part * sample.shape.outputs + o] = total;
        else fold.store(sample, total, types, o);
      }
      __syncthreads();
    }
  }
}

template <class Fold>
void launch_rows(const char* op, std::vector<GpuSample> samples, const Fold& fold, const GpuTypes& types) {
  const int64_t width = Fold::kCentered && item_bytes(types.in) == 1 ? 8 : 16 / item_bytes(types.in), step = 2 * kRowThreads;
  int64_t vectors = 0, rows = 0;
  for (const GpuSample& sample : samples) {
    vectors += (sample.shape.outputs * sample.shape.count + width - 1) / width;
    rows = std::max(rows, sample.rows);
  }
  // Some 4000 blocks (6 per multiprocessor of 132, five times over), each with at least 8 vectors per thread.
  const int64_t wanted = std::max<int64_t>(4 * step, (vectors / 4000 + step - 1) / step * step),
                chunk = std::min<int64_t>(wanted, kRowThreads * kMaxTaken);
  int64_t partials = 0, max_chunks = 1, outputs = 0;
  for (GpuSample& sample : samples) {
    const int64_t length = (sample.shape.count * sample.channels + width - 1) / width;
    sample.first_partial = partials;
    sample.chunks = std::max<int64_t>(1, (length + chunk - 1) / chunk);
    partials += sample.shape.outputs * sample.chunks;
    max_chunks = std::max(max_chunks, sample.chunks);
    outputs = std::max(outputs, sample.shape.outputs);
  }
  const CudaTable<GpuSample> table(samples);
  const CudaBuffer buffer(max_chunks > 1 ? partials * static_cast<int64_t>(sizeof(typename Fold::Total)) : 0);
  auto* totals = max_chunks > 1 ? static_cast<typename Fold::Total*>(buffer.data()) : nullptr;
  const auto count = static_cast<int64_t>(samples.size());
  const cudaStream_t stream = current_cuda_stream();
  fold_rows<Fold><<<batch_grid(rows * max_chunks, 1, count), kRowThreads, 0, stream>>>(table.data(), count, fold, chunk, types, totals);
  if (totals) merge_kernel<Fold><<<batch_grid(outputs, kThreads, count), kThreads, 0, stream>>>(table.data(), count, fold, types, totals);
  check_launch(op);
}

}  // namespace ndd::reduce
