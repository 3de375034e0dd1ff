// SPDX-License-Identifier: Apache-2.0
#include "ops/generic/normalize.h"

#include <algorithm>

#include "ndd/cuda.h"
#include "ndd/elements.cuh"
#include "ndd/kernel.h"
#include "ndd/reduce.cuh"

namespace ndd {
namespace normalize {
namespace {

constexpr int kThreads = 256;

struct Run {
  Reduction shape;
  const void* in;
  void* out;
  int64_t first;  // of its outputs among those of all samples
  int64_t divisor;
};

struct Scaling {
  double epsilon, scale;
  bool given_stddev, batch;
};

// Totals of all samples become the total of each, divided by `divisor`.
__global__ void pool(double* totals, int64_t outputs, int64_t samples, double divisor) {
  for (int64_t o = int64_t{blockIdx.x} * kThreads + threadIdx.x; o < outputs; o += int64_t{gridDim.x} * kThreads) {
    double total = 0;
    for (int64_t i = 0; i < samples; ++i) total += totals[i * outputs + o];
    for (int64_t i = 0; i < samples; ++i) totals[i * outputs + o] = total / divisor;
  }
}

// Mean and factor of every output. `spread` holds variances, or the standard deviations that were given.
__global__ void make_factors(const Run* runs, int64_t count, const double* means, const double* spread, Scaling scaling, float2* factors) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run& run = runs[k];
    for (int64_t o = int64_t{blockIdx.x} * kThreads + threadIdx.x; o < run.shape.outputs; o += int64_t{gridDim.x} * kThreads) {
      const double s = spread[run.first + o];
      const double inverse = scaling.given_stddev ? inverse_of_given(s, scaling.epsilon) : run.divisor > 0 ? inverse_deviation(s, scaling.epsilon) : 0.0;
      factors[run.first + o] = make_float2(static_cast<float>(means[run.first + o]), static_cast<float>(inverse * scaling.scale));
    }
  }
}

__global__ void apply(const Run* runs, int64_t count, const float2* factors, float shift, DType in, DType out) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run& run = runs[k];
    const int64_t volume = run.shape.outputs * run.shape.count;
    for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < volume; i += int64_t{gridDim.x} * kThreads) {
      const float2 factor = factors[run.first + output_of(run.shape, i)];
      store_element(normalized(load_element(run.in, in, i), factor.x, factor.y, shift), run.out, out, i);
    }
  }
}

dim3 grid_of(int64_t elements, int64_t samples) {
  return dim3(static_cast<unsigned>(std::clamp<int64_t>((elements + kThreads - 1) / kThreads, 1, 1 << 16)),
              static_cast<unsigned>(std::min<int64_t>(samples, 65535)));
}

std::vector<double> given_values(const Job& job, const Given& given) {
  std::vector<double> made;
  for (int64_t i = 0; i < job.in.size(); ++i) {
    const auto row = given.of_sample(i, job.shape(i).outputs);
    made.insert(made.end(), row.begin(), row.end());
  }
  return made;
}

void normalize_cuda(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& mean, int64_t mean_rows, const MaybeTensor& stddev,
                    int64_t stddev_rows, int64_t axes, bool batch, int64_t ddof, double epsilon, double scale, double shift, const Tensor& output,
                    const MaybeTensor& output_shapes) {
  const Job job = job_of(input, input_shapes, mean, mean_rows, stddev, stddev_rows, axes, batch, ddof, epsilon, scale, shift, output, output_shapes);
  const int64_t samples = job.in.size();
  std::vector<Run> runs;
  int64_t outputs = 0, most_outputs = 0, most_elements = 0;
  for (int64_t i = 0; i < samples; ++i) {
    runs.push_back({job.shape(i), job.in.data(i), job.out.data(i), outputs, job.count(i) - ddof});
    outputs += job.shape(i).outputs;
    most_outputs = std::max(most_outputs, job.shape(i).outputs);
    most_elements = std::max(most_elements, job.in.volume(i));
  }
  if (outputs == 0 || most_elements == 0) return;
  const cudaStream_t stream = current_cuda_stream();
  const CudaBuffer mean_buffer(outputs * 8), spread_buffer(outputs * 8), factor_buffer(outputs * 8);
  double *means = static_cast<double*>(mean_buffer.data()), *spread = static_cast<double*>(spread_buffer.data());
  const auto copy = [&](const std::vector<double>& from, double* to) { upload(to, from.data(), from.size() * 8, "normalize"); };
  // Sums, or sums of squared distances from the means, over the sample or the batch, divided.
  const auto reduce_to = [&](double* to, int power) {
    std::vector<reduce::GpuSample> parts;
    for (const Run& run : runs) {
      const int64_t divisor = power == 1 ? run.divisor + ddof : std::max<int64_t>(1, run.divisor);
      parts.push_back({run.shape, {batch ? Finish::sum : Finish::mean, divisor}, run.in, to + run.first, power == 1 ? nullptr : means + run.first,
                       run.shape.outputs, 0, 0});
    }
    reduce::launch_gpu("normalize", parts, reduce::GpuSum{power}, {job.in.dtype(), DType::float64, DType::float64});
    const double divisor = static_cast<double>(power == 1 ? runs[0].divisor + ddof : std::max<int64_t>(1, runs[0].divisor));
    if (batch) pool<<<grid_of(most_outputs, 1), kThreads, 0, stream>>>(to, most_outputs, samples, divisor);
  };
  if (job.mean) copy(given_values(job, job.mean), means);
  else reduce_to(means, 1);
  if (job.stddev) copy(given_values(job, job.stddev), spread);
  else reduce_to(spread, 2);
  const CudaTable<Run> table(runs);
  float2* factors = static_cast<float2*>(factor_buffer.data());
  make_factors<<<grid_of(most_outputs, samples), kThreads, 0, stream>>>(table.data(), samples, means, spread, {epsilon, scale, bool(job.stddev), batch}, factors);
  // The input is read three times, twice for the statistics; a batch that fits in the 50 MB of the second-level cache comes from there. Here some 60 %
  // of the bandwidth are expected: the quotients that find an element's output cost as much as its bytes.
  apply<<<grid_of(most_elements, samples), kThreads, 0, stream>>>(table.data(), samples, factors, static_cast<float>(shift), job.in.dtype(), job.out.dtype());
  check_launch("normalize");
}

}  // namespace
}  // namespace normalize
}  // namespace ndd
NDD_KERNEL(normalize, CUDA, ndd::normalize::normalize_cuda)
