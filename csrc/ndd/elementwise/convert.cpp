// SPDX-License-Identifier: Apache-2.0
// Conversion between any two of 13 types without compiling 169 loops.
#include "ndd/elementwise/convert.h"

#include <algorithm>
#include <cstring>

#include "ndd/elementwise/saturate.h"
#include "ndd/simd.h"

namespace ndd {
namespace {

constexpr int64_t kRow = 1024;  // elements

using Convert = void (*)(const void* from, int64_t n, void* to);

template <class In, class Out>
void convert(const void* from, int64_t n, void* to) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const In* __restrict src = static_cast<const In*>(from);
    Out* __restrict dst = static_cast<Out*>(to);
    const int64_t count = n;
    for (int64_t i = 0; i < count; ++i) dst[i] = saturate<Out>(src[i]);
  });
}

// The type through which T is converted: the narrowest of a few that hold every value of T exactly.
template <class T>
using WideInteger =
    std::conditional_t<std::is_same_v<T, uint64_t>, uint64_t, std::conditional_t<(sizeof(T) < 4 || std::is_same_v<T, int32_t>), int32_t, int64_t>>;
template <class T>
using Wide = std::conditional_t<is_half<T>, float, std::conditional_t<is_floating<T>, double, WideInteger<T>>>;

// Converts in two steps, through a row of wide elements in the L1 cache: 12 + 65 loops instead of 169.
template <class In>
void convert_through_wide(const void* from, int64_t n, Convert narrow, int64_t out_bytes, void* to) {
  alignas(64) Wide<In> row[kRow];
  for (int64_t begin = 0; begin < n; begin += kRow) {
    const int64_t count = std::min(kRow, n - begin);
    convert<In, Wide<In>>(static_cast<const In*>(from) + begin, count, row);
    narrow(row, count, static_cast<char*>(to) + begin * out_bytes);
  }
}

// Direct conversion for uint8 and float32, the types of images and features.
template <class In>
inline constexpr bool is_common = std::is_same_v<In, uint8_t> || std::is_same_v<In, float>;

template <class In>
Convert converter(DType out) {
  Convert found = nullptr;
  for_dtype(out, [&](auto tag) { found = convert<In, typename decltype(tag)::type>; });
  return found;
}

}  // namespace

void convert_run(const void* from, DType in, int64_t n, void* to, DType out) {
  if (n <= 0) return;  // arrays without elements may have a null pointer, which memcpy must not get
  if (in == out) {
    std::memcpy(to, from, n * item_bytes(in));
    return;
  }
  for_dtype(in, [&](auto tag) {
    using In = typename decltype(tag)::type;
    bool is_wide = false;
    for_dtype(out, [&](auto out_tag) { is_wide = std::is_same_v<typename decltype(out_tag)::type, Wide<In>>; });
    if constexpr (is_common<In>) converter<In>(out)(from, n, to);
    else if (is_wide) convert<In, Wide<In>>(from, n, to);
    else convert_through_wide<In>(from, n, converter<Wide<In>>(out), item_bytes(out), to);
  });
}

}  // namespace ndd
