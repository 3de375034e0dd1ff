// SPDX-License-Identifier: Apache-2.0
#include "ops/reductions/reductions.h"

namespace ndd {
namespace {

using reductions::Job;

template <class T>
using Smallest = reduce::Extreme<T, false>;
template <class T>
using Largest = reduce::Extreme<T, true>;

template <template <class> class Fold>
void launch(const Job& job) {
  job.launch([=](int64_t i) {
    for_dtype(job.in.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* out = static_cast<T*>(job.out.data(i));
      reduce::fold_sample<Fold>(job.shape(i), static_cast<const T*>(job.in.data(i)), [](int64_t) { return 0.0; },
                                [&](int64_t first, int64_t n, const typename Fold<T>::Total* totals) {
                                  for (int64_t k = 0; k < n; ++k) out[first + k] = static_cast<T>(totals[k]);
                                });
    });
  });
}

void smallest(const Tensor& input, const MaybeTensor& input_shapes, int64_t axes, const Tensor& output, const MaybeTensor& output_shapes) {
  const Job job("reductions.min", input, input_shapes, axes, output, output_shapes, Finish::sum);
#ifdef __CUDACC__
  if (input.is_cuda()) return job.launch_gpu(reduce::GpuExtreme{false});
#endif
  launch<Smallest>(job);
}

void largest(const Tensor& input, const MaybeTensor& input_shapes, int64_t axes, const Tensor& output, const MaybeTensor& output_shapes) {
  const Job job("reductions.max", input, input_shapes, axes, output, output_shapes, Finish::sum);
#ifdef __CUDACC__
  if (input.is_cuda()) return job.launch_gpu(reduce::GpuExtreme{true});
#endif
  launch<Largest>(job);
}

}  // namespace
}  // namespace ndd
NDD_KERNELS(reductions_min, ndd::smallest)
NDD_KERNELS(reductions_max, ndd::largest)
