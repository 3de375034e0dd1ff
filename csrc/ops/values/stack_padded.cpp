// SPDX-License-Identifier: Apache-2.0
// Copies samples of different shapes into one dense buffer, each at the origin and padded with `fill`.
#include "ndd/kernel.h"
#include "ndd/slice/slice.h"

namespace ndd {
namespace {

void stack_padded(const Tensor& input, const MaybeTensor& input_shapes, double fill, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  if (out.dtype() != in.dtype() || out.ndim() != in.ndim())
    fail(Error::Value, "stack_padded: the output must have the type and dimensions of the input");
  run_slices("stack_padded", in, out, true, [=](int64_t i, SliceBatch& batch) {
    // The driver writes `fill` wherever the window lies outside of the sample.
    batch.channels.assign(1, {0.0f, 1.0f, 0.0f, static_cast<float>(fill)});
    if (out.volume(i) == 0) return;
    // An axis without padding is merged with the axis before it, which makes longer runs.
    std::vector<int64_t> from, to;
    for (int64_t d = 0; d < in.ndim(); ++d) {
      const int64_t a = in.shape(i)[d], b = out.shape(i)[d];
      if (a == b && !from.empty()) {
        from.back() *= a;
        to.back() *= b;
      } else {
        from.push_back(a);
        to.push_back(b);
      }
    }
    batch.slices.push_back(window_slice(
        in.data(i), from.data(), out.data(i), to.data(), nullptr, static_cast<int>(from.size()), [](int) { return 0; }, [](int) { return false; }));
  });
}

}  // namespace
}  // namespace ndd
NDD_HOST_KERNELS(stack_padded, ndd::stack_padded)
