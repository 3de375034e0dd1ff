// SPDX-License-Identifier: Apache-2.0
// crop_mirror_normalize: one Slice per sample says where it begins, that the width is mirrored, how axes are permuted, and what happens to each
// channel. out = (in - mean) * scale / std + shift.
#include "ndd/kernel.h"
#include "ndd/slice/slice.h"
#include "ops/geometry/window.h"

namespace ndd {
namespace {

void crop_mirror_normalize(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& start, const Tensor& fill_values, bool pad,
                           const Tensor& mirror, const Tensor& mean, const Tensor& std, double scale, double shift, const std::string& layout,
                           const std::string& output_layout, const Tensor& output, const MaybeTensor& output_shapes) {
  const std::string op = "crop_mirror_normalize";
  const Samples in(input, input_shapes), out(output, output_shapes);
  check_layouts(op, layout, output_layout, in.ndim());
  check_slice_dims(in.ndim());
  if (out.ndim() != in.ndim()) fail(Error::Value, op, ": the output must have the dimensions of the input");
  const Window window(op, start, fill_values, pad, layout);
  const PerChannel means(op, "mean", mean), deviations(op, "std", std);
  const Args<int64_t> mirrors(mirror);
  const int ndim = static_cast<int>(in.ndim()), channel = static_cast<int>(output_layout.find('C')), width = static_cast<int>(layout.find('W'));
  // Without a normalization and a conversion pixels are only moved, as bytes: decided per sample, from its means.
  const bool same_type = in.dtype() == out.dtype();
  const float factor = static_cast<float>(scale), offset = static_cast<float>(shift);
  run_slices(op, in, out, false, [=](int64_t i, SliceBatch& batch) {
    const int64_t *from = in.shape(i), *to = out.shape(i);
    int order[kSliceDims];
    for (int d = 0; d < ndim; ++d) {
      // The input's axis for each axis of the output: the transposition is part of the slice.
      order[d] = static_cast<int>(layout.find(output_layout[d]));
      if (d != channel) window.check(i, order[d], to[d], from[order[d]]);
    }
    const bool mirrored = mirrors(i) != 0;
    Slice slice = window_slice(
        in.data(i), from, out.data(i), to, order, ndim, [&](int a) { return window.start(i, a); }, [&](int a) { return mirrored && a == width; });
    // Channels that only pad the output are zero, or filled like everything outside where the window may leave the image.
    const int64_t channels = from[order[channel]], padded = to[channel];
    means.check(i, channels);
    deviations.check(i, channels);
    // Fill values count the output's channels, or like means those of the image: then what pads them is zero.
    const bool fills_image = channels != 1 && window.fill.count() == channels;
    if (pad && !fills_image) window.fill.check(i, padded);
    slice.channel = channel;
    slice.channels = static_cast<int64_t>(batch.channels.size());
    slice.copies = same_type;
    for (int64_t c = 0; c < padded; ++c) {
      const float fill = pad && (c < channels || !fills_image) ? window.fill(i, c) : 0.0f;
      // (in - mean) * factor + offset for each channel.
      batch.channels.push_back(c < channels ? Channel{means(i, c), factor / deviations(i, c), offset, fill} : Channel{0.0f, 1.0f, 0.0f, fill});
      slice.copies = slice.copies && batch.channels.back().identity();
    }
    batch.slices.push_back(slice);
  });
}

}  // namespace
}  // namespace ndd
NDD_HOST_KERNELS(crop_mirror_normalize, ndd::crop_mirror_normalize)
