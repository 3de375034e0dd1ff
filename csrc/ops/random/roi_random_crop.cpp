// SPDX-License-Identifier: Apache-2.0
// roi_random_crop, on the host for both devices. Everything is in 64-bit integers that are limited to 2^60 first: no sum of user's numbers can
// overflow.
#include <algorithm>

#include "ndd/args.h"
#include "ndd/kernel.h"
#include "ndd/random/random.h"
#include "ndd/stream/host_output.h"

namespace ndd {
namespace {

std::string at(int64_t d, int64_t i) { return " in dimension " + std::to_string(d) + " of sample " + std::to_string(i); }

// Where the window may start in one dimension, so it holds the region, or the region holds it, and both lie within the input.
void roi_random_crop(const MaybeTensor&, const MaybeTensor&, const Tensor& crop_shape, const Tensor& roi_start, const MaybeTensor& roi_end,
                     const MaybeTensor& roi_shape, const MaybeTensor& in_shape, const Tensor& words, const Tensor& output, const MaybeTensor&) {
  const std::string op = "roi_random_crop";
  if (!roi_end && !roi_shape) fail(Error::Value, op, ": the region of interest must have an end or a shape");
  if (output.dim() != 2 || output.dtype() != DType::int64 || !output.is_contiguous())
    fail(Error::Value, op, ": the output must be int64, with a number for each dimension of each sample");
  const int64_t samples = output.size(0), dims = output.size(1);
  const int64_t* drawn = drawn_words(op, words);
  using Numbers = Args<int64_t>;
  const Numbers crops(crop_shape), starts(roi_start), ends(roi_end ? *roi_end : *roi_shape);
  const std::optional<Numbers> inputs = in_shape ? std::optional<Numbers>(*in_shape) : std::nullopt;
  const bool end_is_shape = !roi_end;
  // One number may stand for all dimensions.
  const auto of = [](const Numbers& numbers, int64_t i, int64_t d) { return numbers(i, numbers.cols() > 1 ? d : 0); };
  compute_on_host<int64_t>(op, samples, 20.0 * static_cast<double>(dims), {words}, output, [=](int64_t i, int64_t* out) {
    Philox stream(drawn, i);
    // Sums and differences of four such numbers fit in 64 bits.
    constexpr int64_t kMaxNumber = int64_t{1} << 60;
    const auto checked = [&](const Numbers& numbers, const char* name, int64_t d) {
      const int64_t number = of(numbers, i, d);
      if (number < -kMaxNumber || number > kMaxNumber) fail(op, ": ", name, " is too large: ", number, at(d, i));
      return number;
    };
    for (int64_t d = 0; d < dims; ++d) {
      const int64_t crop = checked(crops, "crop_shape", d);
      if (crop < 0) fail(op, ": crop_shape must not be negative, got ", crop, at(d, i));
      const int64_t start = checked(starts, "roi_start", d);
      const int64_t end = end_is_shape ? start + checked(ends, "roi_shape", d) : checked(ends, "roi_end", d);
      // A crop smaller than the region starts within it, from `start` to `end - crop`; a larger one from `end - crop` to `start`. Both ends count.
      int64_t first = std::min(start, end - crop), last = std::max(start, end - crop);
      if (inputs) {
        const int64_t size = checked(*inputs, "in_shape", d);
        if (crop > size) fail(op, ": crop_shape is larger than the input: ", crop, " and ", size, at(d, i));
        if (start < 0 || end > size) fail(op, ": the region of interest exceeds the input: it is ", start, " to ", end, " of ", size, at(d, i));
        first = std::max<int64_t>(first, 0);
        last = std::max(first, std::min(last, size - crop));
      }
      // The upper half of a word times `count`: the bias is below count / 2^32, and a larger count would overflow.
      const uint64_t count = static_cast<uint64_t>(last - first) + 1;
      if (count > uint64_t{1} << 32) fail(op, ": crop_shape and the region of interest leave too many places for the window", at(d, i));
      out[i * dims + d] = first + static_cast<int64_t>(uint64_t{stream.next()} * count >> 32);
    }
  });
}

}  // namespace
}  // namespace ndd
NDD_HOST_KERNELS(roi_random_crop, ndd::roi_random_crop)
