// SPDX-License-Identifier: Apache-2.0
// cat and stack: everything from the axis on is one run in each input, and the output alternates between the runs of all inputs.
#include "ndd/kernel.h"
#include "ndd/slice/slice.h"

namespace ndd {
namespace {

// Names as template arguments, which makes a kernel of its own for each operator.
constexpr char kCat[] = "cat", kStack[] = "stack";

template <const char* op>
void join(const std::vector<Tensor>& inputs, const std::vector<Tensor>& shapes, int64_t axis, const Tensor& output,
          const MaybeTensor& output_shapes) {
  const std::vector<Samples> ins = samples_of(inputs, shapes);
  const Samples out(output, output_shapes);
  if (ins.empty() || axis < 0 || axis > out.ndim()) fail(Error::Value, op, ": there must be inputs, and the axis ", axis, " of the output");
  for (const Samples& in : ins)
    if (in.dtype() != out.dtype()) fail(Error::Type, op, ": the inputs must have the type of the output");
  run_slices(op, ins[0], out, true, [=](int64_t i, SliceBatch& batch) {
    batch.channels.resize(1);
    int64_t count = 1, position = 0;
    for (int64_t d = 0; d < axis; ++d) count *= out.shape(i)[d];
    // Otherwise `count` may be 0, and is divided by.
    if (out.volume(i) == 0) return;
    // From one run of an input to its next in the output: past the runs of all inputs.
    const int64_t step = out.volume(i) / count;
    for (const Samples& in : ins) {
      const int64_t length = in.volume(i) / count;
      if (length > 0)
        batch.slices.push_back(run_slice(in.data(i), static_cast<char*>(out.data(i)) + position * out.item_bytes(), count, length, step));
      position += length;
    }
    if (position != step) fail(Error::Value, op, ": sample ", i, " of the output does not have the size of all inputs");
  });
}

}  // namespace
}  // namespace ndd
NDD_HOST_KERNELS(cat, ndd::join<ndd::kCat>)
NDD_HOST_KERNELS(stack, ndd::join<ndd::kStack>)
