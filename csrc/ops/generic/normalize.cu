// SPDX-License-Identifier: Apache-2.0
// normalize on a GPU: statistics stay in device memory between the launches, so the host never waits for them.
#include "ops/generic/normalize.h"

#include <algorithm>

#include "ndd/cuda.h"
#include "ndd/elementwise/tiles.cuh"
#include "ndd/kernel.h"
#include "ndd/reduce/reduce.cuh"

namespace ndd::normalize {
namespace {

constexpr int kThreads = tiles::kThreads;

// How the elements of a sample find their outputs. other: more than one dimension is kept, or 2^31 elements; the slow path, with divisions of 64 bits.
enum class Order : int32_t { one_output, planes, other };

// A sample. With batch=True all samples have the same outputs, whose statistics are merged by pool() or pool_moments().
struct Run {
  Reduction shape;
  const void* in;
  void* out;
  int64_t first;  // of its outputs among those of all samples
  // Elements of an output less ddof, for the variance.
  int64_t divisor;
  Planes planes;
  Order order;
};

void find_order(Run& run) {
  const Reduction& shape = run.shape;
  run.order = Order::other;
  if (shape.outputs == 1) run.order = Order::one_output;
  if (shape.outputs == 1 || shape.kept != 1 || shape.outputs * shape.count >= Divisor::kLimit) return;
  // Outputs along the last axis, such as channels, or along the first one, such as planes: their number follows from one division.
  const bool last = shape.kept_stride[0] == 1;
  if (!last && shape.kept_stride[0] != shape.count) return;
  run.planes = last ? Planes{Divisor(shape.outputs), 1, 0} : Planes{Divisor(shape.count), 0, 1};
  run.order = Order::planes;
}

// out = (in - mean) * factor * scale + shift, with factor = 1 / sqrt(variance + epsilon).
struct Scaling {
  double epsilon, scale;
  bool is_stddev, squares;  // squares: the sum of squared distances takes the place of the variance
};

// Pools the totals of all samples, for batch=True: each receives the same mean. In the order of the samples, so the result is reproducible.
__global__ void pool(double* totals, int64_t outputs, int64_t samples, double divisor) {
  for (int64_t o = int64_t{blockIdx.x} * kThreads + threadIdx.x; o < outputs; o += int64_t{gridDim.x} * kThreads) {
    double total = 0;
    for (int64_t i = 0; i < samples; ++i) total += totals[i * outputs + o];
    for (int64_t i = 0; i < samples; ++i) totals[i * outputs + o] = total / divisor;
  }
}

// Merges means and sums of squared distances of the samples into those of the batch (Chan, Golub and LeVeque's formula), which does not cancel as a
// difference of sums of squares would.
__global__ void pool_moments(const __grid_constant__ TableRows<Run> runs, int64_t samples, int64_t outputs, double* means, double* squares) {
  for (int64_t o = int64_t{blockIdx.x} * kThreads + threadIdx.x; o < outputs; o += int64_t{gridDim.x} * kThreads) {
    double n = 0, sum = 0, total = 0;
    for (int64_t i = 0; i < samples; ++i) {
      const auto count = static_cast<double>(runs[i].shape.count);
      n += count;
      if (count > 0) sum += count * means[i * outputs + o];
    }
    const double mean = sum / n;
    for (int64_t i = 0; i < samples; ++i) {
      const double count = static_cast<double>(runs[i].shape.count), distance = means[i * outputs + o] - mean;
      if (count > 0) total += squares[i * outputs + o] + count * distance * distance;
    }
    for (int64_t i = 0; i < samples; ++i) {
      means[i * outputs + o] = mean;
      squares[i * outputs + o] = total;
    }
  }
}

// Mean and factor of every output. `spread` holds variances, or the standard deviations that were given.
__global__ void make_factors(const __grid_constant__ TableRows<Run> runs, int64_t count, const double* means, const double* spread, Scaling scaling,
                             float2* factors) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run& run = runs[k];
    for (int64_t o = int64_t{blockIdx.x} * kThreads + threadIdx.x; o < run.shape.outputs; o += int64_t{gridDim.x} * kThreads) {
      const double s = spread[run.first + o] / (scaling.squares ? static_cast<double>(max(run.divisor, int64_t{1})) : 1.0);
      // Without degrees of freedom the variance is unknown and counts as 0.
      const double inverse =
          scaling.is_stddev ? inverse_of_stddev(s, scaling.epsilon) : inverse_deviation(run.divisor > 0 ? s : 0.0, scaling.epsilon);
      factors[run.first + o] = make_float2(static_cast<float>(means[run.first + o]), static_cast<float>(inverse * scaling.scale));
    }
  }
}

// Applies the factors. Each byte is read and written once; the factors of an image are in the first-level cache.
__global__ void __launch_bounds__(kThreads, 4)
    apply(const __grid_constant__ TableRows<Run> runs, int64_t count, const float2* all_factors, float shift, DType in, DType out) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run& run = runs[k];
    const float2* const factors = all_factors + run.first;
    const int64_t volume = run.shape.outputs * run.shape.count;
    // Of a sample with one output: read once by each thread.
    const float2 only = volume > 0 ? __ldg(factors) : float2{};
    const auto body = [&](auto at) {
      constexpr int rows = decltype(at)::kRows, width = decltype(at)::kElements;
      float values[rows][width];
      tiles::load(run.in, in, at, values, tiles::AsFloat{});
#pragma unroll
      for (int g = 0; g < rows; ++g) {
        if (run.order == Order::one_output) {
#pragma unroll
          for (int e = 0; e < width; ++e) values[g][e] = normalize_element(values[g][e], only.x, only.y, shift);
        } else if (width == 1) {
          const float2 factor = __ldg(factors + output_of(run.shape, at.first));
          values[g][0] = normalize_element(values[g][0], factor.x, factor.y, shift);
        } else if (at.has(g)) {
          run.planes.for_neighbors<width>(at.row(g), [&](int e, uint32_t number) {
            const float2 factor = __ldg(factors + number);
            values[g][e] = normalize_element(values[g][e], factor.x, factor.y, shift);
          });
        }
      }
      tiles::store(values, run.out, out, at, tiles::Saturated{});
    };
    if (run.order == Order::other) {
      const int64_t step = int64_t{gridDim.x} * kThreads;
      for (int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x; e < volume; e += step) body(tiles::Place<1, 1>{e, e + 1});
    } else {
      tiles::for_each<2>(run.out, item_bytes(out), volume, body);
    }
  }
}

std::vector<double> argument_values(const Job& job, const Statistic& statistic) {
  std::vector<double> values;
  for (int64_t i = 0; i < job.in.size(); ++i) {
    const auto row = statistic.of_sample(i, job.shape(i).outputs);
    values.insert(values.end(), row.begin(), row.end());
  }
  return values;
}

void normalize_cuda(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& mean, int64_t mean_rows, const MaybeTensor& stddev,
                    int64_t stddev_rows, int64_t axes, bool batch, int64_t ddof, double epsilon, double scale, double shift, const Tensor& output,
                    const MaybeTensor& output_shapes) {
  const Job job = job_of(input, input_shapes, mean, mean_rows, stddev, stddev_rows, axes, batch, ddof, epsilon, scale, shift, output, output_shapes);
  const int64_t samples = job.in.size();
  std::vector<Run> runs;
  int64_t outputs = 0, max_outputs = 0, max_elements = 0;
  for (int64_t i = 0; i < samples; ++i) {
    runs.push_back({job.shape(i), job.in.data(i), job.out.data(i), outputs, job.count(i) - ddof, {}, {}});
    find_order(runs.back());
    outputs += job.shape(i).outputs;
    max_outputs = std::max(max_outputs, job.shape(i).outputs);
    max_elements = std::max(max_elements, job.in.volume(i));
  }
  if (outputs == 0 || max_elements == 0) return;
  const cudaStream_t stream = current_cuda_stream();
  // Means and spreads in double, factors as pairs of floats.
  const CudaBuffer moments(outputs * 16), factor_buffer(outputs * 8);
  double *means = static_cast<double*>(moments.data()), *spread = means + outputs;
  const auto copy = [&](const std::vector<double>& from, double* to) { upload(to, from.data(), from.size() * 8, "normalize"); };
  // The samples as the reduction driver takes them. With `centers`, squared distances from the means are added up.
  const auto samples_of = [&](double* to, Finish finish, const double* centers) {
    std::vector<reduce::GpuSample> parts;
    for (const Run& run : runs) {
      const int64_t divisor = centers ? std::max<int64_t>(1, run.divisor) : run.divisor + ddof;
      parts.push_back({run.shape, {finish, divisor}, run.in, to + run.first, centers ? centers + run.first : nullptr, run.shape.outputs, 0, 0});
    }
    return parts;
  };
  const reduce::GpuTypes types{job.in.dtype(), DType::float64, DType::float64};
  // Sums, or sums of squared distances from the means, over the sample or the batch, divided.
  const auto reduce_to = [&](double* to, const auto& fold, const double* centers) {
    reduce::launch_gpu("normalize", samples_of(to, batch ? Finish::sum : Finish::mean, centers), fold, types);
    const double divisor = static_cast<double>(centers ? std::max<int64_t>(1, runs[0].divisor) : runs[0].divisor + ddof);
    if (batch) pool<<<batch_grid(max_outputs, kThreads, 1), kThreads, 0, stream>>>(to, max_outputs, samples, divisor);
  };
  const KernelTable<Run> table(runs);
  // Which launches follow: moments of both together, or a sum for each statistic that is not given; then make_factors() and apply().
  const bool both = !job.mean && !job.stddev;  // in one pass over the input
  if (both) {
    reduce::launch_gpu("normalize", samples_of(means, Finish::sum, nullptr), reduce::GpuMoments{outputs}, types);
    if (batch) pool_moments<<<batch_grid(max_outputs, kThreads, 1), kThreads, 0, stream>>>(table.rows(), samples, max_outputs, means, spread);
  }
  if (job.mean) copy(argument_values(job, job.mean), means);
  else if (!both) reduce_to(means, reduce::GpuSum<false, false>{}, nullptr);
  if (job.stddev) copy(argument_values(job, job.stddev), spread);
  else if (!both) reduce_to(spread, reduce::GpuSum<true, true>{}, means);
  float2* factors = static_cast<float2*>(factor_buffer.data());
  make_factors<<<batch_grid(max_outputs, kThreads, samples), kThreads, 0, stream>>>(table.rows(), samples, means, spread,
                                                                                    {epsilon, scale, bool(job.stddev), both}, factors);
  // With statistics the input is read twice; a batch that fits in the 50 MB of the second-level cache comes from there the second time.
  const dim3 grid = batch_grid(tiles::blocks<2>(max_elements), 1, samples);
  apply<<<grid, kThreads, 0, stream>>>(table.rows(), samples, factors, static_cast<float>(shift), job.in.dtype(), job.out.dtype());
  check_launch("normalize");
}

}  // namespace
}  // namespace ndd::normalize
NDD_KERNEL(normalize, CUDA, ndd::normalize::normalize_cuda)
