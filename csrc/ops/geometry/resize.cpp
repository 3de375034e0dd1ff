// SPDX-License-Identifier: Apache-2.0
#include "ops/geometry/resize.h"

#include "ndd/kernel.h"
#include "ndd/resample_cpu.h"
#include "ndd/stream.h"

namespace ndd {
namespace {

void resize(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& roi, const Tensor& min_filter, const Tensor& mag_filter,
            bool antialias, int64_t first_spatial, int64_t spatial, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const ResizeArgs args(roi, min_filter, mag_filter, antialias, first_spatial, spatial);
  const double cost = 0.05 * in.mean_volume() + 0.15 * out.mean_volume();
  launch_cpu("resize", in.size(), cost, {input}, [=](int64_t i) {
    ResampleJob job{in.data(i), out.data(i), in.dtype(), out.dtype(), args.outer(in.shape(i)), args.channels(in.shape(i), in.ndim()), {}};
    args.read_axes(i, in.shape(i), out.shape(i), job.axes);
    resample_cpu(job);
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(resize, CPU, ndd::resize)
NDD_KERNEL(random_resized_crop, CPU, ndd::resize)
