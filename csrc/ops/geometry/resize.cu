// SPDX-License-Identifier: Apache-2.0
#include "ops/geometry/resize.h"

#include <algorithm>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/dtypes.h"
#include "ndd/kernel.h"
#include "ndd/resample_cuda.cuh"

namespace ndd {
namespace {

using resample_gpu::grid;
using resample_gpu::kThreads;

template <class In, class Out>
void mix_axis(const GpuResample* samples, int64_t count, int axis, int first, int64_t most, cudaStream_t stream) {
  resample_gpu::mix_axis_kernel<In, Out><<<grid(count, most), kThreads, 0, stream>>>(samples, count, axis, first);
}

template <class Unit>
void copy_nearest(const GpuResample* samples, int64_t count, int64_t most, cudaStream_t stream) {
  resample_gpu::nearest_kernel<Unit><<<grid(count, most), kThreads, 0, stream>>>(samples, count);
}

void launch_nearest(const GpuResample* samples, int64_t count, int64_t most, int64_t item_bytes, cudaStream_t stream) {
  const auto copy = item_bytes == 1   ? copy_nearest<uint8_t>
                    : item_bytes == 2 ? copy_nearest<uint16_t>
                    : item_bytes == 4 ? copy_nearest<uint32_t>
                                      : copy_nearest<uint64_t>;
  copy(samples, count, most, stream);
}

// Elements that the pass over `axis` writes for one sample.
int64_t pass_elements(const GpuResample& s, int axis) {
  int64_t n = s.outer * s.channels;
  for (int k = 0; k < 3; ++k) n *= k <= axis ? s.axes[k].out : s.axes[k].in;
  return n;
}

template <const char* op>
void resize_cuda(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& roi, const Tensor& min_filter,
                 const Tensor& mag_filter, bool antialias, int64_t axes, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const ResizeArgs args(op, roi, min_filter, mag_filter, antialias, axes);
  const int64_t count = in.size();
  if (count == 0) return;

  std::vector<GpuResample> jobs(count);
  bool nearest = in.dtype() == out.dtype();
  int64_t most_outputs = 0;
  for (int64_t i = 0; i < count; ++i) {
    GpuResample& s = jobs[i];
    s = GpuResample{in.data(i), out.data(i), {}, {}, {}, 1, 1, {}};
    args.read(i, in.shape(i), out.shape(i), in.ndim(), s);
    for (const Axis& a : s.axes) {
      nearest = nearest && a.filter == Filter::nearest;
      most_outputs = std::max(most_outputs, a.out);
    }
  }
  const CudaBuffer workspace(carve(jobs, nearest, nullptr));
  carve(jobs, nearest, static_cast<char*>(workspace.data()));
  const CudaTable<GpuResample> table(jobs);
  const cudaStream_t stream = current_cuda_stream();
  const auto most = [&](int axis) {
    int64_t n = 0;
    for (const GpuResample& s : jobs) n = std::max(n, pass_elements(s, axis));
    return n;
  };

  resample_gpu::write_weights_kernel<<<grid(count, most_outputs), kThreads, 0, stream>>>(table.data(), count);
  if (nearest) {
    launch_nearest(table.data(), count, most(2), in.item_bytes(), stream);
  } else {
    const int first = first_pass(jobs);
    for_dtype(in.dtype(), [&](auto tag) { mix_axis<typename decltype(tag)::type, float>(table.data(), count, first, first, most(first), stream); });
    for (int axis = first + 1; axis < 2; ++axis) mix_axis<float, float>(table.data(), count, axis, first, most(axis), stream);
    for_dtype(out.dtype(), [&](auto tag) { mix_axis<float, typename decltype(tag)::type>(table.data(), count, 2, first, most(2), stream); });
  }
  check_launch(op);
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(resize, CUDA, ndd::resize_cuda<ndd::kResize>)
NDD_KERNEL(experimental_resize, CUDA, ndd::resize_cuda<ndd::kExperimentalResize>)
NDD_KERNEL(resize_crop_mirror, CUDA, ndd::resize_cuda<ndd::kResizeCropMirror>)
NDD_KERNEL(tensor_resize, CUDA, ndd::resize_cuda<ndd::kTensorResize>)
NDD_KERNEL(random_resized_crop, CUDA, ndd::resize_cuda<ndd::kRandomResizedCrop>)
