// SPDX-License-Identifier: Apache-2.0
// reductions.min and max, on the driver of reductions. No total is wider than the input, so the result has its type and its exact value.
#include "ops/reductions/reductions.h"

namespace ndd::extremes_kernels {
namespace {

using reductions::Job;

// Finish::sum returns the total as it is, which for these folds is the extreme.
template <bool largest>
void extreme(const Tensor& input, const MaybeTensor& input_shapes, int64_t axes, const Tensor& output, const MaybeTensor& output_shapes) {
  const Job job(largest ? "reductions.max" : "reductions.min", input, input_shapes, axes, output, output_shapes, Finish::sum);
#ifdef __CUDACC__
  if (input.is_cuda()) return job.launch_gpu(reduce::GpuExtreme{largest});
#endif
  job.launch(largest ? reduce::Fold::largest : reduce::Fold::smallest);
}

}  // namespace
}  // namespace ndd::extremes_kernels
NDD_KERNELS(reductions_min, ndd::extremes_kernels::extreme<false>)
NDD_KERNELS(reductions_max, ndd::extremes_kernels::extreme<true>)
