// SPDX-License-Identifier: Apache-2.0
// A box of each image is replaced by the same box of another image of the batch, for CutMix: multi_paste does the same from regions, whose arguments take
// the host longer than the copy takes a GPU.
#include "ndd/args.h"
#include "ndd/kernel.h"
#include "ndd/slice/layers.h"

namespace ndd {
namespace {

// `images` are dense, `order` holds the partner of each, `boxes` rows of left, top, right and bottom, within the images. Rows of pixels are the axis
// `height` of a sample and columns the next; a box covers the other axes.
void paste_boxes(const Tensor& images, const Tensor& order, const Tensor& boxes, int64_t height, const Tensor& output) {
  const Samples in(images, MaybeTensor()), out(output, MaybeTensor());
  const Args<int64_t> partners(order), sides(boxes);
  if (height < 0 || height + 2 > out.ndim() || out.ndim() > kSliceDims) fail("paste_boxes: no images");
  check_outputs("paste_boxes", out, in);
  check_rows("paste_boxes", "order", partners, out.size());
  check_rows("paste_boxes", "boxes", sides, out.size(), 4);
  run_layers("paste_boxes", in, out, [=](int64_t i) {
    const int64_t partner = partners(i);
    if (partner < 0 || partner >= in.size()) fail("paste_boxes: sample ", i, ": the partner is not in the batch");
    Layers stack;
    stack.out = out.data(i);
    stack.ndim = out.ndim();
    std::copy_n(out.shape(i), stack.ndim, stack.extent);
    stack.layers.push_back(stack.whole(in.data(i)));
    Layer box = stack.whole(in.data(partner));
    for (int side = 0; side < 2; ++side) {
      const int64_t d = height + side, begin = sides(i, 1 - side), end = sides(i, 3 - side);
      if (begin < 0 || begin > end || end > stack.extent[d]) fail("paste_boxes: sample ", i, ": the box is not within the image");
      box.begin[d] = begin;
      box.end[d] = end;
      box.origin += begin * box.stride[d];
    }
    stack.layers.push_back(box);
    return stack;
  });
}

}  // namespace
}  // namespace ndd
NDD_HOST_KERNELS(paste_boxes, ndd::paste_boxes)
