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

template float number_at<float>(const void*, DType, int64_t);
template double number_at<double>(const void*, DType, int64_t);
template int64_t number_at<int64_t>(const void*, DType, int64_t);

}  // namespace ndd
