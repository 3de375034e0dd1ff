// SPDX-License-Identifier: Apache-2.0
// reductions.sum and mean. Integers are summed as integers, whose sum is exact in any order; floats in double, in a fixed order.
#include "ops/reductions/reductions.h"

#ifdef __CUDACC__
namespace ndd {
template void reduce::launch_gpu(const char*, std::vector<reduce::GpuSample>, const reduce::GpuSum<false, false>&, const reduce::GpuTypes&);
}  // namespace ndd
#endif

namespace ndd::sums_kernels {
namespace {

using reductions::Job;

void sum(const Tensor& input, const MaybeTensor& input_shapes, int64_t axes, const Tensor& output, const MaybeTensor& output_shapes) {
  const Job job("reductions.sum", input, input_shapes, axes, output, output_shapes, Finish::sum);
#ifdef __CUDACC__
  if (input.is_cuda())
    return is_floating_dtype(job.in.dtype()) ? job.launch_gpu(reduce::GpuSum<false, false>{}) : job.launch_gpu(reduce::GpuWholeSum{});
#endif
  job.launch(reduce::Fold::sum);
}

void mean(const Tensor& input, const MaybeTensor& input_shapes, int64_t axes, const Tensor& output, const MaybeTensor& output_shapes) {
  const Job job("reductions.mean", input, input_shapes, axes, output, output_shapes, Finish::mean);
#ifdef __CUDACC__
  if (input.is_cuda()) {
    const bool whole = !is_floating_dtype(job.in.dtype()) && job.in.item_bytes() < 8;
    return whole ? job.launch_gpu(reduce::GpuWholeSum{}) : job.launch_gpu(reduce::GpuSum<false, false>{});
  }
#endif
  job.launch(reduce::Fold::mean);
}

}  // namespace
}  // namespace ndd::sums_kernels
NDD_KERNELS(reductions_sum, ndd::sums_kernels::sum)
NDD_KERNELS(reductions_mean, ndd::sums_kernels::mean)
