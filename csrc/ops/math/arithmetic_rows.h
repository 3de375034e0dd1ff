// SPDX-License-Identifier: Apache-2.0
// Arithmetic on the CPU, row by row: each operand is read in place, or brought into the type of the result in a row that stays in the first-level
// cache. A pair of types costs two conversions, not a loop of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ndd/broadcast.h"
#include "ndd/saturate.h"
#include "ndd/simd.h"
#include "ops/math/arithmetic.h"

namespace ndd {
namespace arithmetic_detail {

constexpr int64_t kRow = 1024;  // elements

using ConvertRow = void (*)(const void* from, int64_t n, void* to);
// `left_many`: as many left operands as results, else one for all.
using ApplyRow = void (*)(const void* left, bool left_many, const void* right, bool right_many, int64_t n, void* out);

template <class In, class Out>
void convert_row(const void* from, int64_t n, void* to) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const In* __restrict src = static_cast<const In*>(from);
    Out* __restrict dst = static_cast<Out*>(to);
    const int64_t count = n;
    for (int64_t i = 0; i < count; ++i) dst[i] = static_cast<Out>(src[i]);
  });
}

// To a type of computation; null when the bits are the same.
inline ConvertRow row_converter(DType from, DType to) {
  ConvertRow convert = nullptr;
  if (computed_in(from) == to && !is_floating_dtype(from)) return convert;
  for_dtype(from, [&](auto tag) {
    using In = typename decltype(tag)::type;
    if constexpr (!is_floating<In>) {
      if constexpr (sizeof(In) < 2) {
        if (to == DType::uint16) convert = convert_row<In, uint16_t>;
      }
      if constexpr (sizeof(In) < 4) {
        if (to == DType::uint32) convert = convert_row<In, uint32_t>;
      }
      if constexpr (sizeof(In) < 8) {
        if (to == DType::uint64) convert = convert_row<In, uint64_t>;
      }
    }
    if constexpr (!std::is_same_v<In, float> && !std::is_same_v<In, double>) {
      if (to == DType::float32) convert = convert_row<In, float>;
    }
    if constexpr (is_half<In>) {
      if (to == DType::float64) convert = convert_row<In, double>;
    } else if constexpr (!std::is_same_v<In, double>) {
      if (to == DType::float64) convert = convert_row<In, double>;
    }
  });
  return convert;
}

template <Arithmetic operation, class T>
void apply_row(const void* left, bool left_many, const void* right, bool right_many, int64_t n, void* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const T* __restrict a = static_cast<const T*>(left);
    const T* __restrict b = static_cast<const T*>(right);
    T* __restrict dst = static_cast<T*>(out);
    const int64_t count = n;
    const T first = *a, second = *b;
    if (left_many && right_many) {
      for (int64_t i = 0; i < count; ++i) dst[i] = apply<operation>(a[i], b[i]);
    } else if (left_many) {
      for (int64_t i = 0; i < count; ++i) dst[i] = apply<operation>(a[i], second);
    } else if (right_many) {
      for (int64_t i = 0; i < count; ++i) dst[i] = apply<operation>(first, b[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) dst[i] = apply<operation>(first, second);
    }
  });
}

template <Arithmetic operation>
ApplyRow row_of(DType computed) {
  switch (computed) {
    case DType::float32:
      return apply_row<operation, float>;
    case DType::float64:
      return apply_row<operation, double>;
    default:
      break;
  }
  if constexpr (operation != Arithmetic::truediv) {
    switch (computed) {
      case DType::uint8:
        return apply_row<operation, uint8_t>;
      case DType::uint16:
        return apply_row<operation, uint16_t>;
      case DType::uint32:
        return apply_row<operation, uint32_t>;
      case DType::uint64:
        return apply_row<operation, uint64_t>;
      default:
        break;
    }
  }
  throw Error(Error::Type, "arithmetic: no such operation on integers");
}

inline ApplyRow row_of(Arithmetic operation, DType computed) {
  switch (operation) {
    case Arithmetic::add:
      return row_of<Arithmetic::add>(computed);
    case Arithmetic::sub:
      return row_of<Arithmetic::sub>(computed);
    case Arithmetic::mul:
      return row_of<Arithmetic::mul>(computed);
    case Arithmetic::truediv:
      return row_of<Arithmetic::truediv>(computed);
  }
  throw Error(Error::Value, "arithmetic: unknown operation");
}

template <int64_t bytes>
void repeat(const char* from, int64_t n, char* to) {
  for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * bytes, from, bytes);
}

inline void repeat(const char* from, int64_t bytes, int64_t n, char* to) {
  switch (bytes) {
    case 1:
      return repeat<1>(from, n, to);
    case 2:
      return repeat<2>(from, n, to);
    case 4:
      return repeat<4>(from, n, to);
    default:
      return repeat<8>(from, n, to);
  }
}

// One operand of one sample: any run of at most kRow elements of it, in the type of computation and in the order of the result.
class Rows {
 public:
  Rows(const Broadcast& shape, int operand, const void* data, int64_t item_bytes, ConvertRow convert, int64_t computed_bytes)
      : shape_(shape), stride_(shape.stride[operand]), data_(static_cast<const char*>(data)), in_bytes_(item_bytes), bytes_(computed_bytes), convert_(convert) {
    const int64_t period = shape.period(operand);
    if (shape.scalar(operand)) {
      kind_ = Kind::constant;
      load(data_, 1, row_);
    } else if (period == shape.count) {
      kind_ = convert ? Kind::converted : Kind::in_place;
    } else if (period > 0 && period <= kRow) {
      kind_ = Kind::periodic;
      period_ = period;
      load(data_, period, row_);
      for (int64_t filled = period; filled < kRow + period; filled *= 2)
        std::memcpy(row_ + filled * bytes_, row_, std::min(filled, kRow + period - filled) * bytes_);
    }
  }

  bool many() const { return kind_ != Kind::constant; }
  bool staged() const { return kind_ != Kind::constant && kind_ != Kind::in_place; }

  const void* at(int64_t begin, int64_t n) {
    switch (kind_) {
      case Kind::constant:
        return row_;
      case Kind::in_place:
        prefetch(begin + n);
        return data_ + begin * in_bytes_;
      case Kind::converted:
        prefetch(begin + n);
        convert_(data_ + begin * in_bytes_, n, row_);
        return row_;
      case Kind::periodic:
        return row_ + begin % period_ * bytes_;
      case Kind::scattered:
        break;
    }
    gather(begin, n);
    return row_;
  }

 private:
  enum class Kind { constant, in_place, converted, periodic, scattered };

  // The next row: the processor's own prefetching ends at every page, and a row is one. Halves the time of large float32 batches.
  void prefetch(int64_t begin) const {
    const int64_t end = std::min(begin + kRow, shape_.count) * in_bytes_;
    for (int64_t k = begin * in_bytes_; k < end; k += 64) __builtin_prefetch(data_ + k);
  }

  void load(const char* from, int64_t n, char* to) const {
    if (convert_) convert_(from, n, to);
    else std::memcpy(to, from, n * bytes_);
  }

  void gather(int64_t begin, int64_t n) {
    int64_t index[Broadcast::kMaxDims], offset = 0;
    for (int d = 0; d < shape_.ndim; ++d) {
      index[d] = begin % shape_.extent[d];
      begin /= shape_.extent[d];
      offset += index[d] * stride_[d];
    }
    for (int64_t done = 0; done < n;) {
      const int64_t run = std::min(n - done, shape_.extent[0] - index[0]);
      char* to = row_ + done * bytes_;
      load(data_ + offset * in_bytes_, stride_[0] ? run : 1, to);
      if (stride_[0] == 0) repeat(to, bytes_, run, to);
      done += run;
      index[0] += run;
      offset += run * stride_[0];
      for (int d = 0; d + 1 < shape_.ndim && index[d] == shape_.extent[d]; ++d) {
        offset += stride_[d + 1] - index[d] * stride_[d];
        index[d] = 0;
        ++index[d + 1];
      }
    }
  }

  const Broadcast& shape_;
  const int64_t* stride_;
  const char* data_;
  int64_t in_bytes_, bytes_, period_ = 0;
  ConvertRow convert_;
  Kind kind_ = Kind::scattered;
  alignas(64) char row_[2 * kRow * 8];
};

}  // namespace arithmetic_detail
}  // namespace ndd
