// SPDX-License-Identifier: Apache-2.0
// Noise driver: out[e] = F::combine(in[e], noise of element e), in the type of the input, with one Philox stream per sample.
//
// The kernel supplies f, a small struct shared by CPU and CUDA, with
//   bool keeps()                                                the output equals the input, no noise is drawn
//   NDD_HD void operator()(const float* in, const uint32_t* words, int n, float* noise)  one word per element; `in` is null unless F::kReadsInput
//   template <class T> static NDD_HD T combine(T in, float noise)
//
// The noise of an element depends only on the drawn words, the sample and the element's index: not on the batch, the device or the threads.
//
// Use it where each element of an input gets noise of its own. Noise that pixels share, or that replaces them, draws its words itself with
// Philox (ops/noise/salt_and_pepper.cu).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ndd/elementwise/rows.h"
#include "ndd/random/random.h"
#include "ndd/simd.h"
#ifdef __CUDACC__
#include "ndd/elementwise/batch_tiles.cuh"
#endif

namespace ndd {

// The type in which noise is added: float is exact for elements of up to 24 bits.
template <class T>
using NoiseSum = std::conditional_t<sizeof(T) <= 2 || std::is_same_v<T, float>, float, double>;

namespace noise_detail {

// Elements per step on the CPU: words, values and noise of a step stay in the first-level cache.
constexpr int64_t kRow = 1024;

template <class F>
void noise_row(const F& functor, const float* in, const uint32_t* words, int n, float* noise) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const F f = functor;
    f(in, words, n, noise);
  });
}

template <class F, class T>
void combine_row(const void* in, const float* noise, int64_t n, void* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const T* __restrict src = static_cast<const T*>(in);
    const float* __restrict add = noise;
    T* __restrict dst = static_cast<T*>(out);
    const int64_t count = n;
    for (int64_t e = 0; e < count; ++e) dst[e] = F::combine(src[e], add[e]);
  });
}

template <class F>
void run_cpu(const F& f, const Philox& stream, const void* in, int64_t count, DType dtype, void* out) {
  const int64_t bytes = item_bytes(dtype);
  if (f.keeps()) {
    if (count > 0) std::memcpy(out, in, count * bytes);
    return;
  }
  // Chosen once per sample, so the switch over types is not in the loop.
  void (*combine)(const void*, const float*, int64_t, void*) = nullptr;
  for_dtype(dtype, [&](auto tag) { combine = combine_row<F, typename decltype(tag)::type>; });
  const LoadRow load = row_loader(dtype);
  alignas(64) uint32_t words[kRow];
  alignas(64) float row[kRow], noise[kRow];
  const char* from = static_cast<const char*>(in);
  char* to = static_cast<char*>(out);
  for (int64_t begin = 0; begin < count; begin += kRow, from += kRow * bytes, to += kRow * bytes) {
    const int64_t n = std::min(kRow, count - begin);
    // A block has four words, one per element; the last row computes some too many.
    stream.fill(static_cast<uint32_t>(begin / 4), kRow / 4, words);
    if (F::kReadsInput) load(from, n, row);
    noise_row(f, row, words, static_cast<int>(n), noise);
    combine(from, noise, n, to);
  }
}

#ifdef __CUDACC__
// A sample, as the kernel sees it.
template <class F>
struct Run {
  F f;
  Philox stream;
  int64_t count;
  const void* in;
  void* out;
};

constexpr int kThreads = 256, kResident = 3;  // 80 registers for a thread: with 64, some are spilled
constexpr int kBlocksOfThread = 4;  // Philox blocks, of four elements each, for each tile that a thread begins
constexpr int kTile = kThreads * kBlocksOfThread * 4;

// Four elements of any type, which are loaded before their noise is computed.
struct RawElements {
  alignas(16) unsigned char bytes[32];

  template <class T>
  __device__ __forceinline__ void load(const T* from, int64_t n) {
    T elements[4] = {};
    load_some(from, n, elements);
    memcpy(bytes, elements, sizeof(elements));
  }
  template <class T>
  __device__ __forceinline__ void get(T (&elements)[4]) const {
    memcpy(elements, bytes, sizeof(elements));
  }
};

// Each thread computes one Philox block, four elements, at a time. That takes some 300 issue slots, so the kernel is bound by arithmetic: half of the
// bandwidth for float32, less for narrower types. Every element is read and written once, four at a time.
template <class F>
__global__ void __launch_bounds__(kThreads, kResident) run_gpu(const __grid_constant__ TableRows<Run<F>> runs, BatchTiles batch, DType dtype) {
  for_each_tile(batch, [&](uint32_t k, uint32_t tile) {
    const Run<F> run = runs[k];
    assume_global(run.in, run.out);
    const bool keeps = run.f.keeps();
    for (int64_t first = int64_t{tile} * kTile; first < run.count; first += int64_t{batch.across.value} * kTile) {
#pragma unroll 1
      for (int b = 0; b < kBlocksOfThread; ++b) {
        const int64_t begin = first + (b * kThreads + static_cast<int>(threadIdx.x)) * 4, left = run.count - begin;
        if (left <= 0) break;
        RawElements raw;
        for_bytes(item_bytes(dtype), [&](auto tag) {
          using Bits = typename decltype(tag)::type;
          raw.load(static_cast<const Bits*>(run.in) + begin, left);
        });
        float values[4] = {}, noise[4] = {};
        if (F::kReadsInput) {
          for_dtype(dtype, [&](auto tag) {
            typename decltype(tag)::type in[4];
            raw.get(in);
#pragma unroll
            for (int e = 0; e < 4; ++e) values[e] = static_cast<float>(in[e]);
          });
        }
        if (!keeps) {
          uint32_t words[4];
          run.stream.compute(static_cast<uint32_t>(begin / 4), words);
#pragma unroll
          for (int e = 0; e < 4; ++e) run.f(values + e, words + e, 1, noise + e);
        }
        for_dtype(dtype, [&](auto tag) {
          using T = typename decltype(tag)::type;
          T in[4], result[4];
          raw.get(in);
#pragma unroll
          for (int e = 0; e < 4; ++e) result[e] = keeps ? in[e] : F::combine(in[e], noise[e]);
          store_some(result, left, static_cast<T*>(run.out) + begin);
        });
      }
    }
  });
}

template <class Make>
auto make_runs(const int64_t* drawn, const Samples& in, const Samples& out, Make make_functor) {
  std::vector<Run<decltype(make_functor(0))>> runs;
  for (int64_t i = 0; i < in.size(); ++i) runs.push_back({make_functor(i), Philox(drawn, i), in.volume(i), in.data(i), out.data(i)});
  return runs;
}

template <class F>
void launch_gpu(const std::string& op, const std::vector<Run<F>>& runs, DType dtype) {
  int64_t most = 0;
  for (const Run<F>& run : runs) most = std::max(most, run.count);
  if (most == 0) return;
  const KernelTable<Run<F>> table(runs);
  const BatchTiles batch = batch_tiles(most, kTile, static_cast<int64_t>(runs.size()));
  run_gpu<<<resident_blocks(batch, kResident), kThreads, 0, current_cuda_stream()>>>(table.rows(), batch, dtype);
  check_launch(op.c_str());
}
#endif

}  // namespace noise_detail

// Applies make_functor(i) to sample i. `words` are those drawn for the call, `nanoseconds` is the cost per element.
template <class Make>
static void add_noise(const std::string& op, const Tensor& words, const Samples& in, const Samples& out, double nanoseconds, Make make_functor) {
  using namespace noise_detail;
  check_same(op.c_str(), out, in);
  const int64_t* drawn = drawn_words(op, words);
#ifdef __CUDACC__
  if (in.values().is_cuda()) return launch_gpu(op, make_runs(drawn, in, out, make_functor), in.dtype());
#endif
  launch_cpu(op, in.size(), nanoseconds * in.mean_volume(), {words},
             [=](int64_t i) { run_cpu(make_functor(i), Philox(drawn, i), in.data(i), in.volume(i), in.dtype(), out.data(i)); });
}

}  // namespace ndd
