// SPDX-License-Identifier: Apache-2.0
// random_object_bbox on the CPU, a task for each sample. The background is decided before the objects are searched, which costs 0.5 ns for each
// element.
#include "ops/segmentation/random_object_bbox.h"

#include "ndd/kernel.h"
#include "ndd/stream/stream.h"

namespace ndd {
namespace {

using namespace object_bbox;

DrawnObject draw_object(const void* data, DType dtype, const int64_t* shape, int64_t ndim, const ObjectRule& rule, Philox stream) {
  if (!(stream.uniform_double() < rule.foreground_prob)) return whole_sample(shape, ndim, rule);
  MaskObjects objects;
  for_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!is_floating<T>)
      objects = find_objects(static_cast<const T*>(data), shape, ndim, [&](T value) { return rule.label_of(static_cast<int64_t>(value)); });
  });
  return choose_object(objects, shape, ndim, rule, stream);
}

void random_object_bbox_cpu(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& background, const MaybeTensor& class_weights,
                            const MaybeTensor& classes, const Tensor& foreground_prob, const MaybeTensor& threshold, int64_t k_largest,
                            bool ignore_class, int64_t format, const Tensor& words, const Tensor& first, const MaybeTensor&, const Tensor& second,
                            const MaybeTensor&, const Tensor& labels, const MaybeTensor&) {
  const std::string op = "segmentation.random_object_bbox";
  const Samples in(input, input_shapes);
  const int64_t* drawn = drawn_words(op, words);
  const Rules rules(background, class_weights, classes, foreground_prob, threshold, k_largest, ignore_class);
  check_masks(op, in);
  check_boxes(op, in, static_cast<Format>(format), first, second, labels);
  const Boxes boxes{in.ndim(), static_cast<Format>(format), static_cast<int32_t*>(first.data_ptr()), static_cast<int32_t*>(second.data_ptr()),
                    static_cast<int32_t*>(labels.data_ptr())};
  launch_cpu(op, in.size(), 0.5 * in.mean_volume(), {words, first, second, labels},
             [=](int64_t i) { boxes.set(i, draw_object(in.data(i), in.dtype(), in.shape(i), in.ndim(), rules.of(i, in.ndim()), Philox(drawn, i))); });
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(segmentation_random_object_bbox, CPU, ndd::random_object_bbox_cpu)
