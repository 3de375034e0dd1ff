// SPDX-License-Identifier: Apache-2.0
// flip: a slice of the whole sample, or of each frame if frames have arguments of their own, with the mirrored axes.
#include "ndd/args.h"
#include "ndd/kernel.h"
#include "ndd/slice/slice.h"

namespace ndd {
namespace {

// Each argument has one value for a sample, or one for each of its frames.
void flip(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& depthwise, const Tensor& horizontal, const Tensor& vertical,
          const std::string& layout, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  check_same("flip", out, in);
  const Args<int64_t> d(depthwise), h(horizontal), v(vertical);
  const int64_t columns = std::max({d.cols(), h.cols(), v.cols()});
  // Mirroring is a negative stride of a slice: the kernels are those of slice, for all types and any number of axes.
  run_slices("flip", in, out, true, [=](int64_t i, SliceBatch& batch) {
    const int split = columns > 1 ? 1 : 0;  // 1 if frames have arguments of their own; otherwise a video is one slice
    const int64_t* shape = in.shape(i);
    const int64_t frames = split ? shape[0] : 1;
    for (const auto* argument : {&d, &h, &v}) {
      if (argument->cols() > 1 && argument->cols() < frames)
        fail("flip: sample ", i, " has ", frames, " frames, its arguments are for ", argument->cols());
    }
    // A sample without frames has no slices, and nothing to divide by.
    const int64_t bytes = frames > 0 ? in.volume(i) / frames * in.item_bytes() : 0;
    batch.channels.resize(1);
    for (int64_t f = 0; f < frames; ++f) {
      const auto mirrored = [&](int axis) {
        const char letter = layout[axis + split];
        return letter == 'W' ? h.of_frame(i, f) != 0 : letter == 'H' ? v.of_frame(i, f) != 0 : letter == 'D' && d.of_frame(i, f) != 0;
      };
      batch.slices.push_back(window_slice(
          static_cast<const char*>(in.data(i)) + f * bytes, shape + split, static_cast<char*>(out.data(i)) + f * bytes, shape + split, nullptr,
          static_cast<int>(in.ndim()) - split, [](int) { return 0; }, mirrored));
    }
  });
}

}  // namespace
}  // namespace ndd
NDD_HOST_KERNELS(flip, ndd::flip)
