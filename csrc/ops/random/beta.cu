// SPDX-License-Identifier: Apache-2.0
// random.beta by rejection: every attempt has words of its own, so an element's number does not depend on how often its neighbors were rejected.
#include <algorithm>
#include <cmath>

#include "ndd/elementwise/rows.h"
#include "ndd/kernel.h"
#include "ndd/random/normal.h"
#include "ndd/random/random.h"
#ifdef __CUDACC__
#include "ndd/launch_runs.cuh"
#endif

namespace ndd::beta_kernels {
namespace {

// X / (X + Y) for gamma-distributed X and Y, of Marsaglia and Tsang ("A simple method for generating gamma variables", 2000): an attempt makes both
// from two normal and two uniform numbers and succeeds with a probability of 0.9 or more. Attempt k of element e has its own words.
template <class T>
struct Gamma {
  T shape, d, c, log_d;  // the last three are those of a shape that is raised by 1 if it is below

  // d and c are those of the paper: shape - 1/3, and 1 / sqrt(9 d).
  static Gamma of(T shape) {
    const T d = (shape < 1 ? shape + 1 : shape) - T(1) / 3;
    return {shape, d, 1 / std::sqrt(9 * d), std::log(d)};
  }
  bool raised() const { return shape < 1; }
};

// One attempt of one number, in precision P.
template <class P>
struct Trial {
  P log_number;  // of the gamma-distributed number
  P certainty;  // positive: accepted; by less than an error of P: unsure

  template <bool raised, class T>
  static NDD_HD Trial of(const Gamma<T>& g, P z, P u) {
    // The logarithm of the probability to accept z is 0.5 z^2 + d (1 - v + log v) with v = (1 + c z)^3. Without cancellation it is
    // 3 d (log(1 + t) - t + t^2 / 2 - t^3 / 3) with t = c z.
    constexpr P k[] = {P(-1) / 4, P(1) / 5, P(-1) / 6, P(1) / 7, P(-1) / 8, P(1) / 9, P(-1) / 10, P(1) / 11};
    const P t = static_cast<P>(g.c) * z, one_plus_t = P(1) + t, positive = one_plus_t > P(0) ? one_plus_t : P(1), log_one_plus_t = log_of(positive),
            log_u = log_of(u);
    // The series where t is small and the direct form would cancel.
    const P series = t * t * t * t * polynomial(t, k), direct = log_one_plus_t - t + t * t * (P(0.5) - t * (P(1) / 3));
    const P chance = P(3) * static_cast<P>(g.d) * (t * t < P(0.0025) ? series : direct);
    P log_number = static_cast<P>(g.log_d) + P(3) * log_one_plus_t;
    // Given acceptance, u / min(1, chance) is again uniform; its power 1 / shape corrects for the raised shape.
    if (raised) log_number += g.shape < T(1) ? (log_u - (chance < P(0) ? chance : P(0))) / static_cast<P>(g.shape) : P(0);
    // v must be positive; an attempt with a negative one is rejected for sure.
    return {log_number, one_plus_t > P(0) ? chance - log_u : P(-1)};
  }
};

// 1 / (1 + exp(gap))
// Of the two exponentials only the one below 1, which cannot overflow.
template <class P>
NDD_HD P share(P gap) {
  const P odds = exp_of(gap > P(0) ? -gap : gap), larger = P(1) / (P(1) + odds), smaller = odds * larger;
  return gap > P(0) ? smaller : larger;
}

template <class T>
struct Beta {
  using Value = T;
  static constexpr int kBlocks = sizeof(T) / 4;  // of Philox an attempt
  // More than the error of `certainty`: 3 d times that of a logarithm, and d is below 1000 wherever there is one.
  static constexpr T kMargin = sizeof(T) == 4 ? T(1e-3) : T(1e-10);
  Gamma<T> a, b;

  bool raised() const { return a.raised() || b.raised(); }

  // Number k of the attempt's words; a double takes two.
  static NDD_HD float normal(const uint32_t* w, int k, float) { return normal_of(w[k]); }
  static NDD_HD double normal(const uint32_t* w, int k, double) { return normal_of(w[2 * k], w[2 * k + 1]); }
  static NDD_HD float uniform(const uint32_t* w, int k, float) { return open_uniform(w[k]); }
  static NDD_HD double uniform(const uint32_t* w, int k, double) { return open_uniform(w[2 * k], w[2 * k + 1]); }

  // Above kMargin: accepted, below -kMargin: rejected. Between them `surely` has to decide.
  template <bool raised>
  NDD_HD T quickly(const uint32_t* w, T& value) const {
    const T za = normal(w, 0, T()), zb = normal(w, 1, T());
    const Trial<T> x = Trial<T>::template of<raised>(a, za, uniform(w, 2, T())), y = Trial<T>::template of<raised>(b, zb, uniform(w, 3, T()));
    // X is d_a (1 + c_a z_a)^3. Without raised shapes the quotient of the numbers needs no logarithm.
    const T r = (T(1) + b.c * zb) / (T(1) + a.c * za);
    value = raised ? share(y.log_number - x.log_number) : T(1) / (T(1) + b.d / a.d * (r * r * r));
    return x.certainty < y.certainty ? x.certainty : y.certainty;
  }

  // In double throughout, for the few attempts that float32 cannot decide: CPU and GPU then agree.
  NDD_HD bool surely(const uint32_t* w, T& value) const {
    const Trial<double> x = Trial<double>::of<true>(a, normal(w, 0, T()), uniform(w, 2, T()));
    const Trial<double> y = Trial<double>::of<true>(b, normal(w, 1, T()), uniform(w, 3, T()));
    value = static_cast<T>(share(y.log_number - x.log_number));
    return (x.certainty >= 0.0) & (y.certainty >= 0.0);
  }

  NDD_HD bool attempt(const uint32_t* w, T& value) const {
    const T certainty = a.shape < T(1) || b.shape < T(1) ? quickly<true>(w, value) : quickly<false>(w, value);
    return certainty > kMargin || (!(certainty < -kMargin) && surely(w, value));
  }

  // Attempt k.
  NDD_HD bool succeeds(const Philox& stream, int64_t e, uint32_t k, T& value) const {
    uint32_t words[4 * kBlocks];
    for (int block = 0; block < kBlocks; ++block) {
      uint32_t four[4];
      // Each attempt of an element has a stream beside the sample's: whether other elements succeed does not change its words.
      stream.beside(k).compute(static_cast<uint32_t>(e * kBlocks + block), four);
      for (int w = 0; w < 4; ++w) words[4 * block + w] = four[w];
    }
    return attempt(words, value);
  }

  // From the k-th attempt on.
  NDD_HD T element(const Philox& stream, int64_t e, uint32_t k) const {
    T value;
    while (!succeeds(stream, e, k, value)) ++k;
    return value;
  }
};

// Elements whose first attempts are made together. Their words and results stay in the first-level cache.
constexpr int64_t kRow = 128;
// A row of fewer elements ends behind whole vectors: a number for each sample, as mixup draws it, would otherwise cost as much as 128.
constexpr int64_t kLanes = 16;

template <bool raised, class T>
void try_row(const Beta<T>& functor, const uint32_t* words, int64_t n, T* values, T* certainties) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const Beta<T> f = functor;
    const int64_t count = n;
    const uint32_t* __restrict src = words;
    T* __restrict dst = values;
    T* __restrict certainty = certainties;
    for (int64_t e = 0; e < count; ++e) {
      T value;
      certainty[e] = f.template quickly<raised>(src + e * 4 * Beta<T>::kBlocks, value);
      dst[e] = value;
    }
  });
}

// The first attempts of a row in vectors, then one by one the tenth of the elements whose attempt failed or is unsure.
template <class T>
void run_cpu(const Beta<T>& f, const Philox& stream, int64_t count, DType dtype, void* out) {
  constexpr int kWords = 4 * Beta<T>::kBlocks;
  alignas(64) uint32_t words[kRow * kWords];
  alignas(64) T values[kRow];
  alignas(64) T certainty[kRow];
  const StoreRowOf<T> store = row_storer<T>(dtype);
  const auto try_all = f.raised() ? try_row<true, T> : try_row<false, T>;
  for (int64_t begin = 0; begin < count; begin += kRow) {
    const int64_t n = std::min(kRow, count - begin), tried = (n + kLanes - 1) / kLanes * kLanes;
    stream.fill(static_cast<uint32_t>(begin * Beta<T>::kBlocks), tried * Beta<T>::kBlocks, words);
    try_all(f, words, tried, values, certainty);
    for (int64_t e = 0; e < n; ++e)
      if (!(certainty[e] > Beta<T>::kMargin) && (certainty[e] < -Beta<T>::kMargin || !f.surely(words + e * kWords, values[e])))
        values[e] = f.element(stream, begin + e, 1);
    store(values, n, static_cast<char*>(out) + begin * item_bytes(dtype));
  }
}

#ifdef __CUDACC__
template <class T>
struct Run {
  Beta<T> f;
  Philox stream;
  int64_t count;
  void* out;
};

constexpr int kThreads = 256;
constexpr int kOfThread = 4, kTile = kThreads * kOfThread;

template <class T>
__device__ __forceinline__ void store_number(void* out, DType dtype, int64_t e, T value) {
  for_dtype(dtype, [&](auto tag) {
    using Out = typename decltype(tag)::type;
    static_cast<Out*>(out)[e] = saturate<Out>(value);
  });
}

// First attempts of a tile, then the others of its elements that failed, a tenth at most, without gaps: in a loop until each element has succeeded, a warp
// would repeat all of its attempts, because one of 32 elements nearly always fails. Predicted: 1.1 instead of 2.4 attempts, of some 250 instructions.
template <class T>
__global__ void __launch_bounds__(kThreads) run_gpu(const __grid_constant__ TableRows<Run<T>> runs, int64_t count, DType dtype) {
  __shared__ int failed[kTile], failures;
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run<T> run = runs[k];
    for (int64_t first = int64_t{blockIdx.x} * kTile; first < run.count; first += int64_t{gridDim.x} * kTile) {
      __syncthreads();  // the failures before have been counted
      if (thread == 0) failures = 0;
      __syncthreads();
#pragma unroll 1
      for (int at = thread; at < kTile && first + at < run.count; at += kThreads) {
        T value;
        if (run.f.succeeds(run.stream, first + at, 0, value)) store_number(run.out, dtype, first + at, value);
        else failed[atomicAdd(&failures, 1)] = at;
      }
      __syncthreads();
#pragma unroll 1
      for (int f = thread; f < failures; f += kThreads)
        store_number(run.out, dtype, first + failed[f], run.f.element(run.stream, first + failed[f], 1));
    }
  }
}
#endif

template <class T>
void fill(const Args<float>& alpha, const Args<float>& beta, const Tensor& words, const Samples& out) {
  const std::string op = "random.beta";
  const int64_t* drawn = drawn_words(op, words);
  const auto make = [=](int64_t i) {
    // NaN fails this check as well.
    const auto shape = [=](const Args<float>& argument, const char* name) {
      const float value = argument(i);
      if (!(value > 0.0f && value < INFINITY)) fail(op, ": ", name, " must be positive and finite, got ", value, " for sample ", i);
      return Gamma<T>::of(value);
    };
    return Beta<T>{shape(alpha, "alpha"), shape(beta, "beta")};
  };
#ifdef __CUDACC__
  if (out.values().is_cuda()) {
    std::vector<Run<T>> runs;
    for (int64_t i = 0; i < out.size(); ++i) runs.push_back({make(i), Philox(drawn, i), out.volume(i), out.data(i)});
    return launch_runs(op.c_str(), runs, &Run<T>::count, kTile, [&](dim3 grid, const auto& rows, int64_t count) {
      run_gpu<<<grid, kThreads, 0, current_cuda_stream()>>>(rows, count, out.dtype());
    });
  }
#endif
  launch_cpu(op, out.size(), 10.0 * out.mean_volume(), {words},
             [=](int64_t i) { run_cpu(make(i), Philox(drawn, i), out.volume(i), out.dtype(), out.data(i)); });
}

void beta(const MaybeTensor&, const MaybeTensor&, const Tensor& alphas, const Tensor& betas, const Tensor& words, const Tensor& output,
          const MaybeTensor& output_shapes) {
  const Samples out(output, output_shapes);
  const Args<float> alpha(alphas), beta(betas);
  if (random_in_double(out.dtype())) fill<double>(alpha, beta, words, out);
  else fill<float>(alpha, beta, words, out);
}

}  // namespace
}  // namespace ndd::beta_kernels
NDD_KERNELS(random_beta, ndd::beta_kernels::beta)
