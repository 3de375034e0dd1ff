// SPDX-License-Identifier: Apache-2.0
// Where the mean square of a sliding window is not below a threshold: from the beginning of the first such window to the end of the last one.
//
// Van Herk's decomposition: a window consists of the end of one block of its length and the beginning of the next one, so its sum is that of two partial
// sums. Nothing is subtracted, unlike in a running sum: silence after noise is exactly silent, a NaN affects only the windows that contain it, and errors do
// not accumulate.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "ndd/elementwise/rows.h"
#include "ndd/kernel.h"
#include "ops/audio/scratch.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#include "ndd/elementwise/elements.cuh"
#include "ndd/reduce/block.cuh"
#endif

namespace ndd::nonsilent_region_kernels {
namespace {

struct Silence {
  int64_t window;
  double cutoff, reference;  // the cutoff is a ratio of powers; reference 0: the loudest window

  // A signal that is shorter than the window is one window of its own length.
  NDD_HD int64_t window_of(int64_t count) const { return window < count ? window : count; }
};

// Sums of the windows that begin in each group of eight elements. Groups are summed first, so an element costs four additions, in short chains.
// Van Herk's decomposition, with groups of eight in place of elements: `middles[g]` is the sum of `span` groups from g on. The rest of the first
// group and the beginning of the last one are added for each window.
template <class T>
class WindowSums {
 public:
  // Sums of squares of 16-bit integers fit in 64 bits; integer additions have a shorter latency.
  using Sum = std::conditional_t<std::is_same_v<T, int16_t>, int64_t, double>;
  static constexpr int64_t kGroup = 8;

  WindowSums(const T* values, int64_t count, int64_t window) : values_(values), count_(count), window_(window), windows_(count - window + 1) {
    // Such windows may lie within two groups and have no whole one in between; they are summed element by element.
    if (window_ < 2 * kGroup) return;
    static thread_local LineVector<Sum> groups, ahead, middles;  // until the next signal of this thread
    const int64_t whole = count_ / kGroup, span = window_ / kGroup - 1;  // complete groups in a window wherever it begins
    groups_ = audio::scratch_of(groups, whole + 1);
    middles_ = audio::scratch_of(middles, whole + 1);
    for (int64_t g = 0; g < whole; ++g) {
      const T* v = values_ + g * kGroup;
      // Two chains, because an addition waits for the one before it.
      Sum sum = 0, other = 0;
      for (int64_t k = 0; k < kGroup; k += 2) {
        sum += square(v[k]);
        other += square(v[k + 1]);
      }
      groups[g] = sum + other;
    }
    // Of `span` groups from g on: the end of one block of them and the beginning of the next.
    if (span == 0) return;
    audio::scratch_of(ahead, span);
    for (int64_t block = 0; block + span <= whole; block += span) {
      Sum sum = 0;
      for (int64_t k = span - 1; k >= 0; --k) ahead[k] = sum += groups[block + k];
      const int64_t n = std::min(span, whole - span + 1 - block);
      middles[block] = ahead[0];
      sum = 0;
      for (int64_t k = 1; k < n; ++k) {
        sum += groups[block + span + k - 1];
        middles[block + k] = ahead[k] + sum;
      }
    }
  }

  int64_t groups() const { return (windows_ + kGroup - 1) / kGroup; }

  // The sums of the windows that begin in group g; -1 behind the last one.
  void of_group(int64_t g, Sum (&sums)[kGroup]) const {
    const int64_t begin = g * kGroup, n = std::min(kGroup, windows_ - begin);
    if (window_ < 2 * kGroup) {
      for (int64_t r = 0; r < kGroup; ++r) {
        Sum sum = r < n ? 0 : -1;
        for (int64_t k = 0; r < n && k < window_; ++k) sum += square(values_[begin + r + k]);
        sums[r] = sum;
      }
      return;
    }
    // Window r: the rest of its group, whole groups, and the beginning of the group in which it ends.
    const int64_t span = window_ / kGroup - 1, over = window_ % kGroup, last = g + 1 + span;  // the first group behind `span` whole ones
    Sum rest[kGroup + 1];
    rest[kGroup] = 0;
    for (int64_t r = kGroup - 1; r >= 0; --r) rest[r] = rest[r + 1] + square(values_[begin + r]);
    const Sum middle = span > 0 ? middles_[g + 1] : Sum{0};
    Sum edge = 0;
    int64_t at = last * kGroup, end = begin + window_;
    if (over == 0 && n == kGroup) {  // the most common lengths
      const T* behind = values_ + end;
      for (int64_t r = 0; r < kGroup; ++r) {
        sums[r] = rest[r] + middle + edge;
        if (r + 1 < kGroup) edge += square(behind[r]);
      }
      return;
    }
    for (; at < end; ++at) edge += square(values_[at]);
    for (int64_t r = 0; r < n; ++r) {
      if (r == kGroup - over) edge = 0;  // that group is whole
      sums[r] = rest[r] + (over > 0 && r >= kGroup - over ? middle + groups_[last] : middle) + edge;
      if (r + 1 < n) edge += square(values_[end + r]);
    }
    for (int64_t r = n; r < kGroup; ++r) sums[r] = -1;
  }

 private:
  static Sum square(T value) {
    if constexpr (std::is_same_v<T, int16_t>) return int32_t{value} * int32_t{value};
    else return static_cast<Sum>(value) * static_cast<Sum>(value);
  }

  const T* values_;
  int64_t count_, window_, windows_;
  const Sum *groups_ = nullptr, *middles_ = nullptr;
};

template <class T>
void find_region(const T* values, int64_t count, int64_t window, const Silence& silence, int32_t* begin, int32_t* length) {
  constexpr int64_t kGroup = WindowSums<T>::kGroup;
  const WindowSums<T> windows(values, count, window);
  typename WindowSums<T>::Sum sums[kGroup], loudest = 0;
  for (int64_t g = 0; silence.reference == 0.0 && g < windows.groups(); ++g) {
    windows.of_group(g, sums);
    for (const auto sum : sums) loudest = sum > loudest ? sum : loudest;
  }
  // The threshold may be 0; the sums behind the last window are -1 and so never reach it.
  const double loudest_power = silence.reference == 0.0 ? static_cast<double>(loudest) : silence.reference * static_cast<double>(window);
  const double threshold = loudest_power * silence.cutoff;
  int64_t first = -1, last = -1;
  // From both ends: the windows between the first and the last one need not be summed.
  for (int64_t g = 0; first < 0 && g < windows.groups(); ++g) {
    windows.of_group(g, sums);
    for (int64_t r = kGroup - 1; r >= 0; --r)
      if (static_cast<double>(sums[r]) >= threshold) first = g * kGroup + r;
  }
  if (first < 0) return;
  for (int64_t g = windows.groups() - 1; last < 0; --g) {
    windows.of_group(g, sums);
    for (int64_t r = 0; r < kGroup; ++r)
      if (static_cast<double>(sums[r]) >= threshold) last = g * kGroup + r;
  }
  *begin = static_cast<int32_t>(first);
  *length = static_cast<int32_t>(last + window - first);
}

// The two common types are read in place, all others are converted to floats.
void find_region(const Samples& in, int64_t i, const Silence& silence, int32_t* begin, int32_t* length) {
  static thread_local LineVector<float> converted;
  const int64_t count = in.volume(i), window = silence.window_of(count);
  *begin = *length = 0;
  if (count == 0) return;
  if (in.dtype() == DType::float32) return find_region(static_cast<const float*>(in.data(i)), count, window, silence, begin, length);
  if (in.dtype() == DType::int16) return find_region(static_cast<const int16_t*>(in.data(i)), count, window, silence, begin, length);
  float* const values = audio::scratch_of(converted, count);
  row_loader(in.dtype())(in.data(i), count, values);
  find_region(static_cast<const float*>(values), count, window, silence, begin, length);
}

#ifdef __CUDACC__
constexpr int kThreads = 256, kOfLane = 8;  // neighbors that a lane adds before lanes exchange their sums

// What the launches of a sample find one after the other.
// `first` begins at the number of elements and `last` at -1, so the first window found replaces both.
struct Region {
  unsigned long long loudest;  // the bits of a double that is not negative: their order is its order
  long long first, last;
};

struct Run {
  const void* in;
  int64_t count;
  double* sums;  // two for each element
  Region* region;
};

// The sums of the `count` squares square(0), square(1)... up to and with each of them, by a warp: only additions, of neighbors first.
template <class Square>
__device__ __forceinline__ void sum_up(int64_t count, Square square, double* sums, int64_t step) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  double before = 0.0;
#pragma unroll 1
  for (int64_t base = 0; base < count; base += 32 * kOfLane) {
    const int64_t begin = base + lane * kOfLane;
    double own[kOfLane], sum = 0.0;
#pragma unroll
    for (int j = 0; j < kOfLane; ++j) own[j] = begin + j < count ? square(begin + j) : 0.0;
#pragma unroll
    for (int j = 0; j < kOfLane; ++j) own[j] = sum += own[j];
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const double other = __shfl_up_sync(0xFFFFFFFFu, sum, d);
      if (lane >= d) sum += other;
    }
    const double lower = __shfl_up_sync(0xFFFFFFFFu, sum, 1), left = before + (lane > 0 ? lower : 0.0);
#pragma unroll
    for (int j = 0; j < kOfLane; ++j)
      if (begin + j < count) sums[(begin + j) * step] = left + own[j];
    before += __shfl_sync(0xFFFFFFFFu, sum, 31);
  }
}

// A warp for each block of the window's length: sums to its end go to sums[k], from its beginning to sums[count + k].
__global__ void __launch_bounds__(kThreads) sums_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count, Silence silence, DType in) {
  for (int64_t r = blockIdx.y; r < count; r += gridDim.y) {
    const Run run = runs[r];
    const int64_t window = silence.window_of(run.count), first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (first == 0) *run.region = {0, run.count, -1};
    // In double, in which the square of a float is exact.
    const auto square = [&](int64_t k) {
      const double value = load_element(run.in, in, k);
      return value * value;
    };
    for (int64_t block = first / 32 * window; block < run.count; block += int64_t{gridDim.x} * (kThreads / 32) * window) {
      const int64_t here = min(window, run.count - block), last = block + here - 1;
      // One loop for both directions, because the code is long.
#pragma unroll 1
      for (int64_t step = -1; step <= 1; step += 2) {
        const int64_t begin = step < 0 ? last : block;
        sum_up(here, [&](int64_t k) { return square(begin + step * k); }, run.sums + (step < 0 ? last : run.count + block), step);
      }
    }
  }
}

// Calls f(k, the sum of the window from element k on), for the windows of a thread.
template <class F>
__device__ __forceinline__ void for_windows(const Run& run, int64_t window, F f) {
  const int64_t windows = run.count - window + 1, stride = int64_t{gridDim.x} * kThreads;
  // The window from k on is the rest of k's block and the next block up to element k + window - 1.
  const double *const ahead = run.sums, *const behind = run.sums + run.count + window - 1;
  int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (run.count == 0 || k >= windows) return;
  // The place in a block of the window's length, without a division for each window.
  const int64_t step = stride % window;
  for (int64_t place = k % window; k < windows; k += stride) {
    f(k, place == 0 ? ahead[k] : ahead[k] + behind[k]);
    place += step;
    if (place >= window) place -= window;
  }
}

__global__ void __launch_bounds__(kThreads) loudest_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count, Silence silence) {
  __shared__ double shared[kThreads];
  for (int64_t r = blockIdx.y; r < count; r += gridDim.y) {
    const Run run = runs[r];
    double loudest = 0.0;
    for_windows(run, silence.window_of(run.count), [&](int64_t, double sum) { loudest = sum > loudest ? sum : loudest; });
    loudest = reduce_block(shared, loudest, [](double a, double b) { return fmax(a, b); });
    if (threadIdx.x == 0 && loudest > 0.0) atomicMax(&run.region->loudest, static_cast<unsigned long long>(__double_as_longlong(loudest)));
  }
}

__global__ void __launch_bounds__(kThreads) region_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count, Silence silence) {
  for (int64_t r = blockIdx.y; r < count; r += gridDim.y) {
    const Run run = runs[r];
    const int64_t window = silence.window_of(run.count);
    const double loudest = __longlong_as_double(static_cast<long long>(run.region->loudest));
    const double threshold = (silence.reference == 0.0 ? loudest : silence.reference * static_cast<double>(window)) * silence.cutoff;
    long long first = run.count, last = -1;
    for_windows(run, window, [&](int64_t k, double sum) {
      if (!(sum >= threshold)) return;
      first = min(first, static_cast<long long>(k));
      last = k;
    });
    if (last < 0) continue;
    // The result of minima and maxima does not depend on the order of the threads.
    atomicMin(&run.region->first, first);
    atomicMax(&run.region->last, last);
  }
}

__global__ void __launch_bounds__(kThreads)
    lengths_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count, Silence silence, int32_t* begins, int32_t* lengths) {
  for (int64_t r = int64_t{blockIdx.x} * kThreads + threadIdx.x; r < count; r += int64_t{gridDim.x} * kThreads) {
    const Run run = runs[r];
    const Region region = *run.region;
    begins[r] = region.last < 0 ? 0 : static_cast<int32_t>(region.first);
    lengths[r] = region.last < 0 ? 0 : static_cast<int32_t>(region.last + silence.window_of(run.count) - region.first);
  }
}

// Four launches over all windows of all samples. With a block for each sample, in which a thread added up a whole block of the window's length, 64 seconds of
// speech took 0.89 ms; predicted: 0.1 ms, in which the sums travel to memory and back twice.
void launch_gpu(const Samples& in, const Silence& silence, int32_t* begins, int32_t* lengths) {
  int64_t elements = 0, most = 0;
  for (int64_t i = 0; i < in.size(); ++i) {
    elements += in.volume(i);
    most = std::max(most, in.volume(i));
  }
  if (in.size() == 0) return;
  const CudaBuffer sums(std::max<int64_t>(1, 2 * elements) * 8), regions(in.size() * static_cast<int64_t>(sizeof(Region)));
  std::vector<Run> runs;
  double* next = static_cast<double*>(sums.data());
  for (int64_t i = 0; i < in.size(); ++i) {
    runs.push_back({in.data(i), in.volume(i), next, static_cast<Region*>(regions.data()) + i});
    next += 2 * in.volume(i);
  }
  const KernelTable<Run> table(runs);
  const auto count = static_cast<int64_t>(runs.size());
  const cudaStream_t stream = current_cuda_stream();
  constexpr int64_t kWindows = 8 * kThreads;  // of a block: fewer atomic operations
  sums_gpu<<<batch_grid(most / silence.window_of(most > 0 ? most : 1) + 1, kThreads / 32, count), kThreads, 0, stream>>>(table.rows(), count, silence,
                                                                                                                         in.dtype());
  if (silence.reference == 0.0) loudest_gpu<<<batch_grid(most, kWindows, count), kThreads, 0, stream>>>(table.rows(), count, silence);
  region_gpu<<<batch_grid(most, kWindows, count), kThreads, 0, stream>>>(table.rows(), count, silence);
  lengths_gpu<<<batch_grid(count, kThreads, 1), kThreads, 0, stream>>>(table.rows(), count, silence, begins, lengths);
  check_launch("nonsilent_region");
}
#endif

void nonsilent_region(const Tensor& input, const MaybeTensor& input_shapes, double cutoff_db, double reference_power, int64_t window_length,
                      const Tensor& begin, const MaybeTensor&, const Tensor& length, const MaybeTensor&) {
  const Samples in(input, input_shapes);
  if (window_length < 1) fail("nonsilent_region: window_length must be positive, got ", window_length);
  for (const Tensor* result : {&begin, &length})
    if (result->dtype() != DType::int32 || result->numel() != in.size() || !result->is_contiguous())
      fail(Error::Value, "nonsilent_region: the results must be int32 with a number for each of ", in.size(), " samples");
  const Silence silence{window_length, std::pow(10.0, cutoff_db / 10.0), reference_power};
#ifdef __CUDACC__
  if (input.is_cuda()) return launch_gpu(in, silence, static_cast<int32_t*>(begin.data_ptr()), static_cast<int32_t*>(length.data_ptr()));
#endif
  launch_cpu("nonsilent_region", in.size(), 2.0 * in.mean_volume(), {}, [=, begins = Tensor(begin), lengths = Tensor(length)](int64_t i) {
    find_region(in, i, silence, static_cast<int32_t*>(begins.data_ptr()) + i, static_cast<int32_t*>(lengths.data_ptr()) + i);
  });
}

}  // namespace
}  // namespace ndd::nonsilent_region_kernels
NDD_KERNELS(nonsilent_region, ndd::nonsilent_region_kernels::nonsilent_region)
