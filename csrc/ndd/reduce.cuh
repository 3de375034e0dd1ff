// SPDX-License-Identifier: Apache-2.0
// CUDA side of the reductions: every output is folded by a team of threads, long ones in several chunks whose totals a second launch folds in order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/order_keys.h"
#include "ndd/reduce.h"

namespace ndd {
namespace reduce {

struct GpuSample {
  Reduction shape;
  Finisher finisher;
  const void* in;
  void* out;
  const void* centre;  // numbers of the type `centre_type`, one or one for each output; or null
  int64_t centres;
  int64_t first_partial, chunks;  // where the totals of its chunks lie
};

struct GpuTypes {
  DType in, out, centre;
};

// Whole sums modulo 2^64.
struct GpuWholeSum {
  using Total = uint64_t;
  NDD_HD Total identity(DType) const { return 0; }
  NDD_HD Total take(Total total, const void* in, DType dtype, int64_t i, double) const {
    for_dtype(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (!is_floating<T>) total += static_cast<uint64_t>(static_cast<const T*>(in)[i]);
    });
    return total;
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

// Sums in double, of squares (of distances) where `power` is 2.
struct GpuSum {
  using Total = double;
  int power;
  NDD_HD Total identity(DType) const { return 0.0; }
  NDD_HD Total take(Total total, const void* in, DType dtype, int64_t i, double centre) const {
    double value = 0.0;
    for_dtype(dtype, [&](auto tag) { value = widened<double>(static_cast<const typename decltype(tag)::type*>(in)[i]); });
    value -= centre;
    return total + (power == 2 ? value * value : value);
  }
  NDD_HD Total merge(Total a, Total b) const { return a + b; }
  NDD_HD void store(const GpuSample& sample, Total total, const GpuTypes& types, int64_t o) const {
    for_dtype(types.out, [&](auto tag) {
      using Out = typename decltype(tag)::type;
      static_cast<Out*>(sample.out)[o] = sample.finisher.operator()<Out>(total);
    });
  }
};

// The smallest or largest, as keys.
struct GpuExtreme {
  using Total = uint64_t;
  bool maximum;
  NDD_HD Total identity(DType dtype) const {
    Total key = 0;
    for_dtype(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      using K = Key<T>;
      if constexpr (is_floating<T>) key = to_key<T>(static_cast<T>(maximum ? -INFINITY : INFINITY), K{});
      else if constexpr (std::is_same_v<T, bool>) key = maximum ? 0 : 1;
      else key = maximum ? K{} : static_cast<K>(~K{});
    });
    return key;
  }
  NDD_HD Total take(Total total, const void* in, DType dtype, int64_t i, double) const {
    for_dtype(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const Key<T> nan = static_cast<Key<T>>(total);  // changes nothing
      total = merge(total, to_key<T>(static_cast<const T*>(in)[i], nan));
    });
    return total;
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

NDD_HD double centre_of(const GpuSample& sample, DType dtype, int64_t o) {
  double value = 0.0;
  if (sample.centre)
    for_dtype(dtype, [&](auto tag) { value = widened<double>(static_cast<const typename decltype(tag)::type*>(sample.centre)[sample.centres > 1 ? o : 0]); });
  return value;
}

// `team` threads, 1, a warp or a block, share a chunk of an output; they fold in a fixed order. Single threads take neighbouring outputs and teams
// neighbouring elements, so that either way a warp reads neighbouring bytes: the elements are read at about the memory's bandwidth, single bytes at
// a third of it.
template <class Fold, int team>
__global__ void __launch_bounds__(kThreads)
    fold_kernel(const GpuSample* samples, int64_t count, Fold fold, int64_t chunk, GpuTypes types, typename Fold::Total* partials) {
  __shared__ typename Fold::Total shared[kThreads];
  constexpr int64_t kTeams = kThreads / team;
  const int member = static_cast<int>(threadIdx.x) % team;
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const GpuSample& sample = samples[k];
    const int64_t outputs = sample.shape.outputs, units = outputs * sample.chunks;
    for (int64_t first = int64_t{blockIdx.x} * kTeams; first < units; first += int64_t{gridDim.x} * kTeams) {
      const int64_t unit = first + threadIdx.x / team, o = unit % outputs, part = unit / outputs;
      auto total = fold.identity(types.in);
      if (unit < units) {
        const int64_t begin = sample.shape.of_output(o), end = min(sample.shape.count, (part + 1) * chunk);
        const double centre = centre_of(sample, types.centre, o);
        for (int64_t e = part * chunk + member; e < end; e += team)
          total = fold.take(total, sample.in, types.in, begin + sample.shape.of_element(e), centre);
      }
      if (team > 1) {
        shared[threadIdx.x] = total;
        __syncthreads();
        for (int half = team / 2; half > 0; half /= 2) {
          if (member < half) shared[threadIdx.x] = fold.merge(shared[threadIdx.x], shared[threadIdx.x + half]);
          __syncthreads();
        }
        total = shared[threadIdx.x - member];
        __syncthreads();
      }
      if (member == 0 && unit < units) {
        if (partials) partials[sample.first_partial + unit] = total;
        else fold.store(sample, total, types, o);
      }
    }
  }
}

template <class Fold>
__global__ void __launch_bounds__(kThreads)
    merge_kernel(const GpuSample* samples, int64_t count, Fold fold, GpuTypes types, const typename Fold::Total* partials) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const GpuSample& sample = samples[k];
    for (int64_t o = int64_t{blockIdx.x} * kThreads + threadIdx.x; o < sample.shape.outputs; o += int64_t{gridDim.x} * kThreads) {
      auto total = fold.identity(types.in);
      for (int64_t c = 0; c < sample.chunks; ++c) total = fold.merge(total, partials[sample.first_partial + c * sample.shape.outputs + o]);
      fold.store(sample, total, types, o);
    }
  }
}

template <class Fold>
void launch_gpu(const char* op, std::vector<GpuSample> samples, const Fold& fold, const GpuTypes& types) {
  int64_t outputs = 0, elements = 0, all = 0;
  bool side_by_side = false;
  for (const GpuSample& sample : samples) {
    outputs = std::max(outputs, sample.shape.outputs);
    elements = std::max(elements, sample.shape.count);
    all += sample.shape.outputs;
    side_by_side = side_by_side || (sample.shape.kept > 0 && sample.shape.kept_stride[0] == 1 && sample.shape.kept_extent[0] >= 32);
  }
  if (outputs == 0) return;
  const int team = elements <= 64 || side_by_side ? 1 : elements <= 2048 ? 32 : kThreads;
  // Enough threads for the whole device: 2048 for each of 132 processors.
  const int64_t wanted = std::max<int64_t>(1, 270000 / (all * team)), most = std::max<int64_t>(1, elements / (64 * team));
  const int64_t chunks = std::min({wanted, most, int64_t{4096}}), chunk = std::max<int64_t>(1, (elements + chunks - 1) / chunks);
  int64_t partials = 0;
  for (GpuSample& sample : samples) {
    sample.first_partial = partials;
    sample.chunks = std::max<int64_t>(1, (sample.shape.count + chunk - 1) / chunk);
    partials += sample.shape.outputs * sample.chunks;
  }
  const CudaTable<GpuSample> table(samples);
  const CudaBuffer buffer(chunks > 1 ? partials * static_cast<int64_t>(sizeof(typename Fold::Total)) : 0);
  auto* totals = chunks > 1 ? static_cast<typename Fold::Total*>(buffer.data()) : nullptr;
  const int64_t count = static_cast<int64_t>(samples.size());
  const auto grid = [&](int64_t threads) {
    return dim3(static_cast<unsigned>(std::clamp<int64_t>((threads + kThreads - 1) / kThreads, 1, 1 << 16)), static_cast<unsigned>(std::min<int64_t>(count, 65535)));
  };
  const cudaStream_t stream = current_cuda_stream();
  const dim3 blocks = grid(outputs * chunks * team);
  if (team == 1) fold_kernel<Fold, 1><<<blocks, kThreads, 0, stream>>>(table.data(), count, fold, chunk, types, totals);
  else if (team == 32) fold_kernel<Fold, 32><<<blocks, kThreads, 0, stream>>>(table.data(), count, fold, chunk, types, totals);
  else fold_kernel<Fold, kThreads><<<blocks, kThreads, 0, stream>>>(table.data(), count, fold, chunk, types, totals);
  if (totals) merge_kernel<Fold><<<grid(outputs), kThreads, 0, stream>>>(table.data(), count, fold, types, totals);
  check_launch(op);
}

}  // namespace reduce
}  // namespace ndd
