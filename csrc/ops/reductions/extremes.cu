// SPDX-License-Identifier: Apache-2.0
#include "ops/reductions/reductions.h"

namespace ndd {
namespace {

using reductions::Job;

void smallest(const Tensor& input, const MaybeTensor& input_shapes, int64_t axes, const Tensor& output, const MaybeTensor& output_shapes) {
  const Job job("reductions.min", input, input_shapes, axes, output, output_shapes, Finish::sum);
#ifdef __CUDACC__
  if (input.is_cuda()) return job.launch_gpu(reduce::GpuExtreme{false});
#endif
  job.launch(reduce::Fold::smallest);
}

void largest(const Tensor& input, const MaybeTensor& input_shapes, int64_t axes, const Tensor& output, const MaybeTensor& output_shapes) {
  const Job job("reductions.max", input, input_shapes, axes, output, output_shapes, Finish::sum);
#ifdef __CUDACC__
  if (input.is_cuda()) return job.launch_gpu(reduce::GpuExtreme{true});
#endif
  job.launch(reduce::Fold::largest);
}

}  // namespace
}  // namespace ndd
NDD_KERNELS(reductions_min, ndd::smallest)
NDD_KERNELS(reductions_max, ndd::largest)
