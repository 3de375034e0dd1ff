// SPDX-License-Identifier: Apache-2.0
// Every channel of an image is stretched from its smallest and largest value to the range of the type.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ndd/elementwise/lut.h"
#include "ndd/elementwise/rows.h"
#include "ndd/kernel.h"
#include "ndd/simd.h"
#include "ndd/stream/stream.h"
#include "ops/color/bytes.h"
#include "ops/color/levels.h"
#ifdef __CUDACC__
#include "ndd/color/pixels.cuh"
#include "ndd/cuda.h"
#include "ndd/elementwise/elements.cuh"
#include "ndd/reduce/block.cuh"
#endif

namespace ndd::autocontrast_kernels {
namespace {

// A VGA image of uint8 takes 0.1 ms.
constexpr double kNanosecondsPerElement = 0.15;

// Elements of the rows that are computed at a time: whole pixels, a lane for each element.
constexpr int64_t kRow = 1536;

template <class T>
void widen_extremes(const T* row, int64_t n, T* least, T* largest) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const T* __restrict from = row;
    T* __restrict low = least;
    T* __restrict high = largest;
    const int64_t count = n;
    for (int64_t k = 0; k < count; ++k) {
      // A comparison with NaN is false, so NaN widens nothing.
      low[k] = from[k] < low[k] ? from[k] : low[k];
      high[k] = from[k] > high[k] ? from[k] : high[k];
    }
  });
}

// The extremes of every channel, from those of lanes.
template <class T>
void fold_lanes(int64_t lanes, int64_t channels, T* least, T* largest) {
  for (int64_t k = channels; k < lanes; ++k) {
    least[k % channels] = std::min(least[k % channels], least[k]);
    largest[k % channels] = std::max(largest[k % channels], largest[k]);
  }
}

}  // namespace
}  // namespace ndd::autocontrast_kernels

#ifndef __NVCC__  // of the CPU half alone
void ndd::stretch_bytes(const uint8_t* in, int64_t pixels, int64_t channels, uint8_t* out) {
  using namespace autocontrast_kernels;
  const int64_t count = pixels * channels, lanes = std::min(count, std::max(kRow / channels, int64_t{1}) * channels);
  std::vector<uint8_t> least(lanes, 255), largest(lanes, 0), tables(channels * kLevels);
  // One lane per element of a row of whole pixels: lane k always sees channel k % channels, and the loop over a row has no reduction that would
  // keep it from being vectorized.
  for (int64_t first = 0; first < count; first += lanes) widen_extremes(in + first, std::min(lanes, count - first), least.data(), largest.data());
  fold_lanes(lanes, channels, least.data(), largest.data());
  for (int64_t c = 0; c < channels; ++c) {
    const Stretch stretch(least[c], largest[c], 255.0f, true);
    for (int v = 0; v < kLevels; ++v) tables[c * kLevels + v] = static_cast<uint8_t>(stretch(static_cast<float>(v)));
  }
  map_levels(in, pixels, channels, tables.data(), out);
}

// A plane of float32, which is read twice and written once: 16 images of 256x320x3 take 1.5 ms; 3.6 through rows of lanes.
void ndd::stretch_plane(const float* in, int64_t count, float white, float* out) {
  constexpr int kLanes = 16;
  typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));
  float lows[kLanes], highs[kLanes];
  with_simd([&]() NDD_ALWAYS_INLINE {
    // Four independent minima and maxima, because each depends on the one before: a single pair would wait for the latency of every comparison.
    Lanes low[4], high[4];
    for (int k = 0; k < 4; ++k) {
      low[k] = Lanes{} + INFINITY;
      high[k] = Lanes{} - INFINITY;
    }
    const float* const from = in;
    const int64_t whole = count / (4 * kLanes) * (4 * kLanes), all = count;
    for (int64_t first = 0; first < whole; first += 4 * kLanes) {
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        const Lanes v = *reinterpret_cast<const Lanes*>(from + first + k * kLanes);
        low[k] = v < low[k] ? v : low[k];
        high[k] = v > high[k] ? v : high[k];
      }
    }
    for (int k = 1; k < 4; ++k) {
      low[0] = low[k] < low[0] ? low[k] : low[0];
      high[0] = high[k] > high[0] ? high[k] : high[0];
    }
    // The elements that do not fill four vectors. Joining them to lane 0 needs no masks.
    for (int64_t k = whole; k < all; ++k) {
      low[0][0] = from[k] < low[0][0] ? from[k] : low[0][0];
      high[0][0] = from[k] > high[0][0] ? from[k] : high[0][0];
    }
    for (int k = 0; k < kLanes; ++k) {
      lows[k] = low[0][k];
      highs[k] = high[0][k];
    }
  });
  const Stretch stretch(*std::min_element(lows, lows + kLanes), *std::max_element(highs, highs + kLanes), white, false);
  with_simd([&]() NDD_ALWAYS_INLINE {
    const float* __restrict from = in;
    float* __restrict to = out;
    const int64_t all = count;
    const float low = stretch.low, divisor = stretch.divisor, bound = white;
    for (int64_t k = 0; k < all; ++k) to[k] = limit_level<false>((from[k] - low) / divisor, bound);
  });
}
#endif

namespace ndd::autocontrast_kernels {
namespace {

// Any type, by rows of floats: the first pass finds the extremes, the second converts the same rows again, because keeping them
// would take the memory of an image of floats.
void stretch_rows(const char* in, DType dtype, int64_t pixels, int64_t channels, char* out) {
  if (dtype == DType::float32 && channels == 1)
    return stretch_plane(reinterpret_cast<const float*>(in), pixels, value_range(dtype), reinterpret_cast<float*>(out));
  const int64_t count = pixels * channels, lanes = std::min(count, std::max(kRow / channels, int64_t{1}) * channels), item = item_bytes(dtype);
  const LoadRow load = row_loader(dtype);
  const StoreRow store = row_storer(dtype);
  // Integer types round the stretched level down, as a table of all levels does; floats keep it.
  const bool whole = !is_floating_dtype(dtype);
  const float white = value_range(dtype);
  std::vector<float> least(lanes, INFINITY), largest(lanes, -INFINITY), row(lanes), lows(lanes), divisors(lanes);
  for (int64_t first = 0; first < count; first += lanes) {
    const int64_t n = std::min(lanes, count - first);
    load(in + first * item, n, row.data());
    widen_extremes(row.data(), n, least.data(), largest.data());
  }
  fold_lanes(lanes, channels, least.data(), largest.data());
  // Lows and divisors are repeated along the row, so the loop below has no inner loop over channels and vectorizes.
  for (int64_t k = 0; k < lanes; ++k) {
    const Stretch stretch(least[k % channels], largest[k % channels], white, whole);
    lows[k] = stretch.low;
    divisors[k] = stretch.divisor;
  }
  for (int64_t first = 0; first < count; first += lanes) {
    const int64_t n = std::min(lanes, count - first);
    load(in + first * item, n, row.data());
    with_simd([&]() NDD_ALWAYS_INLINE {
      float* __restrict values = row.data();
      const float* __restrict low = lows.data();
      const float* __restrict divisor = divisors.data();
      const int64_t elements = n;
      const float bound = white;
      if (whole)
        for (int64_t k = 0; k < elements; ++k) values[k] = limit_level<true>((values[k] - low[k]) / divisor[k], bound);
      else
        for (int64_t k = 0; k < elements; ++k) values[k] = limit_level<false>((values[k] - low[k]) / divisor[k], bound);
    });
    store(row.data(), n, out + first * item);
  }
}

#ifdef __CUDACC__
// All blocks of a channel must meet before the first element is stretched: a second kernel is that barrier.
constexpr int kThreads = 256, kParts = 32;  // kParts: blocks that search a channel for its extremes

// One channel, whose elements lie `step` apart.
struct Run {
  const void* in;
  void* out;
  int64_t count, step;
};

struct Extremes {
  float least, largest;

  __device__ Extremes merged_with(const Extremes& other) const { return {fminf(least, other.least), fmaxf(largest, other.largest)}; }
};

// The extremes of each part of a channel. Parts are merged by the next kernel, which saves initialized memory and atomics.
__global__ void __launch_bounds__(kThreads) extremes_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count, DType dtype, Extremes* parts) {
  __shared__ Extremes shared[kThreads];
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run run = runs[k];
    assume_global(run.in, run.out);
    float low = INFINITY, high = -INFINITY;
    for_dtype(dtype, [&](auto tag) {
      const auto* const from = static_cast<const typename decltype(tag)::type*>(run.in);
      for (int64_t p = int64_t{blockIdx.x} * kThreads + threadIdx.x; p < run.count; p += int64_t{kParts} * kThreads) {
        const float v = static_cast<float>(from[p * run.step]);
        low = fminf(low, v);
        high = fmaxf(high, v);
      }
    });
    const Extremes all = reduce_block(shared, Extremes{low, high}, [](const Extremes& a, const Extremes& b) { return a.merged_with(b); });
    // A part without elements holds [inf, -inf], which merging ignores.
    if (threadIdx.x == 0) parts[k * kParts + blockIdx.x] = all;
  }
}

__global__ void __launch_bounds__(kThreads)
    stretch_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count, DType dtype, float white, bool whole, const Extremes* parts) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run run = runs[k];
    assume_global(run.in, run.out);
    // Every thread merges the parts itself: 32 reads that its neighbors share are cheaper than a barrier.
    Extremes all = parts[k * kParts];
    for (int part = 1; part < kParts; ++part) all = all.merged_with(parts[k * kParts + part]);
    const Stretch stretch(all.least, all.largest, white, whole);
    for_dtype(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* const from = static_cast<const T*>(run.in);
      T* const to = static_cast<T*>(run.out);
      for (int64_t p = int64_t{blockIdx.x} * kThreads + threadIdx.x; p < run.count; p += int64_t{gridDim.x} * kThreads)
        to[p * run.step] = saturate<T>(stretch(static_cast<float>(from[p * run.step])));
    });
  }
}

// --- Bytes, by ndd/color/pixels.cuh ---------------------------------------------------------------------

struct Nothing {};
using ByteRun = pixels::PixelRun<Nothing>;

// The extremes of kChannels interleaved channels.
// A functor of pixels.cuh without output: `out` has the one word that an array needs. The references lead to registers of the thread.
template <int kChannels>
struct ByteExtremes {
  uint32_t (*least)[kChannels], (*largest)[kChannels];

  __device__ __forceinline__ void add(uint32_t level, int c) const {
    (*least)[c] = min((*least)[c], level);
    (*largest)[c] = max((*largest)[c], level);
  }
  __device__ __forceinline__ void operator()(int64_t, const uint32_t (&in)[kChannels], uint32_t (&)[1]) const {
#pragma unroll
    for (int e = 0; e < 4 * kChannels; ++e) add(pixels::byte_of(in[e / 4], e % 4), e % kChannels);
  }
  // The pixels before and after the aligned words, one at a time.
  __device__ __forceinline__ void look_at(const uint8_t* in) const {
#pragma unroll
    for (int c = 0; c < kChannels; ++c) add(in[c], c);
  }
};

template <int kChannels>
__global__ void __launch_bounds__(pixels::kThreads, pixels::kResident)
    byte_extremes_gpu(const __grid_constant__ TableRows<ByteRun> runs, int64_t count, Extremes* parts) {
  __shared__ uint4 stages[pixels::kWarps * pixels::kStage];
  __shared__ Extremes shared[kThreads];
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const ByteRun run = runs[k];
    assume_global(run.in);
    uint32_t least[kChannels], largest[kChannels];
    // In registers: the loop over channels below is unrolled, so no index depends on the data.
    for (int c = 0; c < kChannels; ++c) least[c] = 255, largest[c] = 0;
    const ByteExtremes<kChannels> extremes{&least, &largest};
    pixels::map_pixels<kChannels, 0>(run.in, nullptr, run.pixels, run.head, blockIdx.x, kParts, stages, extremes);
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      const Extremes own{static_cast<float>(least[c]), static_cast<float>(largest[c])};
      const Extremes all = reduce_block(shared, own, [](const Extremes& a, const Extremes& b) { return a.merged_with(b); });
      if (threadIdx.x == 0) parts[(k * kChannels + c) * kParts + blockIdx.x] = all;
    }
  }
}

// A table of all levels for each channel takes less than a division for each element. The lanes of a warp find bytes in two wavefronts at most.
template <int kChannels>
struct ByteStretch {
  const uint8_t* tables;

  __device__ __forceinline__ void operator()(int64_t, const uint32_t (&in)[kChannels], uint32_t (&out)[kChannels]) const {
    pixels::map_each(in, out, [&](const uint32_t (&levels)[kChannels], uint32_t (&stretched)[kChannels]) {
#pragma unroll
      for (int c = 0; c < kChannels; ++c) stretched[c] = tables[c * kLevels + levels[c]];
    });
  }
};

// Tiles that share the tables, whose levels take a division of each thread, and two barriers.
constexpr int kTilesOfTables = 4;

template <int kChannels>
__global__ void __launch_bounds__(pixels::kThreads, pixels::kResident)
    byte_stretch_gpu(const __grid_constant__ TableRows<ByteRun> runs, BatchTiles batch, const Extremes* parts) {
  static_assert(kParts == 32 && kThreads == kLevels);  // a lane for each part, a thread for each level
  __shared__ uint4 stages[pixels::kWarps * pixels::kStage];
  __shared__ uint8_t tables[kChannels * kLevels];
  for_each_tile(batch, [&](uint32_t k, uint32_t tile) {
    const ByteRun run = runs[k];
    assume_global(run.in, run.out);
    __syncthreads();  // the last tables are not read any more
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      Extremes all = parts[(k * kChannels + c) * kParts + threadIdx.x % 32];
      // After five exchanges every lane has the extremes of all parts, and needs no further exchange to compute its level.
      for (int d = 1; d < 32; d *= 2)
        all = all.merged_with({__shfl_xor_sync(0xFFFFFFFFu, all.least, d), __shfl_xor_sync(0xFFFFFFFFu, all.largest, d)});
      const Stretch stretch(all.least, all.largest, 255.0f, true);
      tables[c * kLevels + threadIdx.x] = static_cast<uint8_t>(stretch(static_cast<float>(threadIdx.x)));
    }
    __syncthreads();
    pixels::map_pixels<kChannels, kChannels>(run.in, run.out, run.pixels, run.head, tile, batch.across.value, stages, ByteStretch<kChannels>{tables});
  });
}

// Returns false, without launching, if not all planes have that number of channels and can be aligned.
template <int kChannels>
bool launch_bytes(const Samples& in, const Samples& out, int64_t leading, bool interleaved) {
  std::vector<ByteRun> runs;
  for (int64_t i = 0; i < in.size(); ++i) {
    const PixelPlanes p(in, i, leading, interleaved);
    if (p.channels != kChannels) return false;
    for (int64_t k = 0; k < p.planes && p.pixels > 0; ++k)
      runs.push_back({static_cast<const uint8_t*>(in.data(i)) + k * p.volume(), static_cast<uint8_t*>(out.data(i)) + k * p.volume(), p.pixels, {}});
  }
  if (!pixels::align_runs<kChannels, kChannels>(runs)) return false;
  if (runs.empty()) return true;
  const auto count = static_cast<int64_t>(runs.size());
  const KernelTable<ByteRun> table(runs);
  // Nothing needs to be cleared first: each part is written by its block, even if it has no elements.
  const CudaBuffer parts(count * kChannels * kParts * static_cast<int64_t>(sizeof(Extremes)));
  auto* const extremes = static_cast<Extremes*>(parts.data());
  const BatchTiles batch = batch_tiles(pixels::most_pixels(runs), kTilesOfTables * pixels::kTile, count);
  const cudaStream_t stream = current_cuda_stream();
  byte_extremes_gpu<kChannels><<<batch_grid(kParts, 1, count), pixels::kThreads, 0, stream>>>(table.rows(), count, extremes);
  byte_stretch_gpu<kChannels><<<resident_blocks(batch, pixels::kResident), pixels::kThreads, 0, stream>>>(table.rows(), batch, extremes);
  return true;
}

void autocontrast_gpu(const Samples& in, const Samples& out, int64_t leading, bool interleaved) {
  // The number of channels is a template parameter, so bytes of words are assigned to channels at compile time. Others take the general
  // kernels.
  if (in.dtype() == DType::uint8 && (launch_bytes<3>(in, out, leading, interleaved) || launch_bytes<1>(in, out, leading, interleaved)))
    return check_launch("autocontrast");
  std::vector<Run> runs;
  int64_t max_pixels = 0;
  for (int64_t i = 0; i < in.size(); ++i) {
    const PixelPlanes p(in, i, leading, interleaved);
    max_pixels = std::max(max_pixels, p.pixels);
    for (int64_t k = 0; k < p.planes && p.pixels > 0; ++k)
      // One run per channel, whose elements lie `channels` apart: the kernels need no division by the number of channels.
      for (int64_t c = 0; c < p.channels; ++c) {
        const int64_t first = (k * p.volume() + c) * in.item_bytes();
        runs.push_back({static_cast<const char*>(in.data(i)) + first, static_cast<char*>(out.data(i)) + first, p.pixels, p.channels});
      }
  }
  if (runs.empty()) return;
  const auto count = static_cast<int64_t>(runs.size());
  const KernelTable<Run> table(runs);
  const CudaBuffer parts(count * kParts * static_cast<int64_t>(sizeof(Extremes)));
  const cudaStream_t stream = current_cuda_stream();
  extremes_gpu<<<batch_grid(kParts, 1, count), kThreads, 0, stream>>>(table.rows(), count, in.dtype(), static_cast<Extremes*>(parts.data()));
  stretch_gpu<<<batch_grid(max_pixels, 8 * kThreads, count), kThreads, 0, stream>>>(
      table.rows(), count, in.dtype(), value_range(in.dtype()), !is_floating_dtype(in.dtype()), static_cast<const Extremes*>(parts.data()));
  check_launch("autocontrast");
}
#endif

void autocontrast(const Tensor& input, const MaybeTensor& input_shapes, int64_t leading, bool interleaved, const Tensor& output,
                  const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  check_same("autocontrast", out, in);
#ifdef __CUDACC__
  if (input.is_cuda()) return autocontrast_gpu(in, out, leading, interleaved);
#endif
  launch_cpu("autocontrast", in.size(), kNanosecondsPerElement * in.mean_volume(), {}, [=](int64_t i) {
    const PixelPlanes p(in, i, leading, interleaved);
    const int64_t bytes = p.volume() * in.item_bytes();
    const char* from = static_cast<const char*>(in.data(i));
    char* to = static_cast<char*>(out.data(i));
    for (int64_t k = 0; k < p.planes && bytes > 0; ++k, from += bytes, to += bytes) {
      if (in.dtype() == DType::uint8) stretch_bytes(reinterpret_cast<const uint8_t*>(from), p.pixels, p.channels, reinterpret_cast<uint8_t*>(to));
      else stretch_rows(from, in.dtype(), p.pixels, p.channels, to);
    }
  });
}

}  // namespace
}  // namespace ndd::autocontrast_kernels
NDD_KERNELS(autocontrast, ndd::autocontrast_kernels::autocontrast)
