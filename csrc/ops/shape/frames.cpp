// SPDX-License-Identifier: Apache-2.0
// Frames, which are parts of the outermost axis: sequence_rearrange reorders them, element_extract turns each into a sample.
#include "ndd/args.h"
#include "ndd/kernel.h"
#include "ndd/slice/slice.h"

namespace ndd {
namespace {

// Where part `index` of sample i begins. Indices may be results of a kernel, so they are checked here.
const char* part_of(const std::string& op, const char* argument, const Samples& in, int64_t i, int64_t index) {
  const int64_t count = in.shape(i)[0];
  if (index < 0 || index >= count)
    fail(op, ": argument '", argument, "' must be from 0 to ", count - 1, ", the frames of sample ", i, ", got ", index);
  return static_cast<const char*>(in.data(i)) + index * (in.volume(i) / count) * in.item_bytes();
}

void sequence_rearrange(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& new_order, const Tensor& output,
                        const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  if (in.dtype() != out.dtype() || in.ndim() < 1 || out.ndim() + 1 < in.ndim())
    fail(Error::Value, "the output must have the type and the frames of the input");
  const Args<int64_t> order(new_order);
  run_slices("sequence_rearrange", in, out, true, [=](int64_t i, SliceBatch& batch) {
    batch.channels.resize(1);
    const int64_t count = out.shape(i)[0], length = count > 0 ? out.volume(i) / count : 0;
    char* to = static_cast<char*>(out.data(i));
    if (count > 0 && length * in.shape(i)[0] != in.volume(i)) fail(Error::Value, "sequence_rearrange: sample ", i, " of the output has other frames");
    for (int64_t k = 0; k < count; ++k, to += length * out.item_bytes())
      batch.slices.push_back(run_slice(part_of("sequence_rearrange", "new_order", in, i, order(i, k)), to, 1, length, length));
  });
}

// The output has `elements` times as many samples as the input: all first elements, then all second ones.
void element_extract(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& element_map, const Tensor& output,
                     const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  if (in.dtype() != out.dtype() || in.ndim() < 1 || out.ndim() + 1 < in.ndim())
    fail(Error::Value, "the output must have the type and the frames of the input");
  const Args<int64_t> elements(element_map);
  run_slices("element_extract", in.size(), in, out, true, [=](int64_t i, SliceBatch& batch) {
    batch.channels.resize(1);
    for (int64_t k = 0; k < elements.cols(); ++k) {
      const int64_t to = k * in.size() + i, length = out.volume(to);
      if (length * in.shape(i)[0] != in.volume(i)) fail(Error::Value, "element_extract: sample ", to, " of the output has another size than a frame");
      batch.slices.push_back(run_slice(part_of("element_extract", "element_map", in, i, elements(0, k)), out.data(to), 1, length, length));
    }
  });
}

}  // namespace
}  // namespace ndd
NDD_HOST_KERNELS(sequence_rearrange, ndd::sequence_rearrange)
NDD_HOST_KERNELS(element_extract, ndd::element_extract)
