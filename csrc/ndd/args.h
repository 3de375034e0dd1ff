// SPDX-License-Identifier: Apache-2.0
// Per-sample arguments: a CPU tensor (rows, columns...) of any numeric type, with one row for all samples or one row per sample.
//
// The values may still be pending when a CPU kernel is called, so read them only inside the closure passed to launch_cpu. The closure copies the
// Args, which keeps the tensor alive. Indices are checked: a number that is not there is an error of the sample, whoever called the kernel.
#pragma once

#include <cstdint>

#include "ndd/samples.h"

namespace ndd {

// Element k of `data`, converted as saturate() does. T is float, double or int64_t.
template <class T>
T number_at(const void* data, DType dtype, int64_t k);

// Throws unless the numbers lie one after the other in host memory.
void check_numbers(const Tensor& tensor);
[[noreturn]] void fail_without_number(int64_t rows, int64_t cols, int64_t sample, int64_t column);

template <class T>
class Args {
 public:
  // A scalar tensor counts as one row; further dimensions are flattened into columns.
  explicit Args(const Tensor& tensor) : tensor_(tensor), data_(tensor.data_ptr()), dtype_(tensor.dtype()) {
    check_numbers(tensor);
    rows_ = tensor.dim() > 0 ? tensor.size(0) : 1;
    cols_ = rows_ > 0 ? tensor.numel() / rows_ : 0;
  }

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

  T operator()(int64_t sample, int64_t column = 0) const {
    const int64_t row = rows_ == 1 ? 0 : sample;
    // Not of the place alone: a column too many is a number of the next sample.
    if (static_cast<uint64_t>(row) >= static_cast<uint64_t>(rows_) || static_cast<uint64_t>(column) >= static_cast<uint64_t>(cols_))
      fail_without_number(rows_, cols_, sample, column);
    return number_at<T>(data_, dtype_, row * cols_ + column);
  }

  // For an argument with one value per frame, or one value for all frames.
  T of_frame(int64_t sample, int64_t frame) const { return (*this)(sample, cols_ > 1 ? frame : 0); }

 private:
  Tensor tensor_;
  const void* data_;
  DType dtype_;
  int64_t rows_, cols_;
};

// Throws unless there is a row for all samples or one for each, of at least `cols` numbers. Python passes such rows, but torch.ops can call a kernel with
// others.
template <class T>
void check_rows(const char* op, const char* name, const Args<T>& args, int64_t samples, int64_t cols = 1) {
  if (samples > 0 && ((args.rows() != 1 && args.rows() != samples) || args.cols() < cols))
    fail(Error::Value, op, ": ", name, " must have ", cols, " numbers for each of ", samples, " samples, got ", args.rows(), " rows of ",
         args.cols());
}

}  // namespace ndd
