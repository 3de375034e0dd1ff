// SPDX-License-Identifier: Apache-2.0
// crop, slice, pad and paste: a window of the input, or the input within a larger window, converted to the output's type. Python computes the windows.
#include "ndd/slice/bordered.h"
#include "ndd/slice/slice.h"
#include "ops/geometry/window.h"

namespace ndd {
namespace {

constexpr char kCrop[] = "crop", kSlice[] = "slice", kPad[] = "pad", kPaste[] = "paste";

// `border`: a Border, or kInside for windows that must not leave the input. `layout` is empty for a sample without channels.
template <const char* op>
void copy_windows(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& start, const Tensor& fill_values, int64_t border,
                  const std::string& layout, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const bool pad = fills(op, border), bordered = border != kInside && !pad;
  const Window window(op, start, fill_values, border != kInside, layout);
  const int ndim = static_cast<int>(in.ndim()), channel = static_cast<int>(layout.find('C'));
  if (out.ndim() != ndim || (!layout.empty() && static_cast<int>(layout.size()) != ndim))
    fail(Error::Value, op, ": the output and the layout must have the ", ndim, " dimensions of the input");
  const bool copies = in.dtype() == out.dtype();
  run_slices(op, in, out, copies, [=](int64_t i, SliceBatch& batch) {
    const int64_t *from = in.shape(i), *to = out.shape(i);
    for (int a = 0; a < ndim; ++a) window.check(i, a, to[a], from[a]);
    const auto first = [&](int a) { return window.start(i, a); };
    if (bordered) {
      window.check_elements(i, from, to, ndim);
      Slice whole;
      whole.in = in.data(i), whole.out = out.data(i);
      whole.copies = copies;
      whole.channels = static_cast<int64_t>(batch.channels.size());
      // Where elements are converted, the channels of a pixel go together: 8 images with repeated edges to float32 take 6 ms instead of 40.
      constexpr int64_t kMaxPixel = 8;
      const bool pixels = !copies && ndim > 1 && to[ndim - 1] <= kMaxPixel;
      if (pixels) whole.channel = ndim - 1;
      batch.channels.resize(batch.channels.size() + (pixels ? std::max<int64_t>(1, to[ndim - 1]) : 1));
      return BorderedWindow(batch, whole, from, to, ndim, out.item_bytes()).add(static_cast<Border>(border), first);
    }
    Slice slice = window_slice(in.data(i), from, out.data(i), to, nullptr, ndim, first, [](int) { return false; });
    slice.copies = copies;
    slice.channels = static_cast<int64_t>(batch.channels.size());
    if (pad && channel >= 0) window.fill.check(i, to[channel]);
    // A fill value for each channel makes the channel axis known to the driver.
    if (pad && !window.fill.single()) slice.channel = channel;
    for (int64_t c = 0; c < (slice.channel < 0 ? 1 : to[channel]); ++c) batch.channels.push_back({0.0f, 1.0f, 0.0f, window.fill(i, c)});
    batch.slices.push_back(slice);
  });
}

}  // namespace
}  // namespace ndd
NDD_HOST_KERNELS(crop, ndd::copy_windows<ndd::kCrop>)
NDD_HOST_KERNELS(slice, ndd::copy_windows<ndd::kSlice>)
NDD_HOST_KERNELS(pad, ndd::copy_windows<ndd::kPad>)
NDD_HOST_KERNELS(paste, ndd::copy_windows<ndd::kPaste>)
