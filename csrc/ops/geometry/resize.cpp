// SPDX-License-Identifier: Apache-2.0
#include "ops/geometry/resize.h"

#include "ndd/kernel.h"
#include "ndd/resample/cpu.h"
#include "ndd/stream/stream.h"

namespace ndd {
namespace {

template <const char* op>
void resize(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& roi, const MaybeTensor& window, const Tensor& min_filter,
            const Tensor& mag_filter, bool antialias, int64_t rule, int64_t axes, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const ResizeArgs args(op, roi, window, min_filter, mag_filter, antialias, rule, axes);
  // Nanoseconds per element of the input and of the output.
  const double cost = 0.05 * in.mean_volume() + 0.15 * out.mean_volume();
  launch_cpu(op, in.size(), cost, {input}, [=](int64_t i) {
    ResampleJob job{in.data(i), out.data(i), in.dtype(), out.dtype(), 1, 1, {}};
    args.read(i, in.shape(i), out.shape(i), in.ndim(), job);
    resample_cpu(job);
  });
}

// Sample i of the output is a region of image sources[i]: several crops of an image do not need as many copies of it.
void multi_crop(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& sources, const Tensor& roi, const Tensor& min_filter,
                const Tensor& mag_filter, bool antialias, int64_t rule, int64_t axes, const Tensor& output) {
  const Samples in(input, input_shapes), out(output, MaybeTensor());
  const Args<int64_t> images = check_sources(sources, roi, in, out);
  const ResizeArgs args(kMultiCrop, roi, MaybeTensor(), min_filter, mag_filter, antialias, rule, axes);
  const double cost = 0.03 * in.mean_volume() + 0.15 * out.mean_volume();
  launch_cpu(kMultiCrop, out.size(), cost, {input}, [=](int64_t i) {
    const int64_t image = images(i);
    ResampleJob job{in.data(image), out.data(i), in.dtype(), out.dtype(), 1, 1, {}};
    args.read(i, in.shape(image), out.shape(i), in.ndim(), job);
    resample_cpu(job);
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(resize, CPU, ndd::resize<ndd::kResize>)
NDD_KERNEL(resize_crop_mirror, CPU, ndd::resize<ndd::kResizeCropMirror>)
NDD_KERNEL(tensor_resize, CPU, ndd::resize<ndd::kTensorResize>)
NDD_KERNEL(random_resized_crop, CPU, ndd::resize<ndd::kRandomResizedCrop>)
NDD_KERNEL(multi_crop, CPU, ndd::multi_crop)
