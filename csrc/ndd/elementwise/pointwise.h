// SPDX-License-Identifier: Apache-2.0
// Pointwise driver: out[i] = f(in[i]) in float, for every pair of element types, on the device of the tensors.
//
// The kernel supplies f, a small struct with `float operator()(float) const` marked NDD_HD, shared by CPU and CUDA. It holds the arguments of one run
// of elements: a sample, or a single frame if arguments are given per frame. Two optional members serve uint8 on the CPU: `uint8_t of_byte(uint8_t)
// const` computes the same in integers, and `static constexpr bool kCostly = true` says that a table lookup is faster than evaluating f.
//
// The driver guarantees that every element is read and written exactly once, for any alignment, and that results are converted by saturate().
//
// Use it where an output element depends on the element at the same place and on nothing else. A function of bytes that is the same for a whole
// image, such as equalization, is a table of 256 entries instead (lut.h); one of several inputs has its own loops (ops/math, with broadcast.h
// and tiles.cuh).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ndd/args.h"
#include "ndd/elementwise/lut.h"
#include "ndd/elementwise/rows.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/samples.h"
#include "ndd/simd.h"
#include "ndd/stream/stream.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#include "ndd/elementwise/batch_tiles.cuh"
#include "ndd/elementwise/tiles.cuh"
#include "ndd/elementwise/vectors.cuh"
#endif

namespace ndd {

// A uint8 VGA image takes 20 us, a float32 one 180 us.
constexpr double kPointwiseNanoseconds = 0.1, kByteNanoseconds = 0.025;

// What a kernel gets for each sample or frame: `count` elements from `in` to `out`, and the functor with their arguments.
template <class F>
struct PointwiseRun {
  const void* in;
  void* out;
  int64_t count;
  F f;
};

namespace pointwise_detail {

template <class In, class Out, class F>
void direct(const void* in, void* out, int64_t n, const F& functor) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const In* __restrict src = static_cast<const In*>(in);
    Out* __restrict dst = static_cast<Out*>(out);
    const int64_t count = n;
    const F f = functor;
    for (int64_t i = 0; i < count; ++i) dst[i] = saturate<Out>(f(static_cast<float>(src[i])));
  });
}

template <class F, class = void>
inline constexpr bool has_bytes = false;
template <class F>
inline constexpr bool has_bytes<F, std::void_t<decltype(std::declval<const F&>().of_byte(uint8_t{}))>> = true;

template <class F, class = void>
inline constexpr bool is_costly = false;
template <class F>
inline constexpr bool is_costly<F, std::void_t<decltype(F::kCostly)>> = F::kCostly;

// Vectorizes to 32 bytes at a time: a VGA image takes 20 us.
template <class F>
void direct_bytes(const void* in, void* out, int64_t n, const F& functor) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const uint8_t* __restrict src = static_cast<const uint8_t*>(in);
    uint8_t* __restrict dst = static_cast<uint8_t*>(out);
    const int64_t count = n;
    const F f = functor;
    for (int64_t i = 0; i < count; ++i) dst[i] = f.of_byte(src[i]);
  });
}

// From this size on, a function of a byte is tabulated: a VGA image takes 30 us through the table and 75 us by arithmetic.
constexpr int64_t kTableFrom = 4096;  // elements
constexpr int64_t kCostlyTableFrom = 512;

template <class F>
void through_table(const PointwiseRun<F>& run) {
  uint8_t levels[kLevels], table[kLevels];
  for (int v = 0; v < kLevels; ++v) levels[v] = static_cast<uint8_t>(v);
  direct<uint8_t, uint8_t>(levels, table, kLevels, run.f);
  map_levels(static_cast<const uint8_t*>(run.in), run.count, 1, table, static_cast<uint8_t*>(run.out));
}

// Direct loops for the common pairs of types. The others go through rows of floats in the L1 cache, so a functor is compiled into five loops
// instead of 169.
template <class F>
void run_cpu(const PointwiseRun<F>& run, DType in, DType out) {
  if constexpr (has_bytes<F>) {
    if (in == DType::uint8 && out == DType::uint8) return direct_bytes(run.in, run.out, run.count, run.f);
  }
  const bool looked_up = is_costly<F> ? run.count >= kCostlyTableFrom : run.count >= kTableFrom && maps_levels_in_registers();
  if (in == DType::uint8 && out == DType::uint8 && looked_up) return through_table(run);
  if (in == DType::uint8 && out == DType::uint8) return direct<uint8_t, uint8_t>(run.in, run.out, run.count, run.f);
  if (in == DType::uint8 && out == DType::float32) return direct<uint8_t, float>(run.in, run.out, run.count, run.f);
  if (in == DType::float32 && out == DType::float32) return direct<float, float>(run.in, run.out, run.count, run.f);
  constexpr int64_t kRow = 2048;
  alignas(64) float row[kRow], mapped[kRow];
  const LoadRow load = row_loader(in);
  const StoreRow store = row_storer(out);
  const char* from = static_cast<const char*>(run.in);
  char* to = static_cast<char*>(run.out);
  for (int64_t begin = 0; begin < run.count; begin += kRow) {
    const int64_t n = std::min(kRow, run.count - begin);
    load(from + begin * item_bytes(in), n, row);
    direct<float, float>(row, mapped, n, run.f);
    store(mapped, n, to + begin * item_bytes(out));
  }
}

// The number of frames that arguments are given for: 1 if all frames share them, otherwise the fewest columns of the arguments that have one per
// frame.
inline int64_t frame_arguments(std::initializer_list<const Args<float>*> arguments) {
  int64_t frames = 1;
  for (const auto* argument : arguments)
    if (argument->cols() > 1) frames = frames > 1 ? std::min(frames, argument->cols()) : argument->cols();
  return frames;
}

// Visits the runs of sample i. `frame_arguments` is the number of frames that arguments are given for.
template <class Make, class Visit>
void for_each_run(const std::string& op, const Samples& in, const Samples& out, int64_t i, int64_t frame_arguments, const Make& make_functor,
                  Visit visit) {
  const int64_t frames = frame_arguments > 1 ? in.shape(i)[0] : 1;
  if (frames > frame_arguments) fail(op, ": sample ", i, " has ", frames, " frames, its arguments are for ", frame_arguments);
  const int64_t count = frames > 0 ? in.volume(i) / frames : 0, out_count = frames > 0 ? out.volume(i) / frames : 0;
  const char* from = static_cast<const char*>(in.data(i));
  char* to = static_cast<char*>(out.data(i));
  for (int64_t f = 0; f < frames; ++f, from += count * in.item_bytes(), to += out_count * out.item_bytes())
    visit(PointwiseRun<decltype(make_functor(i, f))>{from, to, count, make_functor(i, f)});
}

#ifdef __CUDACC__
constexpr int kResident = 4;  // blocks of a multiprocessor: 64 registers for a thread, and twice as many bytes in flight as the bandwidth needs
constexpr int kTileRows = 2;
static_assert(kVectorThreads == tiles::kThreads && kVectorThreads == kLevels);

// Elements of a tile for a pair of types.
inline int64_t tile_elements(DType in, DType out) {
  if (!for_common_pair(in, out, [](auto, auto) {})) return tiles::elements<kTileRows>;
  return int64_t{kVectorThreads} * kVectorsInFlight * 16 / std::max(item_bytes(in), item_bytes(out));
}

// Handles any pair of types, in tiles. Bytes are looked up in `levels` unless it is null.
template <class F>
__device__ __forceinline__ void run_tiles(const PointwiseRun<F>& run, DType in, DType out, uint32_t tile, uint32_t across,
                                          const float* levels = nullptr) {
  tiles::for_each<kTileRows>(run.out, item_bytes(out), run.count, tile, across, [&](auto at) {
    float values[decltype(at)::kRows][decltype(at)::kElements];
    if (levels != nullptr) {
      tiles::load_of<uint8_t>(run.in, at, values, [&](uint8_t value) { return levels[value]; });
    } else {
      tiles::load(run.in, in, at, values, tiles::AsFloat{});
#pragma unroll
      for (auto& row : values)
#pragma unroll
        for (float& value : row) value = run.f(value);
    }
    tiles::store(values, run.out, out, at, tiles::Saturated{});
  });
}

template <class Out, class F, class In>
__device__ __forceinline__ Out map_element(const F& f, In value) {
  if constexpr (has_bytes<F> && std::is_same_v<In, uint8_t> && std::is_same_v<Out, uint8_t>) return f.of_byte(value);
  else return saturate<Out>(f(static_cast<float>(value)));
}

template <class F>
__global__ void __launch_bounds__(kVectorThreads, kResident)
    run_gpu(const __grid_constant__ TableRows<PointwiseRun<F>> runs, BatchTiles batch, DType in, DType out) {
  for_each_tile(batch, [&](uint32_t k, uint32_t tile) {
    const PointwiseRun<F> run = runs[k];
    assume_global(run.in, run.out);
    const auto vectors = [&](auto in_tag, auto out_tag) {
      using In = typename decltype(in_tag)::type;
      using Out = typename decltype(out_tag)::type;
      map_vectors(static_cast<const In*>(run.in), static_cast<Out*>(run.out), run.count, tile, batch.across.value,
                  [&](In value) { return map_element<Out>(run.f, value); });
    };
    if (!for_common_pair(in, out, vectors)) run_tiles(run, in, out, tile, batch.across.value);
  });
}

// Tiles that share a table of all levels: filling it takes a call of the functor and two barriers, against 128 lookups of each thread.
constexpr int kTilesOfTable = 4;

// For functors whose arithmetic takes longer than the memory traffic, whatever the access width. Bytes are looked up in a table of their 256 levels,
// in shared memory: one of bytes has two words in each bank, so a lookup takes at most two wavefronts. Other types have one loop for all of them,
// rather than a loop per common pair in which the functor is unrolled 33 times.
template <class F>
__global__ void __launch_bounds__(kVectorThreads, kResident)
    run_costly_gpu(const __grid_constant__ TableRows<PointwiseRun<F>> runs, BatchTiles batch, DType in, DType out) {
  __shared__ float levels[kLevels];
  __shared__ uint8_t bytes[kLevels];
  for_each_tile(batch, [&](uint32_t k, uint32_t tile) {
    const PointwiseRun<F> run = runs[k];
    assume_global(run.in, run.out);
    if (in == DType::uint8) {
      __syncthreads();  // the last table is not read any more
      const float level = run.f(static_cast<float>(threadIdx.x));
      levels[threadIdx.x] = level;
      bytes[threadIdx.x] = saturate<uint8_t>(level);
      __syncthreads();
    }
    if (in == DType::uint8 && out == DType::uint8) {
      map_vectors(static_cast<const uint8_t*>(run.in), static_cast<uint8_t*>(run.out), run.count, tile, batch.across.value,
                  [&](uint8_t value) { return bytes[value]; });
    } else {
      run_tiles(run, in, out, tile, batch.across.value, in == DType::uint8 ? levels : nullptr);
    }
  });
}

// Launches once for all runs. Every byte is read and written once. According to the machine code all pairs of types are memory-bound, except those with
// 64-bit types, whose conversions run at an eighth of the rate.
template <class F>
void launch_gpu(const std::string& op, const std::vector<PointwiseRun<F>>& all_runs, DType in, DType out) {
  const auto runs = join_runs(all_runs, [=](PointwiseRun<F>& last, const PointwiseRun<F>& next) {
    const bool follows = static_cast<const char*>(last.in) + last.count * item_bytes(in) == next.in &&
                         static_cast<char*>(last.out) + last.count * item_bytes(out) == next.out;
    if (!follows || std::memcmp(&last.f, &next.f, sizeof(F)) != 0) return false;
    last.count += next.count;
    return true;
  });
  int64_t most = 0;
  for (const auto& run : runs) most = std::max(most, run.count);
  if (most == 0) return;
  const KernelTable<PointwiseRun<F>> table(runs);
  const int64_t shared = is_costly<F> && in == DType::uint8 ? kTilesOfTable : 1;
  const int64_t elements = is_costly<F> && !(in == DType::uint8 && out == DType::uint8) ? tiles::elements<kTileRows> : tile_elements(in, out);
  const BatchTiles batch = batch_tiles(most, shared * elements, static_cast<int64_t>(runs.size()));
  const auto kernel = [] {
    if constexpr (is_costly<F>) return run_costly_gpu<F>;
    else return run_gpu<F>;
  }();
  kernel<<<resident_blocks(batch, kResident), kVectorThreads, 0, current_cuda_stream()>>>(table.rows(), batch, in, out);
  check_launch(op.c_str());
}
#endif

}  // namespace pointwise_detail

// Applies make_functor(i, f) to frame f of sample i. `arguments` lists those that may have a column per frame.
template <class Make>
static void pointwise(const std::string& op, const Samples& in, const Samples& out, std::initializer_list<const Args<float>*> arguments,
                      Make make_functor) {
  using namespace pointwise_detail;
  check_outputs(op.c_str(), out, in);
  const int64_t columns = frame_arguments(arguments);
#ifdef __CUDACC__
  if (in.values().is_cuda()) {
    std::vector<PointwiseRun<decltype(make_functor(0, 0))>> runs;
    for (int64_t i = 0; i < in.size(); ++i) for_each_run(op, in, out, i, columns, make_functor, [&](const auto& run) { runs.push_back(run); });
    return launch_gpu(op, runs, in.dtype(), out.dtype());
  }
#endif
  const bool bytes = in.dtype() == DType::uint8 && out.dtype() == DType::uint8;
  const double cost = (bytes ? kByteNanoseconds : kPointwiseNanoseconds) * in.mean_volume();
  launch_cpu(op, in.size(), cost, {}, [=](int64_t i) {
    for_each_run(op, in, out, i, columns, make_functor, [&](const auto& run) { run_cpu(run, in.dtype(), out.dtype()); });
  });
}

}  // namespace ndd
