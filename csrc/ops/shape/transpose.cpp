// SPDX-License-Identifier: Apache-2.0
// transpose: a slice of the whole sample with its axes in another order. The driver of slices joins axes and finds the loop (ndd/slice/plan.h).
#include "ndd/kernel.h"
#include "ndd/slice/slice.h"

namespace ndd {
namespace {

// Axis d of the output is axis order[d] of the input; `order` is digits.
void transpose(const Tensor& input, const MaybeTensor& input_shapes, const std::string& order, const Tensor& output,
               const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const int ndim = static_cast<int>(in.ndim());
  check_slice_dims(ndim);
  if (in.dtype() != out.dtype() || out.ndim() != ndim || static_cast<int64_t>(order.size()) != ndim)
    fail(Error::Value, "transpose: the order must have ", ndim, " axes, and the output the type of the input");
  run_slices("transpose", in, out, true, [=](int64_t i, SliceBatch& batch) {
    int axes[kSliceDims];
    // kSliceDims is below 10, so each axis is one digit.
    for (int d = 0; d < ndim; ++d) axes[d] = order[d] - '0';
    batch.channels.resize(1);
    batch.slices.push_back(
        window_slice(in.data(i), in.shape(i), out.data(i), out.shape(i), axes, ndim, [](int) { return 0; }, [](int) { return false; }));
  });
}

}  // namespace
}  // namespace ndd
NDD_HOST_KERNELS(transpose, ndd::transpose)
