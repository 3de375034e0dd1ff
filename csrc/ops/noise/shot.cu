// SPDX-License-Identifier: Apache-2.0
// noise.shot: every element becomes a Poisson-distributed number of events, times the factor. Element k uses word k of its sample's random stream and
// nothing else, so the CPU and CUDA, with any number of threads, agree bit by bit.
#include <algorithm>
#include <cmath>

#include "ndd/kernel.h"
#include "ndd/random/noise.h"
#include "ndd/random/normal.h"

namespace ndd::shot_kernels {
namespace {

// A number of events from one word each, by inversion: how many k have a probability of more than k events above a uniform number. Below kMaxInverted
// expected events the probabilities are subtracted one by one. Above, it is the integer part of the expansion of Cornish and Fisher as given by Giles
// ("Algorithm 955: approximation of the inverse Poisson cumulative distribution function", 2016): at 32 its cumulative distribution is off by 4e-6,
// later by less.
struct Poisson {
  static constexpr float kMaxInverted = 32.0f;
  static constexpr int kLanes = 64;  // four independent registers of AVX-512: twice as fast as one

  static NDD_HD float many(float expected, uint32_t word) {
    const float z = normal_of(word), root = sqrtf(expected), inverse = 1.0f / root, z2 = z * z;
    const float first = (2.0f + z2) * (1.0f / 6.0f), second = -z * (2.0f + z2) * (1.0f / 72.0f);
    const float third = (z2 * (3.0f * z2 + 7.0f) - 16.0f) * (1.0f / 810.0f);
    const float k = floorf(expected + root * z + (first + (second + third * inverse) * inverse));
    const float positive = k > 0.0f ? k : 0.0f;
    return expected < 0x1p60f ? positive : expected;  // their noise is below a float's last bit, and that of infinity would be NaN
  }

  // The probability of at least one event, without cancellation where few are expected. Less 2^-22 of it, so the probabilities of more of them
  // fall below 0 in the end, as rounded sums would not: that cuts the distribution off at 5.1 standard deviations.
  static NDD_HD float any(float expected, float none) {
    constexpr float c[] = {1.0f, -1.0f / 2, 1.0f / 6, -1.0f / 24, 1.0f / 120, -1.0f / 720, 1.0f / 5040, -1.0f / 40320};
    const float small = expected * polynomial(expected, c), large = 1.0f - none;
    return (expected < 0.5f ? small : large) * (1.0f - 0x1p-22f);
  }

  // N elements at a time. Every element has the same result whatever its neighbors are.
  template <int N>
  static NDD_HD void few(const float (&expected)[N], const uint32_t* __restrict words, float (&events)[N]) {
    // Of each element: its uniform number, the probability of exactly k events, and of more than k.
    float u[N], p[N], above[N];
    for (int e = 0; e < N; ++e) u[e] = open_uniform(words[e]);
    for (int e = 0; e < N; ++e) p[e] = exp_of(-expected[e]);
    for (int e = 0; e < N; ++e) above[e] = any(expected[e], p[e]);
    // Elements that have reached their number go through the same steps without effect, until the last one of the N has.
    int open = 1;
    for (float k = 1.0f; k < 128.0f && open > 0;) {
      for (int step = 0; step < 4; ++step, k += 1.0f) {
        const float inverse = 1.0f / k;
        for (int e = 0; e < N; ++e) {
          events[e] += u[e] <= above[e] ? 1.0f : 0.0f;
          p[e] = p[e] * (expected[e] * inverse);
          above[e] -= p[e];
        }
      }
      open = 0;
      for (int e = 0; e < N; ++e) open += u[e] <= above[e] ? 1 : 0;
    }
  }
};

struct Shot {
  static constexpr bool kReadsInput = true;
  float factor;

  NDD_HD bool keeps() const { return factor == 0.0f; }

  // out = events * factor, with in / factor events expected: the mean is the input, the variance in * factor.
  template <int N>
  NDD_HD void run(const float* __restrict in, const uint32_t* __restrict words, float* __restrict noise) const {
    float all[N], few[N], events[N] = {};
    int below = 0;
    for (int e = 0; e < N; ++e) {
      const float wanted = in[e] / factor;
      all[e] = wanted > 0.0f ? wanted : 0.0f;  // also for NaN
      // Those with many events take part as 0, which ends their loop with the first step.
      few[e] = all[e] < Poisson::kMaxInverted ? all[e] : 0.0f;
      below += all[e] < Poisson::kMaxInverted ? 1 : 0;
    }
    if (below > 0) Poisson::few(few, words, events);
    if (below < N) {
      float many[N];
      for (int e = 0; e < N; ++e) many[e] = Poisson::many(all[e], words[e]);
      for (int e = 0; e < N; ++e) events[e] = all[e] < Poisson::kMaxInverted ? events[e] : many[e];
    }
    for (int e = 0; e < N; ++e) noise[e] = events[e] * factor;
  }

  NDD_HD void operator()(const float* in, const uint32_t* words, int n, float* noise) const {
    constexpr int kLanes = Poisson::kLanes;
    int e = 0;
    for (; e + kLanes <= n; e += kLanes) run<kLanes>(in + e, words + e, noise + e);
    for (; e < n; ++e) run<1>(in + e, words + e, noise + e);
  }

  template <class T>
  static NDD_HD T combine(T, float noise) {
    return saturate<T>(noise);
  }
};

#ifdef __CUDACC__
// Bytes have 256 numbers of expected events, so the probabilities of Poisson::few() are found once for each block and factor: the number of events is a
// place in their descending order, found by bisection. Summing them for each element took 500 instructions and 1.5 ms for 128 VGA images, because a warp
// waits for its largest number. Predicted: 65 instructions for each byte and 0.4 ms, half of them lookups that share a bank.
constexpr int kTableEvents = 63;  // of up to 32 expected events, more than 63 come once in 10^7 times; they, and those of larger levels, are summed
constexpr int kTableLevels = 256, kTableBytesOfEvents = kTableEvents * kTableLevels * static_cast<int>(sizeof(float));
constexpr int kBytesOfThread = 16, kByteTile = noise_detail::kThreads * kBytesOfThread;

// above[(k - 1) * 256 + level]: the probability of at least k events.
__device__ void make_events_table(const Shot& shot, float* above) {
  const int level = static_cast<int>(threadIdx.x);
  static_assert(noise_detail::kThreads == kTableLevels);
  const float expected = static_cast<float>(level) / shot.factor;
  float p = exp_of(-expected), probability = Poisson::any(expected, p);
#pragma unroll 4
  for (int k = 1; k <= kTableEvents; ++k) {
    above[(k - 1) * kTableLevels + level] = expected < Poisson::kMaxInverted ? probability : 2.0f;
    p = p * (expected * (1.0f / static_cast<float>(k)));
    probability -= p;
  }
}

__device__ __forceinline__ int find_events(const float* above, uint8_t level, uint32_t word) {
  const float u = open_uniform(word);
  int events = 0;
#pragma unroll
  for (int step = (kTableEvents + 1) / 2; step > 0; step /= 2) events += u <= above[(events + step - 1) * kTableLevels + level] ? step : 0;
  return events;
}

__global__ void __launch_bounds__(noise_detail::kThreads, noise_detail::kResident)
    shot_bytes_gpu(const __grid_constant__ TableRows<noise_detail::Run<Shot>> runs, BatchTiles batch) {
  extern __shared__ float above[];
  // A block keeps its table while tiles have the same factor, also across samples.
  float tabulated = 0.0f;  // the factor of the table
  for_each_tile(batch, [&](uint32_t k, uint32_t tile) {
    const noise_detail::Run<Shot> run = runs[k];
    const auto* const in = static_cast<const uint8_t*>(run.in);
    auto* const out = static_cast<uint8_t*>(run.out);
    assume_global(in, out);
    const bool keeps = run.f.keeps();
    if (!keeps && run.f.factor != tabulated && int64_t{tile} * kByteTile < run.count) {
      __syncthreads();  // the previous table has been read
      make_events_table(run.f, above);
      tabulated = run.f.factor;
      __syncthreads();
    }
    for (int64_t first = int64_t{tile} * kByteTile; first < run.count; first += int64_t{batch.across.value} * kByteTile) {
      const int64_t begin = first + static_cast<int>(threadIdx.x) * kBytesOfThread, left = run.count - begin;
      if (left <= 0) break;
      uint8_t levels[kBytesOfThread] = {};
      load_some(in + begin, left, levels);
      uint32_t beyond = 0;  // a bit for each element beyond the table
      if (!keeps) {
#pragma unroll
        for (int b = 0; b < kBytesOfThread / 4; ++b) {
          uint32_t words[4];
          run.stream.compute(static_cast<uint32_t>(begin / 4) + b, words);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            uint8_t& level = levels[4 * b + e];
            const int events = find_events(above, level, words[e]);
            beyond |= events == kTableEvents && 4 * b + e < left ? 1u << (4 * b + e) : 0;
            level = Shot::combine<uint8_t>(level, static_cast<float>(events) * run.f.factor);
          }
        }
      }
      store_some(levels, left, out + begin);
      // A loop of its own, because its code is long.
#pragma unroll 1
      for (; beyond != 0; beyond &= beyond - 1) {
        const int e = __popc((beyond & (0u - beyond)) - 1);
        uint32_t words[4];
        run.stream.compute(static_cast<uint32_t>(begin / 4) + e / 4, words);
        const uint32_t low = e % 2 == 0 ? words[0] : words[1], high = e % 2 == 0 ? words[2] : words[3], word = e % 4 < 2 ? low : high;
        const float value = in[begin + e];
        float noise = 0.0f;
        run.f(&value, &word, 1, &noise);
        out[begin + e] = Shot::combine<uint8_t>(in[begin + e], noise);
      }
    }
  });
}

void add_to_bytes(const char* op, const std::vector<noise_detail::Run<Shot>>& runs) {
  int64_t most = 0;
  for (const auto& run : runs) most = std::max(most, run.count);
  if (most == 0) return;
  const KernelTable<noise_detail::Run<Shot>> table(runs);
  const BatchTiles batch = batch_tiles(most, kByteTile, static_cast<int64_t>(runs.size()));
  check_cuda(cudaFuncSetAttribute(shot_bytes_gpu, cudaFuncAttributeMaxDynamicSharedMemorySize, kTableBytesOfEvents), op);
  shot_bytes_gpu<<<resident_blocks(batch, noise_detail::kResident), noise_detail::kThreads, kTableBytesOfEvents, current_cuda_stream()>>>(
      table.rows(), batch);
  check_launch(op);
}
#endif

void shot(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& factors, const Tensor& words, const Tensor& output,
          const MaybeTensor& output_shapes) {
  const Args<float> factor(factors);
  const Samples in(input, input_shapes), out(output, output_shapes);
  const auto make_shot = [=](int64_t i) {
    const float f = factor(i);
    if (!(f >= 0.0f && f < INFINITY)) fail("noise.shot: factor must be finite and not negative, got ", f, " for sample ", i);
    return Shot{f};
  };
#ifdef __CUDACC__
  if (in.values().is_cuda() && in.dtype() == DType::uint8) {
    check_same("noise.shot", out, in);
    return add_to_bytes("noise.shot", noise_detail::make_runs(drawn_words("noise.shot", words), in, out, make_shot));
  }
#endif
  add_noise("noise.shot", words, in, out, 8.0, make_shot);
}

}  // namespace
}  // namespace ndd::shot_kernels
NDD_KERNELS(noise_shot, ndd::shot_kernels::shot)
