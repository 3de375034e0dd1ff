// SPDX-License-Identifier: Apache-2.0
#include "ndd/kernel.h"
#include "ndd/slice.h"
#include "ops/geometry/window.h"

namespace ndd {
namespace {

void crop(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& start, const Tensor& fill_values, bool pad, const std::string& layout,
          const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const Window window("crop", start, fill_values, pad, layout);
  const int ndim = static_cast<int>(in.ndim()), channel = static_cast<int>(layout.find('C'));
  const bool copies = in.dtype() == out.dtype();
  run_slices("crop", in, out, copies, [=](int64_t i, SliceBatch& batch) {
    const int64_t *from = in.shape(i), *to = out.shape(i);
    for (int a = 0; a < ndim; ++a) window.check(i, a, to[a], from[a]);
    Slice slice = window_slice(in.data(i), from, out.data(i), to, nullptr, ndim, [&](int a) { return window.start(i, a); }, [](int) { return false; });
    slice.copies = copies;
    slice.channels = static_cast<int64_t>(batch.channels.size());
    if (pad) window.fill.check(i, to[channel]);
    if (pad && !window.fill.single()) slice.channel = channel;
    for (int64_t c = 0; c < (slice.channel < 0 ? 1 : to[channel]); ++c) batch.channels.push_back({0.0f, 1.0f, 0.0f, window.fill(i, c)});
    batch.slices.push_back(slice);
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNELS(crop, ndd::crop)
