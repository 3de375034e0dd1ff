// SPDX-License-Identifier: Apache-2.0
// SpecAugment (Park et al., 2019) of features (frames, features) in one pass: a warp along time, its mean, and masks of both axes filled with the mean.
// As operators (resize, mean and two masks), which read and write the batch one after the other, it took six times as long.
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "ndd/args.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/kernel.h"
#include "ndd/random/random.h"
#include "ndd/simd.h"
#include "ops/audio/masks.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#include "ndd/reduce/block.cuh"
#endif

namespace ndd::spec_augment_kernels {
namespace {

using audio::draw_masks;
using audio::fill_masks;
using audio::kMaxMasks;
using audio::Masks;

constexpr char kOp[] = "spec_augment";
constexpr int kTaps = 4;

// Doubles stay doubles; all other types are weighted and added as floats.
template <class T>
using Weight = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The frames before `center` are resized to `target` ones, those from there on to the rest of `used`; what lies behind does not change.
struct Warp {
  int64_t used, center, target;
};

// The frames that a frame of the result consists of, from `first` on.
template <class W>
struct Taps {
  int64_t first;
  int32_t count;
  W weights[kTaps];
};

// Keys' kernel with torch's parameter.
NDD_HD double keys(double x) {
  constexpr double kParameter = -0.75;
  x = fabs(x);
  if (x < 1.0) return ((kParameter + 2.0) * x - (kParameter + 3.0)) * x * x + 1.0;
  return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * kParameter : 0.0;
}

// As torch.nn.functional.interpolate of each side: frames beyond it are its first or last frame.
template <class W>
NDD_HD Taps<W> taps_of(const Warp& warp, int64_t frame) {
  const bool is_after = frame >= warp.target;
  const int64_t begin = is_after ? warp.center : 0, frames = is_after ? warp.used - warp.center : warp.center;
  const int64_t place = is_after ? frame - warp.target : frame, resized = is_after ? warp.used - warp.target : warp.target;
  // One frame with the weight 1, for what is only moved: a side that keeps its length, and what lies behind both.
  Taps<W> taps{frame, 1, {1}};
  if (frame >= warp.used || frames == resized) {
    if (frame < warp.used) taps.first = begin + place;
    return taps;
  }
  // Of the frame's center in the original: torch's align_corners=False.
  const double at = (static_cast<double>(place) + 0.5) * (static_cast<double>(frames) / static_cast<double>(resized)) - 0.5;
  const auto low = static_cast<int64_t>(floor(at)), last = frames - 1;
  const double right = at - static_cast<double>(low);
  const auto inside = [&](int64_t k) { return k < 0 ? 0 : k > last ? last : k; };
  const int64_t first = inside(low - 1);
  taps.first = begin + first;
  taps.count = static_cast<int32_t>(inside(low + 2) - first) + 1;
  double weights[kTaps] = {};
  // Taps beyond a side fall on its first or last frame, which gets the sum of their weights.
  for (int k = 0; k < kTaps; ++k) weights[inside(low - 1 + k) - first] += keys(right + 1.0 - k);
  for (int k = 0; k < kTaps; ++k) taps.weights[k] = static_cast<W>(weights[k]);
  return taps;
}

// Everything that is drawn for a sample.
// `bands` hide features and `spans` frames; only the frames that are used are warped, averaged and masked.
struct Draws {
  Warp warp;
  bool is_changed;
  Masks bands, spans;
};

// Sums of a row, added in a fixed order at its end.
constexpr int kLanes = 16;
// Elements whose lanes are added in their own type, and then in doubles.
constexpr int64_t kPart = 1024;

// One row of the result from `Count` rows, which are `step` elements apart, and its sum in lanes, whose order does not depend on the instruction set.
template <int Count, class T>
inline NDD_ALWAYS_INLINE void weigh_rows(const Weight<T>* weights, const T* from, int64_t step, int64_t n, T* to, double* sums) {
  Weight<T> weight[Count];
  for (int k = 0; k < Count; ++k) weight[k] = weights[k];
  for (int64_t part = 0; part < n; part += kPart) {
    const int64_t end = std::min(n, part + kPart);
    Weight<T> lanes[kLanes] = {};
    int64_t f = part;
    const auto weigh = [&](int64_t at) NDD_ALWAYS_INLINE {
      Weight<T> value = weight[0] * static_cast<Weight<T>>(from[at]);
      for (int k = 1; k < Count; ++k) value += weight[k] * static_cast<Weight<T>>(from[at + k * step]);
      to[at] = static_cast<T>(value);
      return value;
    };
    // The parameters do not say that input and output are different buffers.
    for (; f + kLanes <= end; f += kLanes)
#pragma GCC ivdep
      for (int l = 0; l < kLanes; ++l) lanes[l] += weigh(f + l);
    for (int l = 0; f < end; ++f, ++l) lanes[l] += weigh(f);
    for (int l = 0; l < kLanes; ++l) sums[l] += static_cast<double>(lanes[l]);
  }
}

// Warps a sample and returns its mean.
template <class T>
double warp_sample(const Warp& warp, int64_t features, const T* input, T* output) {
  double sums[kLanes] = {};
  with_simd([&]() NDD_ALWAYS_INLINE {
    const T* __restrict in = input;
    T* __restrict out = output;
    for (int64_t t = 0; t < warp.used; ++t) {
      const auto taps = taps_of<Weight<T>>(warp, t);
      const T* from = in + taps.first * features;
      T* to = out + t * features;
      if (taps.count == 4) weigh_rows<4>(taps.weights, from, features, features, to, sums);
      else if (taps.count == 3) weigh_rows<3>(taps.weights, from, features, features, to, sums);
      else if (taps.count == 2) weigh_rows<2>(taps.weights, from, features, features, to, sums);
      else weigh_rows<1>(taps.weights, from, features, features, to, sums);
    }
  });
  double sum = 0.0;
  for (const double lane : sums) sum += lane;
  return sum / static_cast<double>(warp.used * features);
}

template <class T>
void augment_sample(const Samples& in, const Samples& out, int64_t i, const Draws& draws, int64_t bands, int64_t spans) {
  const int64_t frames = in.shape(i)[0], features = in.shape(i)[1], used = draws.is_changed ? draws.warp.used : 0;
  const auto* from = static_cast<const T*>(in.data(i));
  auto* to = static_cast<T*>(out.data(i));
  if (frames * features == 0) return;
  // Frames behind the used ones stay as they are.
  std::copy(from + used * features, from + frames * features, to + used * features);
  if (used == 0) return;
  const auto mean = static_cast<T>(static_cast<Weight<T>>(warp_sample(draws.warp, features, from, to)));
  fill_masks(draws.bands, bands, used, features, 1, mean, to);
  fill_masks(draws.spans, spans, 1, used, features, mean, to);
}

// Calls f(TypeTag<T>{}) with a floating-point type.
template <class F>
void for_floating_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float16: return f(TypeTag<Half>{});
    case DType::float32: return f(TypeTag<float>{});
    case DType::float64: return f(TypeTag<double>{});
    case DType::bfloat16: return f(TypeTag<BFloat16>{});
    default: fail(Error::Type, kOp, ": features must be floating-point numbers");
  }
}

#ifdef __CUDACC__
constexpr int kThreads = 256;
// Frames of a tile, a constant: the order of the sum, and with it its last bits, does not depend on the batch.
constexpr int kFrames = 32;

// A sample. `draws` are made on the host, from the same words as on the CPU, so both devices mask the same elements.
struct Run {
  const void* in;
  void* out;
  int64_t frames, features;
  Draws draws;

  NDD_HD int64_t tiles() const { return (frames + kFrames - 1) / kFrames; }
};

// Warps, and writes the sum of each tile to sums[run * tiles + tile]. Bound by memory: four rows of which three are in the first-level cache.
template <class T>
__global__ void __launch_bounds__(kThreads) warp_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count, int64_t tiles, double* sums) {
  __shared__ double shared[kThreads];
  __shared__ Taps<Weight<T>> taps[kFrames];
  for (int64_t r = blockIdx.y; r < count; r += gridDim.y) {
    const Run& run = runs[r];
    const auto* in = static_cast<const T*>(run.in);
    auto* out = static_cast<T*>(run.out);
    const int64_t features = run.features, used = run.draws.is_changed ? run.draws.warp.used : 0;
    for (int64_t tile = blockIdx.x; tile < run.tiles(); tile += gridDim.x) {
      const int64_t first = tile * kFrames, frames = min(run.frames - first, int64_t{kFrames});
      // Found once for all features of a frame: the divisions and kernels in doubles take longer than four loads.
      if (threadIdx.x < frames) {
        const int64_t t = first + threadIdx.x;
        if (t < used) taps[threadIdx.x] = taps_of<Weight<T>>(run.draws.warp, t);
        else taps[threadIdx.x] = {t, 1, {1}};
      }
      __syncthreads();
      double sum = 0.0;
      for (int64_t e = threadIdx.x; e < frames * features; e += kThreads) {
        const int64_t t = e / features, f = e - t * features;
        const T* from = in + taps[t].first * features + f;
        if (taps[t].count == 1) {
          out[first * features + e] = from[0];
          sum += first + t < used ? static_cast<double>(static_cast<Weight<T>>(from[0])) : 0.0;
          continue;
        }
        Weight<T> value = 0;
        for (int32_t k = 0; k < taps[t].count; ++k) value += taps[t].weights[k] * static_cast<Weight<T>>(from[k * features]);
        out[first * features + e] = static_cast<T>(value);
        sum += static_cast<double>(value);
      }
      // Its barriers also keep the taps until every thread has used them.
      sum = reduce_block(shared, sum, [](double a, double b) { return a + b; });
      if (threadIdx.x == 0) sums[r * tiles + tile] = sum;
    }
  }
}

// Writes masked elements only.
template <class T>
__global__ void __launch_bounds__(kThreads)
    fill_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count, int64_t tiles, const double* sums, int64_t bands, int64_t spans) {
  __shared__ double shared[kThreads];
  for (int64_t r = blockIdx.y; r < count; r += gridDim.y) {
    const Run& run = runs[r];
    const int64_t features = run.features, used = run.draws.is_changed ? run.draws.warp.used : 0;
    // Every block adds up the few sums again, in the same order: a launch for the mean alone would take longer.
    double sum = 0.0;
    for (int64_t tile = threadIdx.x; tile < run.tiles(); tile += kThreads) sum += sums[r * tiles + tile];
    sum = reduce_block(shared, sum, [](double a, double b) { return a + b; });
    if (used * features == 0) continue;
    const auto mean = static_cast<T>(static_cast<Weight<T>>(sum / static_cast<double>(used * features)));
    auto* out = static_cast<T*>(run.out);
    for (int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x; e < used * features; e += int64_t{gridDim.x} * kThreads) {
      const int64_t t = e / features, f = e - t * features;
      if (run.draws.spans.hide(t, spans) || run.draws.bands.hide(f, bands)) out[e] = mean;
    }
  }
}

template <class T>
void launch_gpu(const std::vector<Run>& runs, int64_t bands, int64_t spans) {
  int64_t tiles = 0, volume = 0;
  for (const Run& run : runs) {
    tiles = std::max(tiles, run.tiles());
    volume = std::max(volume, run.frames * run.features);
  }
  if (volume == 0) return;
  const KernelTable<Run> table(runs);
  const auto count = static_cast<int64_t>(runs.size());
  const CudaBuffer sums(count * tiles * static_cast<int64_t>(sizeof(double)));
  auto* const device_sums = static_cast<double*>(sums.data());
  warp_gpu<T><<<batch_grid(tiles, 1, count), kThreads, 0, current_cuda_stream()>>>(table.rows(), count, tiles, device_sums);
  if (bands + spans > 0)
    fill_gpu<T>
        <<<batch_grid(volume, 8 * kThreads, count), kThreads, 0, current_cuda_stream()>>>(table.rows(), count, tiles, device_sums, bands, spans);
  check_launch(kOp);
}
#endif

// `plan` is int64 (N, 4): the frames to augment, the frame that is moved, the one that it is moved to, and whether the sample is changed. `widest` (N)
// are the largest widths of time masks. Each kind of mask has words of its own.
void spec_augment(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& plan, int64_t bands, double widest_band,
                  const Tensor& band_words, int64_t spans, const Tensor& widest, const Tensor& span_words, const Tensor& output,
                  const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const Args<int64_t> plans(plan);
  const Args<float> widths(widest);
  if (in.ndim() != 2 || out.dtype() != in.dtype()) fail(Error::Value, kOp, ": features must have two axes, and the output their type");
  check_outputs(kOp, out, in);
  check_rows(kOp, "plan", plans, in.size(), 4);
  check_rows(kOp, "widest", widths, in.size());
  if (bands < 0 || bands > kMaxMasks || spans < 0 || spans > kMaxMasks)
    fail(Error::Value, kOp, ": the number of masks must be 0 to ", kMaxMasks, ", got ", bands, " and ", spans);
  const int64_t *const for_bands = drawn_words(kOp, band_words), *const for_spans = drawn_words(kOp, span_words);
  const auto draws_of = [=](int64_t i) {
    const Warp warp{plans(i, 0), plans(i, 1), plans(i, 2)};
    const float widest_span = widths(i);
    // Each side needs a frame to be resized from.
    const bool has_sides = 0 <= warp.center && warp.center <= warp.used && 0 <= warp.target && warp.target <= warp.used &&
                           (warp.center > 0 || warp.target == 0) && (warp.center < warp.used || warp.target == warp.used);
    if (warp.used < 0 || warp.used > in.shape(i)[0] || !has_sides) fail(Error::Value, kOp, ": sample ", i, ": a frame lies outside of the sample");
    if (!(widest_band >= 0.0) || !(widest_span >= 0.0f)) fail(Error::Value, kOp, ": sample ", i, ": the widest mask must not be negative");
    const bool is_changed = plans(i, 3) != 0;
    const float probability = is_changed ? 1.0f : 0.0f;
    return Draws{warp, is_changed, draw_masks(Philox(for_bands, i), bands, static_cast<float>(widest_band), probability, in.shape(i)[1]),
                 draw_masks(Philox(for_spans, i), spans, widest_span, probability, warp.used)};
  };
  for_floating_dtype(in.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
#ifdef __CUDACC__
    if (input.is_cuda()) {
      std::vector<Run> runs;
      for (int64_t i = 0; i < in.size(); ++i) runs.push_back({in.data(i), out.data(i), in.shape(i)[0], in.shape(i)[1], draws_of(i)});
      return launch_gpu<T>(runs, bands, spans);
    }
#endif
    launch_cpu(kOp, in.size(), 0.4 * in.mean_volume(), {plan, widest, band_words, span_words},
               [=](int64_t i) { augment_sample<T>(in, out, i, draws_of(i), bands, spans); });
  });
}

}  // namespace
}  // namespace ndd::spec_augment_kernels
NDD_KERNELS(spec_augment, ndd::spec_augment_kernels::spec_augment)
