// SPDX-License-Identifier: Apache-2.0
// reductions.mean_square, rms, variance and std_dev. Distances are taken from a mean that is known: the difference of two large sums would cancel.
#include "ops/reductions/reductions.h"

#ifdef __CUDACC__
namespace ndd {
template void reduce::launch_gpu(const char*, std::vector<reduce::GpuSample>, const reduce::GpuSum<true, true>&, const reduce::GpuTypes&);
}  // namespace ndd
#endif

namespace ndd::squares_kernels {
namespace {

using reductions::Job;

void mean_of_squares(const Job& job) {
#ifdef __CUDACC__
  if (job.in.values().is_cuda()) return job.launch_gpu(reduce::GpuSum<true, false>{});
#endif
  job.launch(reduce::Fold::squares);
}

void mean_square(const Tensor& input, const MaybeTensor& input_shapes, int64_t axes, const Tensor& output, const MaybeTensor& output_shapes) {
  mean_of_squares(Job("reductions.mean_square", input, input_shapes, axes, output, output_shapes, Finish::mean));
}

void rms(const Tensor& input, const MaybeTensor& input_shapes, int64_t axes, const Tensor& output, const MaybeTensor& output_shapes) {
  mean_of_squares(Job("reductions.rms", input, input_shapes, axes, output, output_shapes, Finish::root_mean));
}

void mean_of_distances(const Job& job, const Tensor& mean, const MaybeTensor& mean_shapes) {
  const Samples means(mean, mean_shapes);
  for (int64_t i = 0; i < job.in.size(); ++i)
    if (means.volume(i) != 1 && means.volume(i) != job.shape(i).outputs)
      fail(job.op, ": sample ", i, ": the mean must be one number or as many as the ", job.shape(i).outputs, " results, got ", means.volume(i));
#ifdef __CUDACC__
  if (job.in.values().is_cuda()) {
    auto samples = job.gpu_samples();
    for (size_t i = 0; i < samples.size(); ++i) {
      samples[i].center = means.data(static_cast<int64_t>(i));
      samples[i].centers = means.volume(static_cast<int64_t>(i));
    }
    return reduce::launch_gpu(job.op, std::move(samples), reduce::GpuSum<true, true>{}, {job.in.dtype(), job.out.dtype(), means.dtype()});
  }
#endif
  job.launch([=](int64_t i) {
    std::vector<double> centers(means.volume(i));
    for_dtype(means.dtype(), [&](auto tag) {
      const auto* source = static_cast<const typename decltype(tag)::type*>(means.data(i));
      for (size_t k = 0; k < centers.size(); ++k) centers[k] = widened<double>(source[k]);
    });
    reduce::reduce_sample(reduce::Fold::distances, job.shape(i), job.finisher(i), job.in.data(i), job.in.dtype(),
                          {centers.data(), centers.size() == 1 ? 0 : 1}, job.out.data(i), job.out.dtype());
  });
}

void variance(const Tensor& data, const MaybeTensor& data_shapes, const Tensor& mean, const MaybeTensor& mean_shapes, int64_t axes, int64_t ddof,
              const Tensor& output, const MaybeTensor& output_shapes) {
  mean_of_distances(Job("reductions.variance", data, data_shapes, axes, output, output_shapes, Finish::mean, ddof), mean, mean_shapes);
}

void std_dev(const Tensor& data, const MaybeTensor& data_shapes, const Tensor& mean, const MaybeTensor& mean_shapes, int64_t axes, int64_t ddof,
             const Tensor& output, const MaybeTensor& output_shapes) {
  mean_of_distances(Job("reductions.std_dev", data, data_shapes, axes, output, output_shapes, Finish::root_mean, ddof), mean, mean_shapes);
}

}  // namespace
}  // namespace ndd::squares_kernels
NDD_KERNELS(reductions_mean_square, ndd::squares_kernels::mean_square)
NDD_KERNELS(reductions_rms, ndd::squares_kernels::rms)
NDD_KERNELS(reductions_variance, ndd::squares_kernels::variance)
NDD_KERNELS(reductions_std_dev, ndd::squares_kernels::std_dev)
