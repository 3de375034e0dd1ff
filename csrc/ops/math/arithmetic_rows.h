// SPDX-License-Identifier: Apache-2.0
// Arithmetic on the CPU, row by row: each operand is read in place, or brought into the type of computation in a row that stays in the first-level
// cache. A pair of types costs two conversions, not a loop of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ndd/elementwise/broadcast.h"
#include "ops/math/arithmetic.h"

namespace ndd::arithmetic_detail {

constexpr int64_t kRow = 1024;  // elements
constexpr int kOperands = 3;

using ConvertRow = void (*)(const void* from, int64_t n, void* to);
using ApplyRow = void (*)(const void* const operands[kOperands], int64_t n, void* out);

// How the CPU computes an operation: brings its operands to `computed`, applies the function, and stores its result as `out`.
struct Recipe {
  Op op;
  DType computed, result_type, out;  // of the operands, of the function's result, of the stored result
  ApplyRow apply;
  ConvertRow store;  // from `result_type` to `out`; null when the bits are the same
};

// The operation itself, or the one that stands for it where these types are special. `type` is what the operands are promoted to, `left` and `right`
// are their types.
Op specific(Op op, DType type, DType left, DType right);

// The type in which it is computed. Narrow integers as int32, 16-bit floats as float32.
DType computed_in(Op op, DType type, DType left, DType right);
Recipe recipe(Op op, DType type, DType left, DType right, DType out);

// From any type to a type of computation; null when the bits are the same.
ConvertRow row_converter(DType from, DType to);

// Whether a row of divisors has a zero among them.
bool has_zero(const void* row, DType type, int64_t n);

// One operand of one sample: any run of at most kRow elements of it, in the type of computation and in the order of the result.
class Rows {
 public:
  Rows() = default;

  // `row_` is uninitialized memory, as the object itself may be.
  void reset(const Broadcast& shape, const void* data, int64_t item_bytes, ConvertRow convert, int64_t computed_bytes) {
    shape_ = &shape;
    data_ = static_cast<const char*>(data);
    in_bytes_ = item_bytes;
    bytes_ = computed_bytes;
    convert_ = convert;
    kind_ = Kind::scattered;
    const int64_t period = shape.period();
    if (period == shape.count) {
      kind_ = convert ? Kind::converted : Kind::in_place;
    } else if (period > 0 && period <= kRow) {
      kind_ = Kind::periodic;
      period_ = period;
      load(data_, period, row_);
      // Enough repetitions for a row that begins anywhere in a period.
      const int64_t wanted = std::min(kRow, shape.count) + period;
      for (int64_t filled = period; filled < wanted; filled *= 2)
        std::memcpy(row_ + filled * bytes_, row_, std::min(filled, wanted - filled) * bytes_);
    }
  }

  bool in_place() const { return kind_ == Kind::in_place; }

  const void* at(int64_t begin, int64_t n) {
    switch (kind_) {
      case Kind::in_place: prefetch(begin + n); return data_ + begin * in_bytes_;
      case Kind::converted:
        prefetch(begin + n);
        convert_(data_ + begin * in_bytes_, n, row_);
        return row_;
      case Kind::periodic: return row_ + begin % period_ * bytes_;
      case Kind::scattered: break;
    }
    gather(begin, n);
    return row_;
  }

 private:
  enum class Kind { in_place, converted, periodic, scattered };

  // The next row: hardware prefetching stops at page boundaries, and a row is a page long. Halves the time of large float32 batches.
  void prefetch(int64_t begin) const {
    const int64_t end = std::min(begin + kRow, shape_->count) * in_bytes_;
    for (int64_t k = begin * in_bytes_; k < end; k += 64) __builtin_prefetch(data_ + k);
  }

  void load(const char* from, int64_t n, char* to) const {
    if (convert_) convert_(from, n, to);
    else std::memcpy(to, from, n * bytes_);
  }

  template <int64_t bytes>
  static void repeat(const char* from, int64_t n, char* to) {
    for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * bytes, from, bytes);
  }

  static void repeat(const char* from, int64_t bytes, int64_t n, char* to) {
    switch (bytes) {
      case 1: return repeat<1>(from, n, to);
      case 2: return repeat<2>(from, n, to);
      case 4: return repeat<4>(from, n, to);
      default: return repeat<8>(from, n, to);
    }
  }

  void gather(int64_t begin, int64_t n) {
    const int64_t *stride = shape_->stride, *extent = shape_->extent;
    // The position of element `begin`, innermost dimension first, and its place in the operand.
    int64_t index[Broadcast::kMaxDims], offset = 0;
    for (int d = 0; d < shape_->ndim; ++d) {
      index[d] = begin % extent[d];
      begin /= extent[d];
      offset += index[d] * stride[d];
    }
    for (int64_t done = 0; done < n;) {
      const int64_t run = std::min(n - done, extent[0] - index[0]);
      char* to = row_ + done * bytes_;
      load(data_ + offset * in_bytes_, stride[0] ? run : 1, to);
      if (stride[0] == 0) repeat(to, bytes_, run, to);
      done += run;
      index[0] += run;
      offset += run * stride[0];
      // Carries into the next dimensions, as in an odometer.
      for (int d = 0; d + 1 < shape_->ndim && index[d] == extent[d]; ++d) {
        offset += stride[d + 1] - index[d] * stride[d];
        index[d] = 0;
        ++index[d + 1];
      }
    }
  }

  const Broadcast* shape_;
  const char* data_;
  int64_t in_bytes_, bytes_, period_;
  ConvertRow convert_;
  Kind kind_;
  alignas(64) char row_[2 * kRow * 8];
};

}  // namespace ndd::arithmetic_detail
