// SPDX-License-Identifier: Apache-2.0
// CUDA side of the reductions. A team of threads folds each output; long outputs are split into chunks, whose totals a second launch merges in a
// fixed order. The kernel supplies a fold (below) and the samples, and calls launch_gpu.
//
// No atomics are used: results depend on the shapes of the batch, not on the scheduling of blocks.
//
// launch_gpu takes the first of three kernels that fits all samples: groups.cuh for up to 16 neighbors of an output, rows.cuh for long rows,
// fold_kernel for everything else. A fold is written once for all of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/elementwise/order_keys.h"
#include "ndd/reduce/reduce.h"

namespace ndd {
namespace reduce {

// The row of a sample in the table that all three kernels read.
struct GpuSample {
  Reduction shape;
  Finisher finisher;
  const void* in;
  void* out;
  const void* center;  // values of type `types.center`, one for all outputs or one per output; or null
  int64_t centers;
  int64_t first_partial, chunks;  // the position of the totals of its chunks
  int64_t rows = 0, channels = 0, first_row = 0;  // set by rows.cuh
};

struct GpuTypes {
  DType in, out, center;
};

// A fold accumulates elements of type T in a Local<T>, at most kMaxTaken of them (so that narrow locals cannot overflow), and converts it to a Total.
// `center` is a value of the output. Totals are merged in a fixed order. kSumsBytes: of bytes it takes nothing but their sum.
// 32768 squares of bytes are 2^15 * 255^2, just below 2^31.
constexpr int64_t kMaxTaken = 32768;

// Integer sums modulo 2^64.
struct GpuWholeSum {
  using Total = uint64_t;
  template <class T>
  using Local = std::conditional_t<sizeof(T) <= 2, int32_t, uint64_t>;
  static constexpr bool kCentered = false, kSumsBytes = true;

  NDD_HD Total identity(DType) const { return 0; }
  template <class T>
  NDD_HD Local<T> start() const {
    return 0;
  }
  template <class T>
  NDD_HD void take(Local<T>& local, T value, double) const {
    if constexpr (!is_floating<T>) local += static_cast<Local<T>>(value);
  }
  template <class T>
  NDD_HD Total total(Local<T> local) const {
    return static_cast<Total>(static_cast<int64_t>(local));
  }
  NDD_HD Total merge(Total a, Total b) const { return a + b; }
  NDD_HD void store(const GpuSample& sample, Total total, const GpuTypes& types, int64_t o) const {
    const bool is_signed = types.in == DType::int8 || types.in == DType::int16 || types.in == DType::int32 || types.in == DType::int64;
    for_dtype(types.out, [&](auto tag) {
      using Out = typename decltype(tag)::type;
      static_cast<Out*>(sample.out)[o] = sample.finisher.whole<Out>(total, is_signed);
    });
  }
};

// Sums in double; bytes are summed in integers, which gives the same result faster.
template <bool squares, bool centered>
struct GpuSum {
  using Total = double;
  template <class T>
  using Local = std::conditional_t<sizeof(T) == 1 && !centered, std::conditional_t<squares, uint32_t, int32_t>, double>;
  static constexpr bool kCentered = centered, kSumsBytes = !centered && !squares;

  NDD_HD Total identity(DType) const { return 0.0; }
  template <class T>
  NDD_HD Local<T> start() const {
    return 0;
  }
  template <class T>
  NDD_HD void take(Local<T>& local, T value, double center) const {
    auto v = widened<std::conditional_t<sizeof(T) == 1 && !centered, int32_t, double>>(value);
    if constexpr (centered) v -= center;
    local += squares ? v * v : v;
  }
  template <class T>
  NDD_HD Total total(Local<T> local) const {
    return static_cast<double>(local);
  }
  NDD_HD Total merge(Total a, Total b) const { return a + b; }
  NDD_HD void store(const GpuSample& sample, Total total, const GpuTypes& types, int64_t o) const {
    for_dtype(types.out, [&](auto tag) {
      using Out = typename decltype(tag)::type;
      static_cast<Out*>(sample.out)[o] = sample.finisher.operator()<Out>(total);
    });
  }
};

// Sums of the distances from an output's first element, and of their squares; the mean and the squared distances from it follow from these in one
// pass over the input instead of two. Bytes are measured from 0, in integers. In double, squared distances lose digits only if the first element is
// thousands of standard deviations from the mean.
struct GpuMoments {
  struct Total {
    double sum, squares;
  };
  template <class T>
  struct Local {
    using Sum = std::conditional_t<sizeof(T) == 1, int32_t, double>;
    Sum sum;
    std::conditional_t<sizeof(T) == 1, uint32_t, double> squares;
  };
  static constexpr bool kCentered = true, kSumsBytes = false;
  int64_t distance;  // offset of the squared distances from the means in the output, in doubles

  NDD_HD Total identity(DType) const { return {0.0, 0.0}; }
  template <class T>
  NDD_HD Local<T> start() const {
    return {0, 0};
  }
  template <class T>
  NDD_HD void take(Local<T>& local, T value, double center) const {
    auto v = widened<typename Local<T>::Sum>(value);
    if constexpr (sizeof(T) > 1) v -= center;
    local.sum += v;
    local.squares += v * v;
  }
  template <class T>
  NDD_HD Total total(Local<T> local) const {
    return {static_cast<double>(local.sum), static_cast<double>(local.squares)};
  }
  NDD_HD Total merge(const Total& a, const Total& b) const { return {a.sum + b.sum, a.squares + b.squares}; }
  NDD_HD void store(const GpuSample& sample, const Total& total, const GpuTypes& types, int64_t o) const {
    double first = 0.0;
    if (sample.shape.count > 0)
      for_dtype(types.in, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if constexpr (sizeof(T) > 1) first = widened<double>(static_cast<const T*>(sample.in)[sample.shape.of_output(o)]);
      });
    // n * squares - sum^2 cancels, so fma recovers the bits of both products that a double cannot hold.
    const double n = static_cast<double>(sample.shape.count), product = total.sum * total.sum;
    const double squares = (fma(n, total.squares, -product) - fma(total.sum, total.sum, -product)) / n;
    static_cast<double*>(sample.out)[o] = first + total.sum / n;
    static_cast<double*>(sample.out)[o + distance] = squares > 0.0 ? squares : squares == squares ? 0.0 : squares;
  }
};

// The minimum or maximum, computed on keys (order_keys.h).
struct GpuExtreme {
  using Total = uint64_t;
  template <class T>
  using Local = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  static constexpr bool kCentered = false, kSumsBytes = false;
  bool maximum;

  template <class T>
  NDD_HD Local<T> start() const {
    using K = Key<T>;
    if constexpr (is_floating<T>) return to_key<T>(static_cast<T>(maximum ? -INFINITY : INFINITY), K{});
    else if constexpr (std::is_same_v<T, bool>) return maximum ? 0 : 1;
    else return maximum ? K{} : static_cast<K>(~K{});
  }
  NDD_HD Total identity(DType dtype) const {
    Total key = 0;
    for_dtype(dtype, [&](auto tag) { key = start<typename decltype(tag)::type>(); });
    return key;
  }
  template <class T>
  NDD_HD void take(Local<T>& local, T value, double) const {
    const Local<T> key = to_key<T>(value, static_cast<Key<T>>(local));  // NaN maps to the current value and so changes nothing
    local = maximum ? (key > local ? key : local) : (key < local ? key : local);
  }
  template <class T>
  NDD_HD Total total(Local<T> local) const {
    return local;
  }
  NDD_HD Total merge(Total a, Total b) const { return (b > a) == maximum ? b : a; }
  NDD_HD void store(const GpuSample& sample, Total total, const GpuTypes& types, int64_t o) const {
    for_dtype(types.out, [&](auto tag) {
      using Out = typename decltype(tag)::type;
      static_cast<Out*>(sample.out)[o] = from_key<Out>(static_cast<Key<Out>>(total));
    });
  }
};

constexpr int kThreads = 256;
// Chunks are as long as an H100 needs to be busy: 2048 threads on each of 132 multiprocessors. Constants, not the device's numbers, because the chunks
// determine the order of a floating-point sum: the same shapes give the same bits on every GPU.
constexpr int64_t kChunkThreads = 270000, kChunkMultiprocessors = 132;

// The value that distances of output o are measured from: the given center, or the output's first element.
NDD_HD double center_of(const GpuSample& sample, const GpuTypes& types, int64_t o) {
  double value = 0.0;
  if (!sample.center && sample.shape.count == 0) return value;
  const void* const from = sample.center ? sample.center : sample.in;
  const int64_t at = !sample.center ? sample.shape.of_output(o) : sample.centers > 1 ? o : 0;
  for_dtype(sample.center ? types.center : types.in,
            [&](auto tag) { value = widened<double>(static_cast<const typename decltype(tag)::type*>(from)[at]); });
  return value;
}

// A team (1 thread, a warp, or a block) folds a chunk of an output in a fixed order. Single threads take neighboring outputs and teams neighboring
// elements, so a warp reads neighboring bytes either way. For shapes that rows.cuh does not handle: few elements per output, or several reduced
// dimensions.
template <class Fold>
__global__ void __launch_bounds__(kThreads) fold_kernel(const __grid_constant__ TableRows<GpuSample> table, int64_t count, Fold fold, int team,
                                                        int64_t chunk, GpuTypes types, typename Fold::Total* partials) {
  const GpuSample* const samples = table.data();
  __shared__ typename Fold::Total shared[kThreads];
  const int teams = kThreads / team, member = static_cast<int>(threadIdx.x) % team, own = static_cast<int>(threadIdx.x) / team;
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const GpuSample& sample = samples[k];
    const int64_t outputs = sample.shape.outputs, units = outputs * sample.chunks;
    for (int64_t first = int64_t{blockIdx.x} * teams; first < units; first += int64_t{gridDim.x} * teams) {
      const int64_t unit = first + own, o = unit % outputs, part = unit / outputs;
      auto total = fold.identity(types.in);
      if (unit < units) {
        const int64_t begin = part * chunk + member, end = min(sample.shape.count, (part + 1) * chunk), start = sample.shape.of_output(o);
        const int64_t stride = sample.shape.reduced_stride[0];
        const double center = Fold::kCentered ? center_of(sample, types, o) : 0.0;
        const bool straight = sample.shape.reduced <= 1;
        for_dtype(types.in, [&](auto tag) {
          using T = typename decltype(tag)::type;
          const T* const from = static_cast<const T*>(sample.in) + start;
          for (int64_t e = begin; e < end;) {
            auto local = fold.template start<T>();
            // Narrow integers are summed in 32 bits; before the sum could overflow, it moves to the wide total.
            const int64_t stop = min(end, e + kMaxTaken * team);
            // One reduced axis needs no division to find the next element.
            if (straight) {
#pragma unroll 4
              for (; e < stop; e += team) fold.template take<T>(local, from[e * stride], center);
            } else {
#pragma unroll 1
              for (; e < stop; e += team) fold.template take<T>(local, from[sample.shape.of_element(e)], center);
            }
            total = fold.merge(total, fold.template total<T>(local));
          }
        });
      }
      if (team > 1) {
        shared[threadIdx.x] = total;
        __syncthreads();
        // A tree in a fixed order, so equal shapes give equal bits.
        for (int half = team / 2; half > 0; half /= 2) {
          if (member < half) shared[threadIdx.x] = fold.merge(shared[threadIdx.x], shared[threadIdx.x + half]);
          __syncthreads();
        }
        // The barrier after it: the next unit writes the same memory.
        total = shared[threadIdx.x - member];
        __syncthreads();
      }
      if (member == 0 && unit < units) {
        // Of a chunk of an output; merge_kernel adds the chunks in order. Atomic additions would add them in another order each time.
        if (partials) partials[sample.first_partial + unit] = total;
        else fold.store(sample, total, types, o);
      }
    }
  }
}

template <class Fold>
__global__ void __launch_bounds__(kThreads)
    merge_kernel(const __grid_constant__ TableRows<GpuSample> table, int64_t count, Fold fold, GpuTypes types, const typename Fold::Total* partials) {
  const GpuSample* const samples = table.data();
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const GpuSample& sample = samples[k];
    for (int64_t o = int64_t{blockIdx.x} * kThreads + threadIdx.x; o < sample.shape.outputs; o += int64_t{gridDim.x} * kThreads) {
      auto total = fold.identity(types.in);
      for (int64_t c = 0; c < sample.chunks; ++c) total = fold.merge(total, partials[sample.first_partial + c * sample.shape.outputs + o]);
      fold.store(sample, total, types, o);
    }
  }
}

}  // namespace reduce
}  // namespace ndd

#include "ndd/reduce/groups.cuh"
#include "ndd/reduce/rows.cuh"

namespace ndd {
namespace reduce {

// Samples of equal shapes, one behind the other, become one sample with one more axis that is kept. The table of a dense batch then fits into the
// parameters of the launch.
inline void merge_samples(std::vector<GpuSample>& samples, const GpuTypes& types) {
  if (samples.size() < 2) return;
  GpuSample merged = samples[0];
  Reduction& shape = merged.shape;
  const int64_t volume = shape.outputs * shape.count, in_step = volume * item_bytes(types.in), out_step = shape.outputs * item_bytes(types.out);
  const int64_t center_step = merged.centers * item_bytes(types.center), count = static_cast<int64_t>(samples.size());
  // No room for another axis, or a center that is the same for all outputs of a sample and so cannot follow the samples.
  if (volume == 0 || shape.kept == Reduction::kMaxDims || (merged.center && merged.centers != shape.outputs)) return;
  const auto lies_behind = [](const void* at, const void* first, int64_t bytes) { return static_cast<const char*>(first) + bytes == at; };
  for (int64_t i = 0; i < count; ++i) {
    const GpuSample& sample = samples[i];
    const bool same = std::memcmp(&sample.shape, &shape, sizeof(Reduction)) == 0 && sample.finisher.divisor == merged.finisher.divisor;
    if (!same || !lies_behind(sample.in, merged.in, i * in_step) || !lies_behind(sample.out, merged.out, i * out_step) ||
        (merged.center && !lies_behind(sample.center, merged.center, i * center_step)))
      return;
  }
  // Where the last kept axis goes through the whole sample, samples continue it, and it only becomes longer.
  const int last = shape.kept - 1;
  if (last >= 0 && shape.kept_extent[last] * shape.kept_stride[last] == volume) {
    shape.kept_extent[last] *= count;
  } else {
    shape.kept_extent[shape.kept] = count;
    shape.kept_stride[shape.kept++] = volume;
  }
  shape.outputs *= count;
  merged.centers *= count;
  samples = {merged};
}

template <class Fold>
void launch_gpu(const char* op, std::vector<GpuSample> samples, const Fold& fold, const GpuTypes& types) {
  // The kernels divide by extents that are kept, such as channels, which are 0 in samples without outputs.
  const auto is_empty = [](const GpuSample& sample) { return sample.shape.outputs == 0; };
  samples.erase(std::remove_if(samples.begin(), samples.end(), is_empty), samples.end());
  if (samples.empty()) return;
  merge_samples(samples, types);
  int64_t outputs = 0, elements = 0, all = 0;
  bool side_by_side = false;
  for (const GpuSample& sample : samples) {
    outputs = std::max(outputs, sample.shape.outputs);
    elements = std::max(elements, sample.shape.count);
    all += sample.shape.outputs;
    side_by_side = side_by_side || (sample.shape.kept > 0 && sample.shape.kept_stride[0] == 1 && sample.shape.kept_extent[0] >= 32);
  }
  // From the most special to the general kernel: many short groups side by side, whole rows, anything else.
  if (in_groups(samples, types)) return launch_groups(op, samples, fold, types);
  if (in_rows(samples)) return launch_rows(op, std::move(samples), fold, types);
  // Outputs that lie side by side keep neighboring threads on neighboring bytes. Otherwise a larger team reads a longer stretch together.
  const int team = elements <= 64 || side_by_side ? 1 : elements <= 2048 ? 32 : kThreads;
  // As many chunks as keep the device busy, but none shorter than 64 elements per thread, where merging would take longer than folding.
  const int64_t wanted = std::max<int64_t>(1, kChunkThreads / (all * team)), most = std::max<int64_t>(1, elements / (64 * team));
  const int64_t chunks = std::min({wanted, most, int64_t{4096}}), chunk = std::max<int64_t>(1, (elements + chunks - 1) / chunks);
  int64_t partials = 0;
  for (GpuSample& sample : samples) {
    sample.first_partial = partials;
    sample.chunks = std::max<int64_t>(1, (sample.shape.count + chunk - 1) / chunk);
    partials += sample.shape.outputs * sample.chunks;
  }
  const KernelTable<GpuSample> table(samples);
  const CudaBuffer buffer(chunks > 1 ? partials * static_cast<int64_t>(sizeof(typename Fold::Total)) : 0);
  auto* totals = chunks > 1 ? static_cast<typename Fold::Total*>(buffer.data()) : nullptr;
  const int64_t count = static_cast<int64_t>(samples.size());
  const cudaStream_t stream = current_cuda_stream();
  const dim3 grid = batch_grid(outputs * chunks * team, kThreads, count);
  fold_kernel<Fold><<<grid, kThreads, 0, stream>>>(table.rows(), count, fold, team, chunk, types, totals);
  if (totals) merge_kernel<Fold><<<batch_grid(outputs, kThreads, count), kThreads, 0, stream>>>(table.rows(), count, fold, types, totals);
  check_launch(op);
}

// Each is compiled in one file only: sums.cu and squares.cu.
extern template void launch_gpu(const char*, std::vector<GpuSample>, const GpuSum<false, false>&, const GpuTypes&);
extern template void launch_gpu(const char*, std::vector<GpuSample>, const GpuSum<true, true>&, const GpuTypes&);

}  // namespace reduce
}  // namespace ndd
