// SPDX-License-Identifier: Apache-2.0
// copy: the driver of slices without a window, so the copy is a launch like any other, which may be pending and is shared among the threads.
#include "ndd/kernel.h"
#include "ndd/slice/slice.h"

namespace ndd {
namespace {

void copy(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  check_same("copy", out, in);
  run_slices("copy", in, out, true, [=](int64_t i, SliceBatch& batch) {
    // A sample is one run of elements; its shape does not matter.
    batch.channels.resize(1);
    const int64_t volume = in.volume(i);
    batch.slices.push_back(run_slice(in.data(i), out.data(i), 1, volume, volume));
  });
}

}  // namespace
}  // namespace ndd
NDD_HOST_KERNELS(copy, ndd::copy)
