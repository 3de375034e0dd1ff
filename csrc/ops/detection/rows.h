// SPDX-License-Identifier: Apache-2.0
// Rows driver for tables of boxes and points. Rows are short, so a thread or a loop iteration handles a row: out = f(in) for every row of a few floats, a box or a point, with one f for each sample.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ndd/args.h"
#include "ndd/hd.h"
#include "ndd/samples.h"
#include "ndd/stream/stream.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#endif

namespace ndd {

// f is a small struct with `void operator()(const float* in, float* out) const` marked NDD_HD.
template <class F>
struct RowsRun {
  const float* in;
  float* out;
  int64_t rows, width;
  F f;
};

#ifdef __CUDACC__
namespace rows_detail {

template <class F>
__global__ void run_gpu(const __grid_constant__ TableRows<RowsRun<F>> runs, int64_t count) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const RowsRun<F> run = runs[k];
    for (int64_t r = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; r < run.rows; r += int64_t{gridDim.x} * blockDim.x)
      run.f(run.in + r * run.width, run.out + r * run.width);
  }
}

}  // namespace rows_detail
#endif

// make(i) is the function of sample i, width(i) how many floats its rows have. All samples in one launch.
template <class Make, class Width>
static void map_rows(const std::string& op, const Samples& in, const Samples& out, Width width, Make make) {
  if (in.dtype() != DType::float32) fail(Error::Type, op, ": the numbers must be float32");
  check_same(op.c_str(), out, in);
  const auto run_of = [=](int64_t i) {
    const int64_t n = width(i);
    return RowsRun<decltype(make(i))>{static_cast<const float*>(in.data(i)), static_cast<float*>(out.data(i)), n > 0 ? in.volume(i) / n : 0, n,
                                      make(i)};
  };
#ifdef __CUDACC__
  if (in.values().is_cuda()) {
    std::vector<decltype(run_of(0))> runs;
    int64_t max_rows = 0;
    for (int64_t i = 0; i < in.size(); ++i) max_rows = std::max(max_rows, runs.emplace_back(run_of(i)).rows);
    if (max_rows == 0) return;
    const KernelTable<decltype(run_of(0))> table(runs);
    const dim3 grid = batch_grid(max_rows, 128, in.size());
    rows_detail::run_gpu<<<grid, 128, 0, current_cuda_stream()>>>(table.rows(), in.size());
    return check_launch(op.c_str());
  }
#endif
  launch_cpu(op, in.size(), 0.5 * in.mean_volume(), {}, [=](int64_t i) {
    const auto run = run_of(i);
    for (int64_t r = 0; r < run.rows; ++r) run.f(run.in + r * run.width, run.out + r * run.width);
  });
}

constexpr int64_t kBoxNumbers = 4;

template <class Make>
static void map_boxes(const std::string& op, const Samples& in, const Samples& out, Make make) {
  map_rows(op, in, out, [](int64_t) { return kBoxNumbers; }, make);
}

}  // namespace ndd
