// SPDX-License-Identifier: Apache-2.0
// A switch over 13 types per access, out of line: arguments are only a few numbers per sample, and every kernel reads some.
#include "ndd/args.h"

#include "ndd/elementwise/saturate.h"

namespace ndd {

template <class T>
T number_at(const void* data, DType dtype, int64_t k) {
  T value{};
  for_dtype(dtype, [&](auto tag) { value = saturate<T>(static_cast<const typename decltype(tag)::type*>(data)[k]); });
  return value;
}

void check_numbers(const Tensor& tensor) {
  if (tensor.is_cuda() || !tensor.is_contiguous()) fail(Error::Value, "the numbers of an argument must be contiguous, on the CPU");
}

void fail_without_number(int64_t rows, int64_t cols, int64_t sample, int64_t column) {
  fail(Error::Value, "an argument of ", rows, " rows of ", cols, " numbers has no number ", column, " for sample ", sample);
}

template float number_at<float>(const void*, DType, int64_t);
template double number_at<double>(const void*, DType, int64_t);
template int64_t number_at<int64_t>(const void*, DType, int64_t);

}  // namespace ndd
