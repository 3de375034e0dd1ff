// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "ndd/kernel.h"
#include "ndd/reduce.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#endif

namespace ndd {
namespace {

// A VGA image of uint8 takes 30 us, one of float32 100 us.
constexpr double kNanoseconds = 0.1;

// Integer results are the quotient of sum and count, without the fraction.
template <class Out>
NDD_HD Out mean_as(double sum, int64_t count) {
  const double mean = sum / static_cast<double>(count);
  if constexpr (is_half<Out>) return static_cast<Out>(static_cast<float>(mean));
  else if constexpr (is_floating<Out>) return static_cast<Out>(mean);
  else return count ? saturate<Out>(std::is_same_v<Out, bool> ? mean : trunc(mean)) : Out{};
}

#ifdef __CUDACC__
struct Run {
  Reduction shape;
  const void* in;
  void* out;
};

NDD_HD double load_double(const void* data, DType dtype, int64_t i) {
  double value = 0;
  for_dtype(dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    if constexpr (is_half<In>) value = static_cast<float>(static_cast<const In*>(data)[i]);
    else value = static_cast<double>(static_cast<const In*>(data)[i]);
  });
  return value;
}

constexpr int kThreads = 256;

// `team` threads, 1 or all of a block, share an output; they add in a fixed order.
template <int team>
__global__ void run_gpu(const Run* runs, int64_t count, DType in, DType out) {
  __shared__ double partial[kThreads];
  constexpr int64_t kTeams = kThreads / team;
  const int64_t member = threadIdx.x % team;
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run& run = runs[k];
    for (int64_t first = int64_t{blockIdx.x} * kTeams; first < run.shape.outputs; first += int64_t{gridDim.x} * kTeams) {
      const int64_t o = first + threadIdx.x / team;
      double sum = 0;
      if (o < run.shape.outputs) {
        const int64_t begin = run.shape.of_output(o);
        for (int64_t e = member; e < run.shape.count; e += team) sum += load_double(run.in, in, begin + run.shape.of_element(e));
      }
      if (team > 1) {
        partial[threadIdx.x] = sum;
        __syncthreads();
        for (int half = team / 2; half > 0; half /= 2) {
          if (member < half) partial[threadIdx.x] += partial[threadIdx.x + half];
          __syncthreads();
        }
        sum = partial[threadIdx.x - member];
        __syncthreads();
      }
      if (member == 0 && o < run.shape.outputs) {
        for_dtype(out, [&](auto tag) {
          using Out = typename decltype(tag)::type;
          static_cast<Out*>(run.out)[o] = mean_as<Out>(sum, run.shape.count);
        });
      }
    }
  }
}

void launch_gpu(const std::vector<Run>& runs, DType in, DType out) {
  int64_t outputs = 0, elements = 0;
  for (const Run& run : runs) {
    outputs = std::max(outputs, run.shape.outputs);
    elements = std::max(elements, run.shape.count);
  }
  if (outputs == 0) return;
  const CudaTable<Run> table(runs);
  const int64_t count = static_cast<int64_t>(runs.size());
  const bool alone = elements <= 64;
  const int64_t blocks = alone ? (outputs + kThreads - 1) / kThreads : outputs;
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>(blocks, 1 << 16)), static_cast<unsigned>(std::min<int64_t>(count, 65535)));
  if (alone) run_gpu<1><<<grid, kThreads, 0, current_cuda_stream()>>>(table.data(), count, in, out);
  else run_gpu<kThreads><<<grid, kThreads, 0, current_cuda_stream()>>>(table.data(), count, in, out);
  check_launch("reductions.mean");
}
#endif

void mean(const Tensor& input, const MaybeTensor& input_shapes, int64_t axes, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  std::vector<Reduction> shapes;
  for (int64_t i = 0; i < (in.dense() ? std::min<int64_t>(1, in.size()) : in.size()); ++i) {
    shapes.emplace_back(in.shape(i), in.ndim(), axes);
    if (shapes.back().outputs != out.volume(i)) throw Error(Error::Runtime, "reductions.mean: the output has the wrong shape");
  }
#ifdef __CUDACC__
  if (input.is_cuda()) {
    std::vector<Run> runs;
    for (int64_t i = 0; i < in.size(); ++i) runs.push_back({shapes[in.dense() ? 0 : i], in.data(i), out.data(i)});
    return launch_gpu(runs, in.dtype(), out.dtype());
  }
#endif
  const double cost = in.size() > 0 ? kNanoseconds * static_cast<double>(in.volume(0)) : 0;
  launch_cpu("reductions.mean", in.size(), cost, {}, [=](int64_t i) {
    const Reduction& shape = shapes[in.dense() ? 0 : i];
    const std::vector<double> sums = sums_of_sample(shape, in.dtype(), in.data(i));
    for_dtype(out.dtype(), [&](auto tag) {
      using Out = typename decltype(tag)::type;
      for (int64_t o = 0; o < shape.outputs; ++o) static_cast<Out*>(out.data(i))[o] = mean_as<Out>(sums[o], shape.count);
    });
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNELS(reductions_mean, ndd::mean)
