// SPDX-License-Identifier: Apache-2.0
// Random driver: out[e] = f(words of element e), with one Philox stream per sample.
//
// The kernel supplies f, a small struct marked NDD_HD that makes an element of type F::Value (float or double) from its words: one uint32_t for
// float, two for double.
//
// Element e always uses the same words. Samples therefore do not depend on the batch, the device or the threads, and a longer sample begins like a
// shorter one.
//
// Use it for operators that only draw: an element has its words and the arguments of its sample, and no input. noise.h is for what is added to
// an image.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ndd/args.h"
#include "ndd/elementwise/rows.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/random/philox.h"
#include "ndd/samples.h"
#include "ndd/simd.h"
#include "ndd/stream/stream.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#include "ndd/elementwise/batch_tiles.cuh"
#include "ndd/elementwise/vectors.cuh"
#endif

namespace ndd {

// 480 x 640 numbers take 0.2 ms.
constexpr double kRandomNanoseconds = 0.7;

// Whether results are computed in double: types for which float32 would be too coarse.
inline bool random_in_double(DType dtype) { return item_bytes(dtype) >= 4 && dtype != DType::float32; }

namespace random_detail {

// Philox blocks per step on the CPU: 4 kB of words.
constexpr int64_t kBlocks = 256;

// The number of blocks for n elements, rounded up to the step of Philox::fill: a batch of 64 samples of one number then takes 4 us instead of 100 (a
// full row of kBlocks each).
inline int64_t blocks_for(int64_t n, int64_t each) { return (n + 8 * each - 1) / (8 * each) * 8; }

// Element e from its words: one each for float, two for double.
template <class F>
NDD_HD auto element(const F& f, const uint32_t* words, int64_t e) {
  if constexpr (std::is_same_v<typename F::Value, float>) return f(words[e]);
  else return f(words[2 * e], words[2 * e + 1]);
}

// Elements per Philox block.
template <class F>
constexpr int64_t per_block = std::is_same_v<typename F::Value, float> ? 4 : 2;

template <class F, class Out>
void map_row(const F& functor, const uint32_t* words, int64_t n, void* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const F f = functor;
    const uint32_t* __restrict src = words;
    Out* __restrict dst = static_cast<Out*>(out);
    const int64_t count = n;
    for (int64_t e = 0; e < count; ++e) dst[e] = saturate<Out>(element(f, src, e));
  });
}

// Results of the functor's own type, uint8 and int32 are stored directly, others through a row of the functor's type.
template <class F>
void fill_sample(const F& f, const Philox& stream, int64_t count, DType dtype, void* out) {
  using Value = typename F::Value;
  constexpr bool kFloat = std::is_same_v<Value, float>;
  // Elements of kBlocks blocks of Philox, whose words stay in the first-level cache.
  constexpr int64_t kRow = kBlocks * per_block<F>;
  void (*map)(const F&, const uint32_t*, int64_t, void*) = map_row<F, Value>;
  StoreRowOf<Value> store = dtype == (kFloat ? DType::float32 : DType::float64) ? nullptr : row_storer<Value>(dtype);
  if constexpr (kFloat) {
    if (dtype == DType::uint8) map = map_row<F, uint8_t>, store = nullptr;
    if (dtype == DType::int32) map = map_row<F, int32_t>, store = nullptr;
  }
  alignas(64) uint32_t words[4 * kBlocks];
  alignas(64) Value values[kRow];
  for (int64_t begin = 0; begin < count; begin += kRow) {
    const int64_t n = std::min(kRow, count - begin);
    char* const to = static_cast<char*>(out) + begin * item_bytes(dtype);
    stream.fill(static_cast<uint32_t>(begin / per_block<F>), blocks_for(n, per_block<F>), words);
    map(f, words, n, store ? static_cast<void*>(values) : to);
    if (store) store(values, n, to);
  }
}

#ifdef __CUDACC__
// A sample, as the kernel sees it.
template <class F>
struct Run {
  F f;
  Philox stream;
  int64_t count;
  void* out;
};

constexpr int kThreads = 256, kResident = 4;
constexpr int kBlocksOfThread = 4;  // Philox blocks for each tile that a thread begins

// Each thread computes one Philox block (80 to 100 issue slots) and stores once, at a time. According to the machine code this is bound by arithmetic:
// about at the memory bandwidth for four float32 (16 bytes), below it for narrower types and for functors with much arithmetic of their own.
template <class F>
__global__ void __launch_bounds__(kThreads, kResident) run_gpu(const __grid_constant__ TableRows<Run<F>> runs, BatchTiles batch, DType dtype) {
  constexpr int kEach = static_cast<int>(per_block<F>), kTile = kThreads * kBlocksOfThread * kEach;
  for_each_tile(batch, [&](uint32_t k, uint32_t tile) {
    const Run<F> run = runs[k];
    assume_global(run.out);
    for (int64_t first = int64_t{tile} * kTile; first < run.count; first += int64_t{batch.across.value} * kTile) {
#pragma unroll 1
      for (int b = 0; b < kBlocksOfThread; ++b) {
        const int64_t begin = first + (b * kThreads + static_cast<int>(threadIdx.x)) * kEach;
        if (begin >= run.count) break;
        uint32_t words[4];
        run.stream.compute(static_cast<uint32_t>(begin / kEach), words);
        typename F::Value values[kEach];
#pragma unroll
        for (int e = 0; e < kEach; ++e) values[e] = element(run.f, words, e);
        for_dtype(dtype, [&](auto tag) {
          using Out = typename decltype(tag)::type;
          Out result[kEach];
#pragma unroll
          for (int e = 0; e < kEach; ++e) result[e] = saturate<Out>(values[e]);
          store_some(result, run.count - begin, static_cast<Out*>(run.out) + begin);
        });
      }
    }
  });
}

template <class F>
void launch_gpu(const std::string& op, const std::vector<Run<F>>& runs, DType dtype) {
  int64_t most = 0;
  for (const Run<F>& run : runs) most = std::max(most, run.count);
  if (most == 0) return;
  const KernelTable<Run<F>> table(runs);
  const BatchTiles batch = batch_tiles(most, kThreads * kBlocksOfThread * per_block<F>, static_cast<int64_t>(runs.size()));
  run_gpu<<<resident_blocks(batch, kResident), kThreads, 0, current_cuda_stream()>>>(table.rows(), batch, dtype);
  check_launch(op.c_str());
}
#endif

}  // namespace random_detail

// The words drawn for a call.
inline const int64_t* drawn_words(const std::string& op, const Tensor& words) {
  // Philox(words, sample) reads four.
  if (words.numel() < 4 || words.dtype() != DType::int64) fail(Error::Value, op, ": rng gave too few words");
  check_numbers(words);
  return static_cast<const int64_t*>(words.data_ptr());
}

// Fills sample i with make_functor(i). `words` are those drawn for the call, `nanoseconds` is the cost per element.
template <class Make>
static void fill_random(const std::string& op, const Tensor& words, const Samples& out, Make make_functor, double nanoseconds = kRandomNanoseconds) {
  using namespace random_detail;
  const int64_t* drawn = drawn_words(op, words);
#ifdef __CUDACC__
  if (out.values().is_cuda()) {
    std::vector<Run<decltype(make_functor(0))>> runs;
    for (int64_t i = 0; i < out.size(); ++i) runs.push_back({make_functor(i), Philox(drawn, i), out.volume(i), out.data(i)});
    return launch_gpu(op, runs, out.dtype());
  }
#endif
  launch_cpu(op, out.size(), nanoseconds * out.mean_volume(), {words},
             [=](int64_t i) { fill_sample(make_functor(i), Philox(drawn, i), out.volume(i), out.dtype(), out.data(i)); });
}

}  // namespace ndd
