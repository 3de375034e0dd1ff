// SPDX-License-Identifier: Apache-2.0
#include "ops/geometry/rotate.h"

#include "ndd/kernel.h"
#include "ndd/stream.h"
#include "ndd/warp_cpu.h"

namespace ndd {
namespace {

// 1.5 ns a pixel for linear uint8 with three channels
constexpr double kNanosecondsPerElement = 0.5;

template <int D>
void rotate_sample(const rotate::Arguments& arguments, Interp interp, const Samples& in, const Samples& out, int64_t i) {
  for (int64_t f = 0; f < rotate::Arguments::frames<D>(in, i); ++f) warp_cpu(arguments.item<D>(in, out, i, f), in.dtype(), out.dtype(), interp);
}

void rotate_cpu(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& angle, const MaybeTensor& axis, const MaybeTensor& fill_value,
                int64_t interp_type, int64_t spatial, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const rotate::Arguments arguments(angle, axis, fill_value);
  const Interp interp = static_cast<Interp>(interp_type);
  const double cost = kNanosecondsPerElement * out.mean_volume();
  launch_cpu("rotate", in.size(), cost, {input}, [=](int64_t i) {
    if (spatial == 3) rotate_sample<3>(arguments, interp, in, out, i);
    else rotate_sample<2>(arguments, interp, in, out, i);
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(rotate, CPU, ndd::rotate_cpu)
