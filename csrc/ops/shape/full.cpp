// SPDX-License-Identifier: Apache-2.0
// Arrays of one value, or of a smaller array that is broadcast as in NumPy.
#include "ndd/kernel.h"
#include "ndd/slice/slice.h"

namespace ndd {
namespace {

constexpr char kZeros[] = "zeros", kOnes[] = "ones", kFull[] = "full", kZerosLike[] = "zeros_like", kOnesLike[] = "ones_like",
               kFullLike[] = "full_like";

void broadcast(const char* op, const Tensor& value, const MaybeTensor& value_shapes, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(value, value_shapes), out(output, output_shapes);
  const int ndim = static_cast<int>(out.ndim()), missing = ndim - static_cast<int>(in.ndim());
  check_slice_dims(ndim);
  if (missing < 0) fail(Error::Value, op, ": the value has more dimensions than the output");
  run_slices(op, in, out, true, [=](int64_t i, SliceBatch& batch) {
    batch.channels.resize(1);
    // One value for all samples, or one for each.
    const int64_t k = in.size() == 1 ? 0 : i, *from = in.shape(k), *to = out.shape(i);
    // A stride of 0 repeats the element along a broadcast axis.
    Slice slice;
    slice.in = in.data(k);
    slice.out = out.data(i);
    slice.ndim = ndim;
    int64_t stride = 1;
    for (int d = ndim - 1; d >= 0; --d) {
      // Axes that the value lacks come first, with an extent of 1.
      const int64_t extent = d < missing ? 1 : from[d - missing];
      if (extent != 1 && extent != to[d]) fail(Error::Value, op, ": sample ", i, ": an axis of ", extent, " elements does not become one of ", to[d]);
      slice.extent[d] = slice.end[d] = to[d];
      slice.begin[d] = 0;
      slice.stride[d] = extent == 1 ? 0 : stride;
      stride *= extent;
    }
    batch.slices.push_back(slice);
  });
}

template <const char* op>
void fill_scalar(const Tensor& value, const Tensor& output, const MaybeTensor& output_shapes) {
  broadcast(op, value, std::nullopt, output, output_shapes);
}

void full(const Tensor& value, const MaybeTensor& value_shapes, const Tensor& output, const MaybeTensor& output_shapes) {
  broadcast(kFull, value, value_shapes, output, output_shapes);
}

// Of the first input only the shape matters, and Python has already allocated the output from it.
template <const char* op>
void fill_scalar_like(const Tensor&, const MaybeTensor&, const Tensor& value, const Tensor& output, const MaybeTensor& output_shapes) {
  broadcast(op, value, std::nullopt, output, output_shapes);
}

void full_like(const Tensor&, const MaybeTensor&, const Tensor& value, const MaybeTensor& value_shapes, const Tensor& output,
               const MaybeTensor& output_shapes) {
  broadcast(kFullLike, value, value_shapes, output, output_shapes);
}

}  // namespace
}  // namespace ndd
NDD_HOST_KERNELS(zeros, ndd::fill_scalar<ndd::kZeros>)
NDD_HOST_KERNELS(ones, ndd::fill_scalar<ndd::kOnes>)
NDD_HOST_KERNELS(full, ndd::full)
NDD_HOST_KERNELS(zeros_like, ndd::fill_scalar_like<ndd::kZerosLike>)
NDD_HOST_KERNELS(ones_like, ndd::fill_scalar_like<ndd::kOnesLike>)
NDD_HOST_KERNELS(full_like, ndd::full_like)
