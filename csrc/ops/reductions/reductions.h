// SPDX-License-Identifier: Apache-2.0
// From the tensors of a call to a reduction for each sample, for all operators of this family.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "ndd/kernel.h"
#include "ndd/reduce/cpu.h"
#ifdef __CUDACC__
#include "ndd/reduce/reduce.cuh"
#endif

namespace ndd::reductions {
namespace {  // `launch` differs between the halves of a .cu

// A VGA image of uint8 takes 30 us, one of float32 100 us.
constexpr double kNanoseconds = 0.1;

// The samples of a call: their shapes, and how their totals become results.
struct Job {
  const char* op;
  Samples in, out;
  std::vector<Reduction> shapes;  // one where all are equal
  Finish finish;
  int64_t ddof;

  Job(const char* op, const Tensor& input, const MaybeTensor& input_shapes, int64_t axes, const Tensor& output, const MaybeTensor& output_shapes,
      Finish finish, int64_t ddof = 0)
      : op(op), in(input, input_shapes), out(output, output_shapes), finish(finish), ddof(ddof) {
    check_degrees(op, ddof);
    for (int64_t i = 0; i < (in.dense() ? std::min<int64_t>(1, in.size()) : in.size()); ++i) shapes.emplace_back(in.shape(i), in.ndim(), axes);
    check_outputs(op, out, in.size(), [&](int64_t i) { return shape(i).outputs; });
  }

  const Reduction& shape(int64_t i) const { return shapes[in.dense() ? 0 : i]; }
  Finisher finisher(int64_t i) const { return {finish, shape(i).count - ddof}; }

  // run(i) computes the results of sample i.
  template <class Run>
  void launch(Run run) const {
    launch_cpu(op, in.size(), kNanoseconds * in.mean_volume(), {}, run);
  }

  void launch(reduce::Fold fold) const {
    launch([job = *this, fold](int64_t i) {
      reduce::reduce_sample(fold, job.shape(i), job.finisher(i), job.in.data(i), job.in.dtype(), {}, job.out.data(i), job.out.dtype());
    });
  }

#ifdef __CUDACC__
  std::vector<reduce::GpuSample> gpu_samples() const {
    std::vector<reduce::GpuSample> samples;
    for (int64_t i = 0; i < in.size(); ++i) samples.push_back({shape(i), finisher(i), in.data(i), out.data(i), nullptr, 0, 0, 0});
    return samples;
  }

  template <class Fold>
  void launch_gpu(const Fold& fold) const {
    reduce::launch_gpu(op, gpu_samples(), fold, {in.dtype(), out.dtype(), DType::float32});
  }
#endif
};

}  // namespace
}  // namespace ndd::reductions
