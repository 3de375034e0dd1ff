// SPDX-License-Identifier: Apache-2.0
// random_crop_generator: anchors and extents from shapes that may lie on a GPU, where one thread for each image computes them: they need not come to
// the host.
#include <vector>

#include "ndd/elementwise/elements.cuh"
#include "ndd/kernel.h"
#include "ndd/random/random.h"
#include "ops/random/random_window.h"

namespace ndd::random_crop_generator_kernels {
namespace {

constexpr double kWindowNanoseconds = 300;  // as in random_crop_windows.cpp

// One image: its shape, height and width first, and the two numbers of each result.
struct Run {
  Philox stream;
  const void* shape;
  int32_t *anchor, *extent;
};

// A shape may be of any type of numbers.
NDD_HD int64_t load_integer(const void* data, DType dtype, int64_t k) {
  int64_t value = 0;
  for_dtype(dtype, [&](auto tag) { value = saturate<int64_t>(static_cast<const typename decltype(tag)::type*>(data)[k]); });
  return value;
}

NDD_HD void write_window(const Run& run, const WindowLimits& limits, DType dtype) {
  const RandomWindow window = random_window(run.stream, load_integer(run.shape, dtype, 0), load_integer(run.shape, dtype, 1), limits);
  run.anchor[0] = static_cast<int32_t>(window.y);
  run.anchor[1] = static_cast<int32_t>(window.x);
  run.extent[0] = static_cast<int32_t>(window.height);
  run.extent[1] = static_cast<int32_t>(window.width);
}

#ifdef __CUDACC__
// A thread for each image: next to nothing to compute, and the shapes need not come to the host.
__global__ void run_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count, WindowLimits limits, DType dtype) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) write_window(runs[i], limits, dtype);
}
#endif

void random_crop_generator(const Tensor& input, const MaybeTensor& input_shapes, double area_low, double area_high, double aspect_low,
                           double aspect_high, int64_t num_attempts, const Tensor& words, const Tensor& anchors, const MaybeTensor& anchors_shapes,
                           const Tensor& extents, const MaybeTensor& extents_shapes) {
  const std::string op = "random_crop_generator";
  const Samples in(input, input_shapes), anchor(anchors, anchors_shapes), extent(extents, extents_shapes);
  const int64_t* drawn = drawn_words(op, words);
  const WindowLimits limits{{area_low, area_high}, {aspect_low, aspect_high}, num_attempts};
  check_attempts(op, limits);
  const auto make = [=](int64_t i) {
    // A height and a width each, to which a shape may add the channels.
    if (in.volume(i) < 2) fail(Error::Value, op, ": sample ", i, " must have a height and a width, got ", in.volume(i), " numbers");
    for (const Samples* pair : {&anchor, &extent})
      if (pair->volume(i) != 2) fail(Error::Value, op, ": sample ", i, " of an output must have two numbers, got ", pair->volume(i));
    if (anchor.dtype() != DType::int32 || extent.dtype() != DType::int32) fail(Error::Type, op, ": anchors and extents must be int32");
    return Run{Philox(drawn, i), in.data(i), static_cast<int32_t*>(anchor.data(i)), static_cast<int32_t*>(extent.data(i))};
  };
#ifdef __CUDACC__
  if (input.is_cuda()) {
    std::vector<Run> runs;
    for (int64_t i = 0; i < in.size(); ++i) runs.push_back(make(i));
    if (runs.empty()) return;
    const KernelTable<Run> table(runs);
    run_gpu<<<static_cast<unsigned>((in.size() + 127) / 128), 128, 0, current_cuda_stream()>>>(table.rows(), in.size(), limits, in.dtype());
    return check_launch(op.c_str());
  }
#endif
  launch_cpu(op, in.size(), kWindowNanoseconds, {words}, [=](int64_t i) { write_window(make(i), limits, in.dtype()); });
}

}  // namespace
}  // namespace ndd::random_crop_generator_kernels
NDD_KERNELS(random_crop_generator, ndd::random_crop_generator_kernels::random_crop_generator)
