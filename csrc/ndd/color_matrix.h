// SPDX-License-Identifier: Apache-2.0
// Colour matrix driver: every pixel of three interleaved channels is multiplied by a 3 x 4 matrix, for every pair of element types, on the device
// of the tensors. One matrix for a sample, or one for each frame of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "ndd/pointwise.h"

namespace ndd {

// out[c] = m[c][0] * in[0] + m[c][1] * in[1] + m[c][2] * in[2] + m[c][3], with fused multiplications on every processor, so that results are the same.
struct ColorMatrix {
  float m[3][4];
  NDD_HD void operator()(float r, float g, float b, float* out) const {
    for (int c = 0; c < 3; ++c) out[c] = fmaf(m[c][0], r, fmaf(m[c][1], g, fmaf(m[c][2], b, m[c][3])));
  }
};

namespace color_matrix_detail {

// Some 0.3 ns a pixel for uint8 and 1 ns for the other types.
constexpr double kNanosecondsPerElement = 0.15;

// In color_matrix.cpp, out of nvcc's sight.
void run_cpu(const PointwiseRun<ColorMatrix>& run, DType in, DType out);

#ifdef __CUDACC__
__global__ inline void run_gpu(const PointwiseRun<ColorMatrix>* runs, int64_t count, DType in, DType out) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const PointwiseRun<ColorMatrix> run = runs[k];
    const int64_t stride = int64_t{gridDim.x} * blockDim.x;
    for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < run.count / 3; i += stride) {
      float pixel[3];
      run.f(load_element(run.in, in, 3 * i), load_element(run.in, in, 3 * i + 1), load_element(run.in, in, 3 * i + 2), pixel);
      for (int c = 0; c < 3; ++c) store_element(pixel[c], run.out, out, 3 * i + c);
    }
  }
}

inline void launch_gpu(const std::string& op, const std::vector<PointwiseRun<ColorMatrix>>& runs, DType in, DType out) {
  constexpr int kThreads = 256;
  int64_t most = 0;
  for (const auto& run : runs) most = std::max(most, run.count / 3);
  if (most == 0) return;
  const CudaTable<PointwiseRun<ColorMatrix>> table(runs);
  const int64_t count = static_cast<int64_t>(runs.size());
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>((most + kThreads - 1) / kThreads, 1 << 16)), static_cast<unsigned>(std::min<int64_t>(count, 65535)));
  run_gpu<<<grid, kThreads, 0, current_cuda_stream()>>>(table.data(), count, in, out);
  check_launch(op.c_str());
}
#endif

}  // namespace color_matrix_detail

// Applies the ColorMatrix make_matrix(i, f) to frame f of sample i. `arguments` are those that may have a column for each frame.
template <class Make>
void color_matrix(const std::string& op, const Samples& in, const Samples& out, std::initializer_list<const Args<float>*> arguments, Make make_matrix) {
  using namespace color_matrix_detail;
  const int64_t columns = pointwise_detail::frame_arguments(arguments);
  const auto visit_runs = [=](int64_t i, auto visit) {
    if (in.ndim() < 1 || in.shape(i)[in.ndim() - 1] != 3)
      throw Error(Error::Runtime, op + ": the image must have 3 channels, sample " + std::to_string(i) + " has " +
                                      std::to_string(in.ndim() < 1 ? 0 : in.shape(i)[in.ndim() - 1]));
    pointwise_detail::for_each_run(op, in, out, i, columns, make_matrix, visit);
  };
#ifdef __CUDACC__
  if (in.values().is_cuda()) {
    std::vector<PointwiseRun<ColorMatrix>> runs;
    for (int64_t i = 0; i < in.size(); ++i) visit_runs(i, [&](const auto& run) { runs.push_back(run); });
    return launch_gpu(op, runs, in.dtype(), out.dtype());
  }
#endif
  const double cost = in.size() > 0 ? kNanosecondsPerElement * static_cast<double>(in.volume(0)) : 0;
  launch_cpu(op, in.size(), cost, {}, [=](int64_t i) { visit_runs(i, [&](const auto& run) { run_cpu(run, in.dtype(), out.dtype()); }); });
}

}  // namespace ndd
